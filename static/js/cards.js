// @ts-check
// News of one's sessions, at the lower edge: badges that unfold to cards. Fetched anew when a session changes; closed by
// themselves once all is well and over. A card unfolds by itself only while it is new and nothing lies under it.
(() => {
  const closesAfter = 3000;
  const isNewFor = 8000;
  const looksEvery = 60000;
  const place = document.getElementById("note-cards") || document.createElement("aside"); // none on the page of all news
  const controls = "a[href], button, input:not([type=hidden]), select, textarea, summary, label, [tabindex='0'], tr[data-session], .screen-box, dialog[open]";
  const small = matchMedia("(max-width: 575.98px)");
  const statuses = new Map();
  const said = new Map();
  const closing = new Map();
  const shownNew = new Map();
  let timer = 0;
  let due = Infinity;
  let shownText = "";
  let hadFocus = "";
  let opened = "";
  let byItself = "";
  let foldsAt = 0;

  const renew = () => {
    timer = 0;
    due = Infinity;
    if (place.isConnected) htmx.trigger(place, "look-again");
    document.dispatchEvent(new CustomEvent("news-changed"));
  };
  const within = (delay) => {
    if (Date.now() + delay >= due) return;
    clearTimeout(timer);
    due = Date.now() + delay;
    timer = setTimeout(renew, delay);
  };
  document.addEventListener("session-changed", ({ detail }) => {
    if (detail.own === false) return;
    const moved = statuses.get(detail.id) !== detail.status;
    statuses.set(detail.id, detail.status);
    within(moved ? 200 : 3000);
  });
  document.addEventListener("job-changed", ({ detail }) => detail.kind === "access" && within(200));
  document.addEventListener("look-again-at-all", () => within(400));

  const cards = () => [...place.querySelectorAll("[data-note]")];
  const cardOf = (id) => cards().find((card) => card.dataset.note === id);
  // What has grown old goes without anything having changed.
  setInterval(() => !document.hidden && cards().length && within(0), looksEvery);
  const isInUse = (card) => card.matches(":hover, :focus-within");
  const closeSoon = (id) => {
    if (closing.has(id)) return;
    const close = () => {
      closing.delete(id);
      const card = cardOf(id);
      if (!card || !("over" in card.dataset)) return;
      // Anyone who points at it, or has the keyboard in it, goes on reading.
      if (isInUse(card)) closeSoon(id);
      else htmx.trigger(card.querySelector("form"), "submit");
    };
    closing.set(id, setTimeout(close, closesAfter));
  };

  const meets = (one, other) =>
    one.width && one.right > other.left && one.left < other.right && one.bottom > other.top && one.top < other.bottom;
  // On a page that scrolls something would come under it with the next turn of the wheel.
  const coversSomething = (card) => {
    if (document.documentElement.scrollHeight > innerHeight) return true;
    const room = card.querySelector(".note-panel").getBoundingClientRect();
    return [...document.querySelectorAll(controls)].some((each) => !place.contains(each) && meets(each.getBoundingClientRect(), room));
  };
  const foldNew = () => {
    const card = cardOf(byItself);
    byItself = "";
    if (card) card.open = false;
  };
  const lookUnder = () => {
    const card = cardOf(byItself);
    if (!card || isInUse(card)) return;
    if (Date.now() >= foldsAt || coversSomething(card)) foldNew();
  };
  const unfoldNew = (now) => {
    const fresh = cards().find(({ dataset: { note, since } }) => shownNew.get(note) !== since && now - Date.parse(since) < isNewFor);
    for (const { dataset: { note, since } } of cards()) shownNew.set(note, since);
    // A card that somebody opened, perhaps between the answer's arrival and now, stays as it is.
    if (!fresh || small.matches || cards().some((card) => card.open && card.dataset.note !== byItself)) return;
    fresh.open = true;
    byItself = fresh.dataset.note;
    foldsAt = Date.parse(fresh.dataset.since) + isNewFor + Date.now() - now;
    if (coversSomething(fresh)) foldNew();
  };
  setInterval(lookUnder, 500);
  addEventListener("scroll", lookUnder, { passive: true, capture: true });
  addEventListener("resize", lookUnder);
  document.addEventListener("htmx:afterSettle", lookUnder);

  place.addEventListener("htmx:beforeSwap", ({ detail }) => {
    // Each answer carries tokens of its own for the forms; what people see is compared.
    const text = detail.serverResponse.replace(/name="csrfmiddlewaretoken" value="[^"]*"/g, "");
    if (text === shownText) {
      detail.shouldSwap = false;
      return;
    }
    shownText = text;
    hadFocus = place.contains(document.activeElement) ? document.activeElement.id || "gone" : "";
    opened = cards().find((card) => card.open)?.dataset.note ?? "";
  });
  place.addEventListener("htmx:afterSettle", ({ detail }) => {
    const news = [];
    if (opened && cardOf(opened)) cardOf(opened).open = true;
    for (const card of cards()) {
      const { note, said: text, status } = card.dataset;
      if (said.has(note) && said.get(note) !== text) news.push(text);
      said.set(note, text);
      statuses.set(note, status);
      if ("over" in card.dataset) closeSoon(note);
    }
    if (news.length) document.getElementById("announce").textContent = news.join(". ");
    // By the portal's own clock: the browser's may be wrong.
    unfoldNew(Date.parse(detail.xhr?.getResponseHeader("Date")) || Date.now());
    // The keyboard was in a card that is gone: it goes to the next one.
    if (hadFocus && document.activeElement === document.body) {
      (document.getElementById(hadFocus) ?? place.querySelector("summary"))?.focus({ preventScroll: true });
    }
    hadFocus = "";
    opened = "";
  });

  const fold = () => cards().forEach((card) => (card.open = false));
  document.addEventListener("click", ({ target }) => {
    if (!target.closest("#note-cards")) fold();
  });
  document.addEventListener("keydown", ({ key }) => {
    const card = key === "Escape" && !document.querySelector("dialog[open]") && cards().find((each) => each.open);
    if (!card) return;
    const inside = card.contains(document.activeElement);
    card.open = false;
    if (inside) card.querySelector("summary").focus();
  });
  place.addEventListener("click", ({ target }) => {
    // Somebody opens or closes it: it is theirs now.
    if (target.closest("summary")) byItself = "";
    if (target.closest("[data-bell]")) htmx.trigger(document.getElementById("notifications"), "look-again");
  });

  // Whatever else keeps to the lower edge stands above the badges, by as much as they take.
  new ResizeObserver(() => {
    document.documentElement.style.setProperty("--news-height", `${place.offsetHeight}px`);
  }).observe(place);
})();

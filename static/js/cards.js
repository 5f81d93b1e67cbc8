// The cards of one's sessions: fetched anew when one of them changes, closed by themselves once all is well and over.
(() => {
  const closesAfter = 3000;
  const place = document.getElementById("note-cards") || document.createElement("aside"); // none on the page of all news
  const statuses = new Map();
  const said = new Map();
  const closing = new Map();
  let timer = 0;
  let due = Infinity;
  let shownText = "";
  let hadFocus = false;

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
  document.addEventListener("look-again-at-all", () => within(400));

  const cards = () => [...place.querySelectorAll("[data-note]")];
  const isInUse = (card) => card.matches(":hover, :focus-within");
  const closeSoon = (id) => {
    if (closing.has(id)) return;
    const close = () => {
      closing.delete(id);
      const card = cards().find((each) => each.dataset.note === id);
      if (!card || !("over" in card.dataset)) return;
      // Whoever points at it, or has the keyboard in it, goes on reading.
      if (isInUse(card)) closeSoon(id);
      else htmx.trigger(card.querySelector("form"), "submit");
    };
    closing.set(id, setTimeout(close, closesAfter));
  };

  place.addEventListener("htmx:beforeSwap", ({ detail }) => {
    // Each answer carries tokens of its own for the forms; what people see is compared.
    const text = detail.serverResponse.replace(/name="csrfmiddlewaretoken" value="[^"]*"/g, "");
    if (text === shownText) detail.shouldSwap = false;
    shownText = text;
    hadFocus = place.contains(document.activeElement);
  });
  place.addEventListener("htmx:afterSettle", () => {
    const news = [];
    for (const card of cards()) {
      const { note, said: text, status } = card.dataset;
      if (said.has(note) && said.get(note) !== text) news.push(text);
      said.set(note, text);
      statuses.set(note, status);
      if ("over" in card.dataset) closeSoon(note);
    }
    if (news.length) document.getElementById("announce").textContent = news.join(". ");
    // The keyboard was in a card that is gone: it goes to the next one.
    if (hadFocus && document.activeElement === document.body) place.querySelector("[id^=note-close-]")?.focus({ preventScroll: true });
    hadFocus = false;
  });
  place.addEventListener("click", ({ target }) => {
    if (target.closest("[data-bell]")) htmx.trigger(document.getElementById("notifications"), "look-again");
  });
})();

// @ts-check
// The wall is fetched anew when sessions change, and every ten seconds for what programs use; only what differs is put
// into the page. Colours of owners are rules of a style sheet, so that they are no difference.
(() => {
  const place = document.getElementById("wall");
  const frame = document.getElementById("wall-frame");
  const pause = 5000; // ms between two looks
  let lookedAt = Date.now();
  let timer = 0;

  const look = () => {
    timer = 0;
    if (document.hidden) return;
    lookedAt = Date.now();
    htmx.trigger(place, "look-again");
  };
  const soon = () => (timer ||= setTimeout(look, Math.max(300, lookedAt + pause - Date.now())));
  document.addEventListener("session-changed", soon);
  document.addEventListener("look-again-at-all", soon);
  document.addEventListener("visibilitychange", soon);
  setInterval(soon, 10000);

  const patch = (old, fresh) => {
    if (old.isEqualNode(fresh)) return;
    const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
    const isAlike = before.length && before.length === after.length && old.cloneNode(false).isEqualNode(fresh.cloneNode(false));
    if (!isAlike) return void old.replaceWith(fresh);
    before.forEach((child, number) => patch(child, after[number]));
  };
  document.addEventListener("htmx:beforeSwap", ({ detail }) => {
    if (detail.elt !== place || !detail.shouldSwap) return;
    detail.shouldSwap = false;
    const fresh = place.cloneNode(false);
    fresh.innerHTML = detail.serverResponse;
    patch(place, fresh);
    show(shown);
  });
  const stale = (is) => ({ detail }) => detail.elt === place && (document.getElementById("wall-stale").hidden = !is);
  document.addEventListener("htmx:responseError", stale(true));
  document.addEventListener("htmx:sendError", stale(true));
  document.addEventListener("htmx:beforeSwap", ({ detail }) => detail.xhr.status === 200 && stale(false)({ detail }));

  // One agent is pointed to: its facts stand in the line, and what its owners hold has their colours everywhere.
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  const line = document.getElementById("wall-facts");
  const usual = line.textContent;
  let shown = "";
  const show = (id) => {
    const row = id ? document.getElementById(`facts-${id}`) : null;
    shown = row ? id : "";
    const facts = document.createElement("p");
    for (const cell of row?.querySelectorAll("th, td") ?? []) {
      const fact = document.createElement("span");
      Object.assign(fact.dataset, cell.dataset);
      fact.innerHTML = cell.innerHTML;
      facts.append(fact);
    }
    if (!row) facts.textContent = usual;
    if (facts.innerHTML !== line.innerHTML) line.replaceChildren(...facts.childNodes);
    const marks = new Set([...line.querySelectorAll("[data-who]")].map((one) => one.dataset.who));
    const rules = [...marks].map((mark) => `[data-who="${mark}"] { --who: hsl(${parseInt(mark, 16) % 360} 75% 60%); }`);
    sheet.replaceSync(row ? [`#${id} { outline: 2px solid var(--accent-text); }`, ...rules].join("\n") : "");
  };
  place.addEventListener("pointerover", ({ target }) => {
    const tile = target.closest(".tile");
    if (tile && tile.id !== shown) show(tile.id);
  });
  place.addEventListener("keydown", (event) => {
    if (event.target.id !== "wall-board") return;
    const tiles = [...place.querySelectorAll(".tile")];
    const columns = getComputedStyle(event.target).gridTemplateColumns.split(" ").length;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    if (event.key === "Escape") return show("");
    if (!step) return;
    event.preventDefault();
    const at = tiles.findIndex((tile) => tile.id === shown);
    show(tiles[at < 0 ? 0 : Math.max(0, Math.min(tiles.length - 1, at + step))].id);
  });

  // The line of events goes on by one, and begins again where it has shown all.
  setInterval(() => {
    const news = document.getElementById("wall-events");
    const next = [...news.querySelectorAll("li")].find((one) => one.offsetLeft - news.offsetLeft > news.scrollLeft + 1);
    const isOver = !next || news.scrollLeft + news.clientWidth >= news.scrollWidth - 1;
    news.scrollTo({ left: isOver ? 0 : next.offsetLeft - news.offsetLeft });
  }, 5000);

  const fill = document.getElementById("wall-fill");
  fill.hidden = !document.fullscreenEnabled;
  fill.addEventListener("click", () => (document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen()));

  // It is dark unless somebody has chosen light.
  const colour = () => (frame.dataset.bsTheme = document.documentElement.dataset.themeChoice === "light" ? "light" : "dark");
  document.documentElement.addEventListener("themechange", colour);
  colour();
})();

// @ts-check
// Renews rows of the list when their sessions change; many changes at once renew the list whole.
(() => {
  const ended = new Set(["TERMINATED", "CANCELLED", "ERROR"]);
  const waiting = new Set();
  const timers = new Map();
  const later = (name, delay, action) => {
    if (timers.has(name)) return;
    timers.set(name, setTimeout(() => { timers.delete(name); action(); }, delay));
  };
  // Events bubble: rows listen to another name than the list around them.
  const lookAgain = (element) => htmx.trigger(element, "look-again");
  const renewRow = (row) => htmx.trigger(row, "row-changed");
  const renewList = () => lookAgain(document.getElementById("session-list"));
  const renewResources = () => lookAgain(document.getElementById("resources"));
  const rowOf = (id) => document.querySelector(`[data-session="${CSS.escape(id)}"]`);

  const renewRows = () => {
    const rows = [...waiting].map(rowOf);
    waiting.clear();
    if (rows.length > 8 || rows.includes(null)) renewList();
    else rows.forEach(renewRow);
  };

  document.addEventListener("session-changed", ({ detail }) => {
    const row = rowOf(detail.id);
    if (row && Number(row.dataset.version) >= detail.version) return;
    waiting.add(detail.id);
    later("rows", 150, renewRows);
    later("resources", 800, renewResources);
    // The ended session stays in sight for a moment before it leaves the list of active ones.
    if (ended.has(detail.status)) later("list", 5000, renewList);
  });
  document.addEventListener("look-again-at-all", () => {
    renewList();
    renewResources();
  });

  // What running sessions use moves without any of them changing.
  const rowsInUse = () => [...document.querySelectorAll("[id^='use-']")].map((bars) => bars.id.slice("use-".length));
  setInterval(() => !document.hidden && rowsInUse().length && lookAgain(document.getElementById("session-uses")), 15000);

  // One menu of the list is open at a time, and none beside the one who has turned to something else.
  const shut = (but) => document.querySelectorAll("details.list-menu[open]").forEach((menu) => menu !== but && (menu.open = false));
  document.addEventListener("click", ({ target }) => shut(target.closest("details.list-menu")));
  document.addEventListener("keydown", ({ key }) => key === "Escape" && shut(null));

  // The list is renewed from the address that is shown, with its search and page; the field being typed in stays.
  document.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.elt.id === "session-uses") event.detail.path += `?${new URLSearchParams(rowsInUse().map((id) => ["session", id]))}`;
    if (event.detail.elt.id === "session-list") event.detail.path = location.pathname + location.search;
  });
})();

// @ts-check
// Keeps what the page of a run is scrolled to, and the link that has the keyboard, while its board is renewed.
(() => {
  const board = document.getElementById("run-board");
  const scrolled = () => [...board.querySelectorAll(".run-graph-scroll, .run-table, .run-grid")];
  const link = (href) => [...board.querySelectorAll("a[href]")].find((one) => one.getAttribute("href") === href);
  let places = [];
  let href = null;
  document.addEventListener("htmx:beforeSwap", ({ detail }) => {
    if (detail.target !== board) return;
    places = scrolled().map((one) => [one.scrollLeft, one.scrollTop]);
    const held = document.activeElement;
    href = board.contains(held) && !held.id ? held.getAttribute("href") : null;
  });
  document.addEventListener("htmx:afterSwap", ({ detail }) => {
    if (detail.target !== board) return;
    scrolled().forEach((one, turn) => places[turn] && one.scrollTo({ left: places[turn][0], top: places[turn][1], behavior: "instant" }));
    if (href) link(href)?.focus({ preventScroll: true });
  });
})();

// @ts-check
// The search of every page: Ctrl-K opens it, the arrow keys go through its hits, Enter follows the first one.
(() => {
  const works = (element) => element.closest(".xterm, .cm-editor, [contenteditable]"); // there Ctrl-K cuts a line
  document.addEventListener("keydown", (event) => {
    const isAsked = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k";
    const dialog = /** @type {HTMLDialogElement | null} */ (document.getElementById("search-dialog"));
    if (!isAsked || !dialog || works(event.target) || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    dialog.showModal();
    dialog.querySelector("input").select();
  });

  document.addEventListener("keydown", (event) => {
    const search = event.target.closest(".search-box");
    if (!search) return;
    const places = [search.querySelector("input"), ...search.querySelectorAll(".search-hit")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      const place = places.indexOf(event.target) + step;
      places[Math.max(0, Math.min(place, places.length - 1))].focus();
    } else if (event.key === "Enter" && event.target === places[0] && places[1] && !search.querySelector(".htmx-request")) {
      event.preventDefault();
      places[1].click();
    }
  });
})();

// @ts-check
// Keeps the queue fresh while nobody is about to change something in it.
(() => {
  let timer = null;
  const isBusy = (list) => list.contains(document.activeElement) || list.querySelector(".cell-choose input:checked");
  const renew = () => {
    timer = null;
    const list = document.getElementById("panel-list");
    if (document.hidden || isBusy(list)) return;
    htmx.ajax("GET", location.pathname + location.search, { target: list, swap: "innerHTML" });
  };
  const later = () => { timer ??= setTimeout(renew, 1500); };
  document.addEventListener("session-changed", later);
  document.addEventListener("look-again-at-all", later);
})();

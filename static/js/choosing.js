// @ts-check
// Choosing several rows of a list; a bar says how many they are and what can be done with them.
(() => {
  // What is chosen stays chosen while rows and the list are renewed; what has ended or left the list is not.
  const chosen = new Set();
  const boxes = () => [...document.querySelectorAll(".cell-choose input[name=session]")];
  const showChosen = () => {
    const bar = document.querySelector(".chosen-bar");
    if (!bar) return;
    const all = document.querySelector("[data-choose-all]");
    bar.hidden = !chosen.size;
    const keeps = bar.querySelector("[data-keeps]");
    if (keeps) keeps.hidden = !boxes().some((box) => box.checked && box.closest("tr").querySelector(".idle-sign"));
    bar.querySelector("[data-chosen]").textContent = chosen.size === 1 ? bar.dataset.one : bar.dataset.many.replace("%n", chosen.size);
    if (!all) return;
    all.checked = boxes().length > 0 && chosen.size === boxes().length;
    all.indeterminate = chosen.size > 0 && !all.checked;
  };
  const readChosen = () => {
    chosen.clear();
    boxes().filter((box) => box.checked).forEach((box) => chosen.add(box.value));
    showChosen();
  };
  const chooseAgain = () => {
    boxes().forEach((box) => (box.checked = chosen.has(box.value)));
    readChosen();
  };
  const chooseEach = (checked) => {
    boxes().forEach((box) => (box.checked = checked));
    readChosen();
  };
  document.addEventListener("change", ({ target }) => {
    if (target.matches("[data-choose-all]")) chooseEach(target.checked);
    else if (target.matches(".cell-choose input")) readChosen();
  });
  document.addEventListener("click", ({ target }) => target.closest("[data-choose-none]") && chooseEach(false));
  document.addEventListener("htmx:afterSettle", chooseAgain);
  addEventListener("pageshow", readChosen);
  // The list that one comes back to is the one that is shown now.
  document.addEventListener("submit", ({ target }) => {
    if (target.id === "chosen") target.elements.back.value = location.pathname + location.search;
  }, true);
})();

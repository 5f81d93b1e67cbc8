// @ts-check
// The recent launches: a name that is opened for change is ready to be typed over, and the keyboard stays where it was
// when the list is renewed.
(() => {
  const list = () => document.getElementById("recent-list");

  document.addEventListener("toggle", ({ target }) => {
    if (target.matches(".recent-rename") && target.open) {
      for (const other of list().querySelectorAll(".recent-rename[open]")) other.open = other === target;
      target.querySelector("[name=name]").select();
    }
  }, true);
  document.addEventListener("keydown", (event) => {
    const open = event.key === "Escape" && event.target.closest?.(".recent-rename[open]");
    if (!open) return;
    event.preventDefault();
    open.open = false;
    open.querySelector("summary").focus();
  });

  let last = "";
  document.addEventListener("htmx:beforeRequest", ({ target }) => {
    if (list()?.contains(target)) last = (target.querySelector("[id]") ?? target.parentElement.querySelector("summary"))?.id ?? "";
  });
  document.addEventListener("htmx:afterSettle", ({ target }) => {
    if (target.id !== "recent-list" || !last) return;
    const wrong = target.querySelector("[aria-invalid]");
    (wrong ?? document.getElementById(last) ?? target.querySelector("a, button") ?? target.closest("dialog")?.querySelector("[data-close]"))?.focus();
    last = "";
  });
})();

// @ts-check
// Roles of kernels: rows that come and go. Without this, the page brings an empty one.
document.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("roles");
  if (!place) return;
  const MOST = 16;
  const add = place.querySelector(":scope > [data-add]");
  const rows = () => [...place.querySelectorAll("[data-role]")];
  const inputs = (row) => [...row.querySelectorAll("[name^='roles.']")];
  const blank = rows().at(-1).cloneNode(true);
  for (const input of inputs(blank)) input.value = "";
  if (inputs(rows().at(-1)).every((input) => !input.value.trim())) rows().at(-1).remove();
  const number = () => {
    rows().forEach((row, at) => {
      const legend = row.querySelector("legend");
      legend.textContent = legend.textContent.replace(/\d+/, at + 1);
      for (const input of inputs(row)) {
        const id = `role-${at}-${input.name.slice("roles.".length)}`;
        row.querySelector(`[for="${input.id}"]`)?.setAttribute("for", id);
        input.id = id;
      }
    });
    add.disabled = rows().length >= MOST;
  };
  const changed = () => place.dispatchEvent(new Event("input", { bubbles: true }));
  add.addEventListener("click", () => {
    const row = blank.cloneNode(true);
    add.before(row);
    number();
    inputs(row)[0].focus();
  });
  place.addEventListener("click", ({ target }) => {
    const row = target.closest("[data-remove]")?.closest("[data-role]");
    if (!row) return;
    row.remove();
    number();
    add.focus();
    changed();
  });
  number();
});

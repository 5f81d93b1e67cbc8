// @ts-check
// Hides the fields of parameters that are not asked for: data-show-if has the answers of other fields that they need.
(() => {
  const answer = (form, name) => form.elements.namedItem(name)?.value ?? "";
  const look = (form) => {
    for (const field of form.querySelectorAll("[data-show-if]")) {
      const wanted = Object.entries(JSON.parse(field.dataset.showIf));
      field.closest(".field").hidden = !wanted.every(([name, value]) => answer(form, name) === value);
    }
  };
  for (const form of document.querySelectorAll("form:has([data-show-if])")) {
    form.addEventListener("input", () => look(form));
    look(form);
  }
})();

// @ts-check
// What a template locks: texts are read-only, and of choices the chosen one alone can be sent. Looked at again when a
// part of the form is renewed, which brings its inputs anew.
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("launch");
  const names = JSON.parse(form.dataset.locked);
  const mark = document.getElementById("locked-mark");
  const whole = new Set(names.filter((name) => !name.endsWith(".") && !name.includes("=")));
  const begins = names.filter((name) => name.endsWith("."));
  const variables = new Set(names.filter((name) => name.startsWith("environ=")).map((name) => name.slice("environ=".length)));
  const isLocked = (input) => {
    const name = input.name || input.id;
    if (whole.has(name) || begins.some((one) => name.startsWith(one))) return true;
    const row = input.closest("[data-variable]");
    return Boolean(row) && variables.has(row.querySelector("[name='environ.name']").value);
  };
  const keep = (event) => event.preventDefault();
  const lock = (input) => {
    if (input.matches("select")) for (const option of input.options) option.disabled = !option.selected;
    else if (input.matches("[type=radio], [type=checkbox]")) {
      input.disabled = !input.checked;
      input.addEventListener("click", keep);
    } else if (input.matches("[type=file]")) input.disabled = true;
    else input.readOnly = true;
    for (const beside of input.closest(".amount")?.querySelectorAll("[type=range], [role=switch]") ?? []) beside.disabled = true;
    for (const button of input.closest("[data-variable], [data-file], #matrix")?.querySelectorAll("[data-remove], [data-add]") ?? []) button.hidden = true;
    const label = input.closest(".field, fieldset")?.querySelector(".form-label");
    if (label && !label.querySelector(".locked-mark")) label.append(mark.content.cloneNode(true));
  };
  const look = () => {
    for (const input of form.querySelectorAll("input:not([type=hidden], [type=range]), select, textarea")) if (isLocked(input)) lock(input);
    if (begins.includes("environ.")) form.querySelector("#variables [data-add]").hidden = true;
  };
  look();
  document.addEventListener("htmx:afterSettle", look);
});

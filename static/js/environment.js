// The environment on the launch form: its variables come and go.
document.addEventListener("DOMContentLoaded", () => new VariableRows(document.getElementById("variables")));

// Rows of a name and a value. Without this, the page brings a few empty ones.
class VariableRows {
  constructor(place) {
    this.place = place;
    this.blank = this.rows().at(-1).cloneNode(true);
    this.rows().filter((row) => this.isEmpty(row)).slice(1).forEach((row) => row.remove());
    place.addEventListener("click", (event) => {
      if (event.target.closest("[data-add]")) this.add();
      const remove = event.target.closest("[data-remove]");
      if (remove) this.remove(remove.closest("[data-variable]"));
    });
  }
  rows() {
    return [...this.place.querySelectorAll("[data-variable]")];
  }
  isEmpty(row) {
    return [...row.querySelectorAll("input")].every((input) => !input.value);
  }
  add() {
    const row = this.blank.cloneNode(true);
    this.place.querySelector("[data-add]").before(row);
    this.number();
    row.querySelector("input").focus();
  }
  remove(row) {
    const next = row.nextElementSibling;
    row.remove();
    if (!this.rows().length) this.add();
    this.number();
    (next.matches("[data-variable]") ? next.querySelector("[data-remove]") : this.place.querySelector("[data-add]")).focus();
  }
  number() {
    this.rows().forEach((row, index) => {
      for (const part of row.querySelectorAll("[aria-label]")) {
        part.setAttribute("aria-label", part.getAttribute("aria-label").replace(/\d+$/, index + 1));
      }
    });
  }
}

// @ts-check
// What is wrong with the launch form, at the fields that it is about: the line at the foot and the review bring the same
// list. A field says nothing while somebody types in it, nor for being empty before somebody was there.
class Faults {
  static PAUSE = 1000; // milliseconds without a key after which a field counts as left

  constructor(form, told) {
    this.form = form;
    this.told = told; // what to do when the shown faults change
    this.list = [];
    this.visited = new WeakSet();
    this.fresh = new WeakSet(); // what another type of session has brought: nobody has seen it empty yet
    this.typing = null;
    this.mine = [...form.querySelectorAll(".step .invalid-feedback")];
    this.marked = [...form.querySelectorAll(".step [aria-invalid]")];
    this.all = this.mine.length > 0; // the page has told them all already
    form.addEventListener("input", ({ target }) => this.type(this.placeOf(target)));
    form.addEventListener("change", ({ target }) => {
      this.visited.add(this.placeOf(target));
      if (target.name === "session_type") this.begin();
    });
    form.addEventListener("focusout", ({ target, relatedTarget }) => this.leave(this.placeOf(target), relatedTarget));
    addEventListener("pointerdown", ({ button }) => (this.pressed = button === 0), true);
    for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => this.release(), true);
  }
  // What the portal says now; ``all`` also what nobody has come to yet.
  take(template, all = false) {
    this.list = [...(template?.content.children ?? [])].map((each) => ({
      name: each.dataset.fault, row: each.dataset.row, part: each.dataset.part, step: each.dataset.step, html: each.innerHTML,
    }));
    this.all ||= all;
    if (all) this.fresh = new WeakSet();
    this.show();
  }
  // The fields of the chosen type appear.
  begin() {
    for (const place of this.form.querySelectorAll(".batch-only .field")) {
      this.visited.delete(place);
      this.fresh.add(place);
    }
    this.show();
  }
  get signature() {
    return JSON.stringify(this.list.map(({ name, row, part, html }) => [name, row, part, html]));
  }
  get any() {
    return this.list.length > 0;
  }
  // The fields of a step that was left count as visited.
  pass(step) {
    for (const place of step.querySelectorAll(".field, .variable")) this.visited.add(place);
    this.show();
  }
  placeOf(element) {
    return element.closest(".variable, .field, [data-wish]") ?? element;
  }
  type(place) {
    this.typing = place;
    clearTimeout(this.pause);
    this.pause = setTimeout(() => this.left(place), Faults.PAUSE);
  }
  leave(place, next) {
    if (place.contains(next)) return;
    this.left(place);
  }
  left(place) {
    this.visited.add(place);
    if (this.typing === place) this.typing = null;
    this.show();
  }
  fieldOf({ name, row, part = "name" }) {
    const plain = CSS.escape(name);
    if (row !== undefined) return this.form.querySelectorAll(`[name="${plain}.${part}"]`)[row];
    return document.getElementById(`id_${name}`) ?? this.form.querySelector(`[name="${plain}"], [name^="${plain}."]`);
  }
  // Leads there, into the part that is missing.
  lead(fault) {
    const field = this.fieldOf(fault);
    if (!field) return;
    const [name, value] = fault.row === undefined ? [] : field.parentElement.querySelectorAll("input");
    const folded = field.closest("details");
    if (folded) folded.open = true;
    (name?.value && !value.value ? value : (document.getElementById(field.dataset.standIn) ?? field)).focus();
  }
  isSaid(fault, before) {
    const field = this.fieldOf(fault);
    if (!field) return true;
    const place = this.placeOf(field);
    if (place === this.typing) return before.has(place);
    if (this.fresh.has(place) && !field.value?.trim()) return this.visited.has(place);
    if (this.all || field.value?.trim() || field.matches("[type=radio], [type=checkbox], [type=file]")) return true;
    return this.visited.has(place);
  }
  // The click comes after this event.
  release() {
    this.pressed = false;
    if (this.late) setTimeout(() => this.show());
  }
  // A fault that comes or goes moves what is below: during a press the button would leave the pointer, and lose its click.
  show() {
    this.late = this.pressed;
    if (this.late) return;
    const before = new Set(this.mine.filter((each) => each.isConnected).map((each) => this.placeOf(each)));
    this.clear();
    const said = this.list.filter((fault) => this.isSaid(fault, before));
    for (const fault of said) this.add(fault);
    this.told(new Set(said.map(({ step }) => step)));
    this.form.dispatchEvent(new CustomEvent("launch:faults"));
  }
  clear() {
    for (const old of this.mine) old.remove();
    for (const field of this.marked) {
      field.removeAttribute("aria-invalid");
      field.classList.remove("is-invalid");
      this.describe(field, (ids) => ids.filter((id) => !id.endsWith("_error")));
    }
    this.mine = [];
    this.marked = [];
  }
  // Of a field with rows, the row that is meant has its number.
  add(fault) {
    const { name, row, part = "", html } = fault;
    const field = this.fieldOf(fault);
    const place = row ? field?.parentElement : field?.closest(".field");
    if (!place) return;
    // The note of an amount says it already, in words of its own.
    if (!this.all && place.querySelector(".amount-note.tone-bad:not([hidden])")) return;
    const id = row ? `id_${name}_${row}${part}_error` : `id_${name}_error`;
    /** @type {HTMLElement} */
    let said = document.getElementById(id);
    if (!said) {
      said = Object.assign(document.createElement("div"), { id, className: "invalid-feedback" });
      place.append(said);
      this.mine.push(said);
    }
    said.append(Object.assign(document.createElement("div"), { innerHTML: html }));
    for (const shown of [field, document.getElementById(field.dataset.standIn)]) {
      if (!shown) continue;
      shown.setAttribute("aria-invalid", "true");
      if (shown.matches(".form-control, .form-select")) shown.classList.add("is-invalid");
      this.describe(shown, (ids) => [...ids.filter((each) => each !== id), id]);
      this.marked.push(shown);
    }
  }
  describe(field, change) {
    const ids = change((field.getAttribute("aria-describedby") ?? "").split(" ").filter(Boolean));
    if (ids.length) field.setAttribute("aria-describedby", ids.join(" "));
    else field.removeAttribute("aria-describedby");
  }
}

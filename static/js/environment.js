// @ts-check
// The environment on the launch form: an environment and its version instead of one long list, a name that is typed
// instead of both, and variables that come and go.
document.addEventListener("DOMContentLoaded", () => {
  new VariableRows(document.getElementById("variables"));
  const place = document.getElementById("environment-choice");
  const typed = document.querySelector("[name=manual_image]");
  const give = () => {
    place.querySelector("fieldset").disabled = Boolean(typed?.value.trim());
    const cards = document.getElementById("environment-cards");
    if (!cards) return;
    // Where nothing can be chosen, the keyboard can still scroll.
    if (cards.querySelector("input:enabled")) cards.removeAttribute("tabindex");
    else cards.tabIndex = 0;
  };
  let sought = "";
  const renew = () => {
    if (document.getElementById("environment-pick")) new EnvironmentPick(place, sought);
    give();
  };
  // Another group renews the environments, not what was sought among them.
  place.addEventListener("htmx:beforeSwap", () => {
    sought = document.getElementById("environment-filter")?.value ?? "";
  });
  renew();
  place.addEventListener("htmx:afterSwap", renew);
  typed?.addEventListener("input", give);
  addEventListener("pageshow", renew);
});

// Cards of environments with a search, and a list of the versions of the chosen one. The long list that the form brings
// stays what is sent: both only choose in it.
class EnvironmentPick {
  constructor(place, sought) {
    const find = (id) => place.querySelector(`#${id}`);
    this.list = find("id_image");
    this.cards = find("environment-cards");
    this.version = find("version");
    this.field = find("version-field");
    this.badges = find("version-badges");
    this.obstacle = find("version-obstacle");
    this.count = find("environment-count");
    this.cards.onchange = ({ target }) => {
      const first = [...this.groupOf(target.value).children].find((option) => !option.disabled);
      if (first) this.choose(first.value);
    };
    this.version.onchange = () => this.choose(this.version.value);
    this.list.onchange = () => this.show();
    const search = find("environment-filter");
    if (search) search.oninput = () => this.narrow(search.value);
    if (search) search.onkeydown = (event) => this.leave(event);
    if (search && sought) {
      search.value = sought;
      this.narrow(sought);
    }
    this.show();
    const chosen = this.cards.querySelector(":checked")?.closest("label");
    if (chosen) this.cards.scrollTop = chosen.offsetTop - this.cards.offsetTop - 2;
  }
  groupOf(key) {
    return this.list.querySelector(`optgroup[data-key="${CSS.escape(key)}"]`);
  }
  choose(name) {
    if (this.list.value === name) return;
    this.list.value = name;
    this.list.dispatchEvent(new Event("input", { bubbles: true }));
    this.list.dispatchEvent(new Event("change", { bubbles: true }));
  }
  show() {
    const chosen = this.list.selectedOptions[0];
    const group = chosen?.closest("optgroup");
    for (const radio of this.cards.querySelectorAll("input")) {
      radio.checked = radio.value === group?.dataset.key;
    }
    this.version.replaceChildren(...[...(group?.children ?? [])].map((option) => {
      const version = option.cloneNode(true);
      const { text, obstacle } = option.dataset; // beside its environment's name it need not be told again
      version.textContent = obstacle ? `${text} (${obstacle})` : text;
      return version;
    }));
    this.version.value = chosen?.value ?? "";
    const several = this.version.options.length > 1;
    this.field.hidden = !several && !chosen?.dataset.obstacle;
    for (const part of this.field.querySelectorAll("label, select, .badges")) part.hidden = !several;
    const names = chosen ? [chosen.dataset.name, ...JSON.parse(chosen.dataset.badges)] : [];
    this.badges.replaceChildren(...names.map((text) => Object.assign(document.createElement("span"), { className: "badge", textContent: text })));
    this.obstacle.textContent = chosen?.dataset.obstacle ?? "";
  }
  narrow(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    let number = 0;
    for (const card of this.cards.children) {
      card.hidden = !words.every((word) => card.dataset.words.includes(word));
      number += Number(!card.hidden);
    }
    this.count.textContent = words.length ? this.count.dataset.found.replace("{number}", number) : "";
  }
  // Enter takes the only one that is left, the arrow goes into the list; neither sends the form.
  leave(event) {
    if (event.key !== "ArrowDown" && event.key !== "Enter") return;
    event.preventDefault();
    const left = [...this.cards.querySelectorAll("label:not([hidden]) input:enabled")];
    if (event.key === "ArrowDown") (left.find((radio) => radio.checked) ?? left[0])?.focus();
    else if (left.length === 1) left[0].click();
  }
}

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

// The launch form: a preset shows its numbers in the chosen group, touching a number means custom, variables come and go,
// and a change with which the session would start now is filled in.
document.addEventListener("alpine:init", () => {
  Alpine.data("launch", () => ({
    init() {
      this.$root.querySelector("[name=time_zone]").value = Intl.DateTimeFormat().resolvedOptions().timeZone;
      new VariableRows(document.getElementById("variables"));
      this.chooseGroup();
      document.getElementById("presets").addEventListener("htmx:afterSwap", () => this.chooseGroup());
      const outlook = document.getElementById("launch-outlook");
      outlook.addEventListener("click", ({ target }) => {
        const button = target.closest("[data-fill]");
        if (button) this.fill(JSON.parse(button.dataset.fill));
      });
      // What is free changes without a key being pressed, and an old answer may be wrong by now.
      const ask = () => document.hidden || htmx.trigger(outlook, "look-again");
      setInterval(ask, 15000);
      document.addEventListener("visibilitychange", ask);
      for (const name of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
        outlook.addEventListener(name, () => {
          told = "";
          outlook.replaceChildren(document.getElementById("outlook-unknown").content.cloneNode(true));
        });
      }
      let told = "";
      outlook.addEventListener("htmx:beforeSwap", ({ detail }) => {
        // The same again would only be read out again.
        if (detail.serverResponse === told) detail.shouldSwap = false;
        told = detail.serverResponse;
      });
    },
    // Another group keeps the amounts, also where the preset means others there.
    fill(changes) {
      const amounts = this.numbers().map((input) => [input, input.value]);
      const { resource_group: group } = changes;
      const place = this.$root.querySelector("[name=resource_group]");
      if (group) {
        place.value = group;
        this.chooseGroup();
      }
      for (const [input, value] of amounts) {
        const wanted = changes[input.name] ?? value;
        if (input.value !== wanted || input.name in changes) this.typed();
        input.value = wanted;
      }
      const first = group ? place : this.numbers().find((input) => input.name in changes);
      first.focus();
      first.dispatchEvent(new Event("input", { bubbles: true }));
    },
    numbers() {
      return [...this.$root.querySelectorAll("[name=cpu], [name=mem], [name^='slot.']")];
    },
    chooseGroup() {
      for (const radio of this.$root.querySelectorAll("[name=preset]:not([value=''])")) {
        const shown = this.variantOf(radio);
        for (const each of radio.parentElement.querySelectorAll("[data-group]")) each.hidden = each !== shown;
        radio.disabled = !shown;
        radio.parentElement.hidden = !shown;
      }
      const chosen = this.$root.querySelector("[name=preset]:checked");
      if (chosen?.disabled) this.typed();
      else this.choosePreset();
    },
    choosePreset() {
      const chosen = this.$root.querySelector("[name=preset]:checked");
      if (!chosen?.value) return;
      const amounts = JSON.parse(this.variantOf(chosen).dataset.amounts);
      for (const input of this.numbers()) {
        input.value = amounts[input.name.replace("slot.", "")] ?? "";
      }
    },
    typed() {
      document.getElementById("preset-custom").checked = true;
    },
    variantOf(radio) {
      const group = this.$root.querySelector("[name=resource_group]").value;
      const of = (name) => radio.parentElement.querySelector(`[data-group="${CSS.escape(name)}"]`);
      return of(group) || of("");
    },
  }));
});

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

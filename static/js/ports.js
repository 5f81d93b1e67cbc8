// @ts-check
// The ports to open as tags: a comma, a space or Enter adds one, several can be pasted, each can be edited and removed.
// The field that the page brings stays what is sent.
document.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("ports");
  if (place) new PortTags(place, document.getElementById("id_preopen_ports"));
});

class PortTags {
  constructor(place, field) {
    this.words = place.dataset;
    this.field = field;
    /** @type {HTMLElement} */
    this.list = Object.assign(document.createElement("ul"), { className: "tags" });
    this.entry = Object.assign(document.createElement("input"), { id: "ports-entry", className: "form-control tag-entry", autocomplete: "off", inputMode: "numeric", placeholder: field.placeholder });
    this.entry.setAttribute("form", "");
    this.entry.setAttribute("aria-describedby", "id_preopen_ports_help ports-faults");
    this.faults = Object.assign(document.createElement("div"), { id: "ports-faults", className: "port-faults" });
    this.faults.setAttribute("role", "status");
    document.querySelector("label[for=id_preopen_ports]").htmlFor = this.entry.id;
    field.hidden = true;
    field.dataset.standIn = this.entry.id;
    field.after(this.list, this.entry, this.faults);
    this.entry.addEventListener("input", () => /[\s,]/.test(this.entry.value) && this.take(true));
    this.entry.addEventListener("paste", () => setTimeout(() => this.take()));
    this.entry.addEventListener("blur", () => this.take());
    this.entry.addEventListener("keydown", (event) => this.press(event));
    this.list.addEventListener("click", ({ target }) => {
      const button = target.closest("button");
      if (button) this[button.dataset.action](this.indexOf(button));
    });
    this.list.addEventListener("keydown", (event) => {
      if (event.key !== "Delete" && event.key !== "Backspace") return;
      event.preventDefault();
      this.remove(this.indexOf(event.target));
    });
    field.form.addEventListener("launch:filled", () => this.draw());
    this.draw();
  }
  ports() {
    return this.field.value.split(/[\s,]+/).filter(Boolean);
  }
  indexOf(element) {
    return [...this.list.children].indexOf(element.closest("li"));
  }
  // While one types, the last word may not be whole yet.
  take(isTyping = false) {
    const words = this.entry.value.split(/[\s,]+/);
    const rest = isTyping ? words.pop() : "";
    const added = words.filter(Boolean);
    this.entry.value = rest;
    if (added.length) this.put([...this.ports(), ...added]);
  }
  press(event) {
    if (event.key === "Enter" && this.entry.value.trim()) {
      event.preventDefault();
      this.take();
    } else if (event.key === "Backspace" && !this.entry.value && this.ports().length) {
      event.preventDefault();
      this.edit(this.ports().length - 1);
    }
  }
  put(ports) {
    this.field.value = ports.join(", ");
    this.field.dispatchEvent(new Event("input", { bubbles: true }));
    this.field.dispatchEvent(new Event("change", { bubbles: true }));
    this.draw();
  }
  edit(index) {
    this.take(); // what was being typed comes last, so the number stays
    const ports = this.ports();
    const [port] = ports.splice(index, 1);
    this.put(ports);
    this.entry.value = port;
    this.entry.focus();
    this.entry.select();
  }
  remove(index) {
    this.put(this.ports().filter((_, each) => each !== index));
    const next = this.list.children[Math.min(index, this.list.children.length - 1)];
    (next?.querySelector("[data-action=remove]") ?? this.entry).focus();
  }
  draw() {
    const ports = this.ports();
    const reasons = ports.map((port, index) => this.reason(port, ports.slice(0, index)));
    this.list.replaceChildren(...ports.map((port, index) => this.tag(port, reasons[index])));
    this.faults.replaceChildren(...reasons.filter(Boolean).map((text) => Object.assign(document.createElement("div"), { textContent: text })));
    this.entry.toggleAttribute("aria-invalid", false);
    if (reasons.some(Boolean)) this.entry.setAttribute("aria-invalid", "true");
  }
  tag(port, reason) {
    const item = Object.assign(document.createElement("li"), { className: reason ? "tag is-wrong" : "tag", title: reason });
    for (const [action, text] of [["edit", port], ["remove", "×"]]) {
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: text });
      button.dataset.action = action;
      button.setAttribute("aria-label", this.say(action, port) + (reason && action === "edit" ? `: ${reason}` : ""));
      item.append(button);
    }
    return item;
  }
  reason(port, before) {
    if (!/^\d{1,5}$/.test(port)) return this.say("notAPort", port);
    const { least, largest, reserved, most } = this.words;
    if (Number(port) < Number(least) || Number(port) > Number(largest)) return this.say("outOfRange", port);
    if (reserved.split(" ").includes(port)) return this.say("ofPlatform", port);
    if (before.some((other) => Number(other) === Number(port))) return this.say("twice", port);
    return before.length >= Number(most) ? this.say("tooMany", port) : "";
  }
  // What was typed keeps its direction to itself, whatever it is.
  say(what, port) {
    const kept = /^[ -~]*$/.test(port) ? port : `\u2068${port.replace(/[\u2066-\u2069]/g, "")}\u2069`;
    return this.words[what].replace("{port}", () => kept);
  }
}

// @ts-check
// The amounts on the launch form: number and slider say the same, notes tell what is wrong or waits, a preset shows its
// numbers in the chosen group, touching a number means custom, and a change with which the session would start now is
// filled in. Every sentence and every bound comes from the page.
const UNITS = { "": 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40, p: 2 ** 50 };
const SIZE = /^([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([kmgtp]?)(?:i?b)?$/i;
const NUMBER = /^([0-9]+(?:\.[0-9]*)?|\.[0-9]+)$/;

/** @type {[string, number][]} */
const NAMED_UNITS = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20]];

function sizeText(bytes) {
  const [name, unit] = NAMED_UNITS.find(([, each]) => bytes >= each) ?? NAMED_UNITS[2];
  return `${+(bytes / unit).toFixed(2)} ${name}`;
}

// One amount: its number, the unit beside it, its slider and its notes.
class Amount {
  constructor(root) {
    this.root = root;
    this.slot = root.dataset.amount;
    this.input = root.querySelector("input[type=text]");
    this.unit = root.querySelector("select");
    this.range = root.querySelector("input[type=range]");
    this.slider = root.querySelector(".slider");
  }
  get facts() {
    return this.root.querySelector(".amount-facts").dataset;
  }
  bound(name) {
    return this.facts[name] ? Number(this.facts[name]) : null;
  }
  get end() {
    return this.bound("end") ?? (this.unit ? 64 * UNITS.g : 16);
  }
  get slide() {
    return this.bound("slide") ?? (this.unit ? 64 * UNITS.m : 1);
  }
  get isOffered() {
    return "offered" in this.facts;
  }
  get isRequired() {
    return "required" in this.facts;
  }
  // Null for what cannot be read; nothing typed is zero.
  get value() {
    const text = this.input.value.trim();
    if (!text) return 0;
    if (!this.unit) return NUMBER.test(text) ? Number(text) : null;
    const size = SIZE.exec(text);
    return size && Math.round(Number(size[1]) * UNITS[size[2].toLowerCase() || this.unit.value]);
  }
  text(value) {
    return this.unit ? sizeText(value) : String(value);
  }
  // A size keeps its amount whatever its unit: 4g is shown as 4 with GiB beside it.
  take(typed) {
    const size = this.unit && SIZE.exec(String(typed).trim());
    if (size?.[2] && size[2].toLowerCase() in { m: 1, g: 1, t: 1 }) {
      this.unit.value = size[2].toLowerCase();
      this.input.value = size[1];
    } else if (size && Number(size[1]) >= UNITS.m) {
      this.write(Number(size[1]));
    } else {
      this.input.value = typed;
    }
  }
  write(value) {
    if (!this.unit) {
      this.input.value = +value.toFixed(3);
      return;
    }
    this.unit.value = value >= UNITS.t && value % UNITS.t === 0 ? "t" : value >= UNITS.g ? "g" : "m";
    this.input.value = +(value / UNITS[this.unit.value]).toFixed(4);
  }
  slid() {
    const [least, most] = [this.bound("minimum") ?? 0, this.bound("maximum") ?? Infinity];
    this.write(Math.max(Math.min(Number(this.range.value) * this.slide, most), least));
  }
  // What is wrong: unreadable, below, above or between two steps; or only that it will wait.
  /** @returns {string} */
  get objection() {
    const { value } = this;
    if (!this.isOffered) return "";
    if (value === null) return "unreadable";
    const [most, now, step] = ["maximum", "remaining", "step"].map((name) => this.bound(name));
    if (value < (this.bound("minimum") ?? 0)) return "below";
    if (most !== null && value > most) return "above";
    if (step && Math.abs(value / step - Math.round(value / step)) > 1e-6) return "step";
    return now !== null && value > now ? "queue" : "";
  }
  show() {
    this.root.hidden = !this.isOffered;
    const { value, end, slide, objection } = this;
    this.range.max = Math.max(1, Math.ceil(end / slide - 1e-9));
    this.range.value = Math.round((value ?? 0) / slide);
    this.range.setAttribute("aria-valuetext", this.text(value ?? 0));
    for (const [mark, name] of [["is-minimum", "minimum"], ["is-now", "remaining"], ["is-maximum", "maximum"]]) {
      const element = this.slider.querySelector(`.slide-mark.${mark}`);
      const at = this.bound(name);
      element.hidden = at === null;
      element.style.setProperty("--at", Math.min(1, (at ?? 0) / end));
    }
    this.slider.style.setProperty("--at", Math.min(1, (value ?? 0) / end));
    this.say(objection, objection && objection !== "queue");
  }
  say(when, isWrong) {
    const refused = this.root.querySelector(".invalid-feedback");
    for (const note of this.root.querySelectorAll("[data-when]")) {
      const hidden = note.dataset.when !== when || Boolean(refused);
      if (note.hidden !== hidden) note.hidden = hidden;
    }
    if (refused) return;
    this.input.classList.toggle("is-invalid", Boolean(isWrong));
    if (isWrong) this.input.setAttribute("aria-invalid", "true");
    else this.input.removeAttribute("aria-invalid");
  }
  // What the portal has refused is no news any more once it was changed.
  touched() {
    this.root.querySelector(".invalid-feedback")?.remove();
  }
}

// Shared memory is a part of the memory, and empty means as much as comes with it.
class SharedMemory extends Amount {
  constructor(root, memory) {
    super(root);
    this.memory = memory;
    this.automatic = document.getElementById("shm-automatic");
    this.split = document.getElementById("memory-split");
    this.automatic.addEventListener("input", () => {
      if (this.automatic.checked) this.input.value = "";
      else this.write(this.usual);
    });
  }
  get isOffered() {
    return true;
  }
  get usual() {
    const memory = this.memory.value ?? 0;
    const [, shm] = JSON.parse(this.facts.usual).find(([least]) => memory >= least);
    return Math.min(shm, Math.floor(memory / 2));
  }
  get bytes() {
    return this.value || this.usual;
  }
  bound(name) {
    return { minimum: 64 * UNITS.m, end: this.memory.value || UNITS.g, slide: 64 * UNITS.m, step: 1 }[name] ?? null;
  }
  get objection() {
    const memory = this.memory.value;
    if (this.value === null) return "unreadable";
    if (!memory) return "";
    if (this.bytes >= memory) return "above";
    return memory - this.bytes < 2 * this.bytes ? "tight" : "";
  }
  show() {
    const isAutomatic = !this.input.value.trim();
    this.automatic.checked = isAutomatic;
    this.root.classList.toggle("is-automatic", isAutomatic);
    super.show();
    if (isAutomatic) this.range.value = Math.round(this.usual / this.slide);
    const told = this.root.querySelector("[data-automatic]");
    if (told) told.textContent = sizeText(this.usual);
    this.say(this.objection, ["unreadable", "above"].includes(this.objection));
    const memory = this.memory.value ?? 0;
    const own = Math.max(0, memory - this.bytes);
    this.split.style.setProperty("--own", memory ? own / memory : 0);
    this.split.querySelector("[data-own]").textContent = sizeText(own);
    this.split.querySelector("[data-shared]").textContent = sizeText(Math.min(this.bytes, memory));
  }
}

// Kinds of accelerators: one at a time, of those that the group has and the environment can use.
class Accelerators {
  constructor(amounts, dropped) {
    this.amounts = amounts;
    this.dropped = dropped;
    this.select = document.getElementById("accelerator-type");
    this.select.addEventListener("change", () => {
      for (const each of this.amounts) {
        if (each.slot !== this.select.value) each.input.value = "";
        else if (!each.value) each.write(Math.max(each.bound("minimum") ?? 0, each.slide));
      }
    });
  }
  show() {
    const offered = this.amounts.filter((each) => each.isOffered);
    const gone = this.amounts.filter((each) => !each.isOffered && each.input.value);
    for (const each of gone) each.input.value = "";
    if (gone.length) this.dropped();
    const used = offered.find((each) => each.input.value.trim() && each.value !== 0);
    const chosen = (used ?? offered.find((each) => each.isRequired))?.slot ?? "";
    const isRequired = offered.some((each) => each.isRequired);
    this.select.hidden = offered.length < 2;
    this.select.replaceChildren(
      ...(isRequired ? [] : [new Option(this.select.dataset.none, "")]),
      ...offered.map((each) => new Option(each.root.querySelector("label").textContent, each.slot)),
    );
    this.select.value = chosen;
    for (const each of offered) {
      each.show();
      each.root.hidden = offered.length > 1 && each.slot !== chosen && !each.value;
    }
    for (const each of this.amounts) if (!each.isOffered) each.root.hidden = true;
  }
}

document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("launch");
  const presets = document.getElementById("presets");
  const outlook = document.getElementById("launch-outlook");
  const find = (name) => form.querySelector(`[name="${name}"]`);
  const lookAgain = () => document.hidden || htmx.trigger(presets, "look-again");
  const ask = () => {
    if (document.hidden) return;
    htmx.trigger(outlook, "look-again");
    lookAgain();
  };
  const chosen = () => form.querySelector("[name=preset]:checked");
  const typed = () => {
    const custom = document.getElementById("preset-custom");
    if (custom) custom.checked = true;
  };
  const roots = [...form.querySelectorAll("[data-amount]")];
  const amounts = roots.filter((root) => root.dataset.amount !== "shm").map((root) => new Amount(root));
  const memory = amounts.find((each) => each.slot === "mem");
  const shm = new SharedMemory(roots.find((root) => root.dataset.amount === "shm"), memory);
  const accelerators = new Accelerators(amounts.filter((each) => !["cpu", "mem"].includes(each.slot)), ask);
  const all = [...amounts, shm];
  const amountOf = (element) => all.find((each) => each.root.contains(element));

  const [count, countReason] = [find("count"), document.getElementById("count-of-cluster")];
  const [roles, commandIn] = [form.querySelector("details.roles"), document.getElementById("command-in")];
  const showAll = () => {
    for (const each of amounts) if (["cpu", "mem"].includes(each.slot)) each.show();
    shm.show();
    accelerators.show();
    const several = Number(find("cluster_size").value) > 1;
    if (find("agents")) find("agents").disabled = several;
    count.disabled = several;
    if (!several && !count.value) count.value = "1";
    countReason.hidden = !several;
    commandIn.hidden = !several && !roles.open;
    const described = new Set((count.getAttribute("aria-describedby") ?? "").split(" ").filter(Boolean));
    described[several ? "add" : "delete"](countReason.id);
    count.setAttribute("aria-describedby", [...described].join(" "));
  };

  const variantOf = (radio) => {
    const of = (name) => radio.parentElement.querySelector(`[data-group="${CSS.escape(name)}"]`);
    return of(find("resource_group").value) || of("");
  };
  const choosePreset = () => {
    const variant = chosen()?.value && variantOf(chosen());
    if (variant) {
      const wanted = JSON.parse(variant.dataset.amounts);
      for (const each of all) each.take(wanted[each.slot] ?? "");
    }
    showAll();
  };
  // What the group does not have becomes an amount of one's own; where only presets are offered, the first that fits.
  const leavePreset = () => {
    const open = [...presets.querySelectorAll("[name=preset]:enabled")];
    const other = document.getElementById("preset-custom") ?? open.find((radio) => !radio.closest(".is-unfit")) ?? open[0];
    if (other) other.checked = true;
  };
  const chooseGroup = () => {
    for (const radio of form.querySelectorAll("[name=preset]:not([value=''])")) {
      const shown = variantOf(radio);
      for (const each of radio.parentElement.querySelectorAll("[data-group]")) each.hidden = each !== shown;
      radio.disabled = !shown;
      (radio.closest(".preset") ?? radio.parentElement).hidden = !shown;
    }
    if (chosen()?.disabled) leavePreset();
    choosePreset();
  };
  for (const each of all) if (each.unit?.value && NUMBER.test(each.input.value)) each.take(each.input.value + each.unit.value);
  chooseGroup();

  presets.addEventListener("change", choosePreset);
  find("resource_group").addEventListener("change", chooseGroup);
  document.getElementById("amounts").addEventListener("input", ({ target }) => {
    const amount = amountOf(target);
    if (target.type === "range") amount.slid();
    typed();
    amount?.touched();
    showAll();
    htmx.trigger(presets, "amounts-typed");
  });
  document.getElementById("amounts").addEventListener("change", ({ target }) => {
    const amount = amountOf(target);
    if (amount && target === amount.input) amount.take(target.value);
    typed();
    showAll();
  });

  // What one may choose follows what was chosen; what is free changes without a key being pressed.
  const followed = ["resource_group", "project", "image", "cluster_size", "cluster_mode", "agents", "session_type"];
  form.addEventListener("change", ({ target }) => {
    if (followed.includes(target.name)) lookAgain();
  });
  find("cluster_size").addEventListener("input", showAll);
  roles.addEventListener("toggle", showAll);
  document.getElementById("agents-refresh")?.addEventListener("click", lookAgain);
  let shown = "";
  let kept = null;
  presets.addEventListener("htmx:beforeSwap", ({ detail }) => {
    if (detail.target !== presets) return;
    if (detail.serverResponse === shown) detail.shouldSwap = false;
    shown = detail.serverResponse;
    kept = chosen()?.value ?? null;
  });
  presets.addEventListener("htmx:afterSettle", () => {
    // An answer is about the form as it was; the choice stays what it is now.
    const still = [...form.querySelectorAll("[name=preset]")].find((radio) => radio.value === kept);
    if (still) still.checked = true;
    chooseGroup();
  });

  // What the portal says of the fields is cleared by it, too: what is wrong here still is.
  form.addEventListener("launch:faults", showAll);

  // Another group keeps the amounts, also where the preset means others there.
  const fill = (changes) => {
    /** @type {[Amount, number | null][]} */
    const before = all.map((each) => [each, each.value]);
    const { resource_group: group } = changes;
    const place = find("resource_group");
    if (group) {
      place.value = group;
      chooseGroup();
    }
    for (const [each, value] of before) {
      const differs = value !== each.value || each.input.name in changes;
      if (each.input.name in changes) each.take(changes[each.input.name] + (changes[each.unit?.name] ?? ""));
      else if (value !== null && differs) value ? each.write(value) : (each.input.value = "");
      if (differs) typed(); // else the preset would be filled in again by the change of the group
    }
    const first = group ? place : all.find((each) => each.input.name in changes).input;
    form.dispatchEvent(new CustomEvent("launch:show", { detail: first }));
    first.focus();
    showAll();
    first.dispatchEvent(new Event("input", { bubbles: true }));
    if (group) first.dispatchEvent(new Event("change", { bubbles: true }));
  };

  outlook.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-fill]");
    if (button) fill(JSON.parse(button.dataset.fill));
  });
  setInterval(ask, 15000);
  document.addEventListener("visibilitychange", ask);
  let told = "";
  for (const name of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
    outlook.addEventListener(name, () => {
      told = "";
      outlook.replaceChildren(document.getElementById("outlook-unknown").content.cloneNode(true));
    });
  }
  outlook.addEventListener("htmx:beforeSwap", ({ detail }) => {
    // The same again would only be read out again.
    if (detail.serverResponse === told) detail.shouldSwap = false;
    told = detail.serverResponse;
  });
});

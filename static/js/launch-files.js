// @ts-check
// Files that a batch session brings: chosen or dropped, read here, and kept as rows of the form.
document.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("files");
  if (place) new BroughtFiles(place, document.getElementById("launch"));
});

class BroughtFiles {
  // Parts of the page that look at the form need the sizes of files, not their texts.
  static NEEDS_TEXTS = "launch-review";

  constructor(place, form) {
    this.place = place;
    this.form = form;
    this.words = place.dataset;
    this.list = place.querySelector("#file-rows");
    this.input = place.querySelector("#id_files");
    this.told = place.querySelector("#files-told");
    this.input.addEventListener("change", () => this.take([...this.input.files]));
    place.addEventListener("click", ({ target }) => target.closest("[data-remove]") && this.remove(target.closest("[data-file]")));
    this.list.addEventListener("input", ({ target }) => target.matches("textarea") && this.measure(target.closest("[data-file]")));
    place.addEventListener("dragover", (event) => {
      if (![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      place.classList.add("is-target");
    });
    place.addEventListener("dragleave", (event) => place.contains(event.relatedTarget) || place.classList.remove("is-target"));
    place.addEventListener("drop", (event) => {
      event.preventDefault();
      place.classList.remove("is-target");
      this.take([...event.dataTransfer.files]);
    });
    form.addEventListener("htmx:configRequest", ({ target, detail }) => {
      delete detail.parameters.upload;
      if (target.id !== BroughtFiles.NEEDS_TEXTS) delete detail.parameters["files.content"];
    });
  }
  rows() {
    return [...this.list.querySelectorAll("[data-file]")];
  }
  async take(files) {
    const faults = [];
    for (const file of files) {
      const name = this.nameOf(file.name);
      const text = file.size > Number(this.words.bytes) ? "" : await this.read(file);
      if (file.size > Number(this.words.bytes)) faults.push(this.say("tooLarge", name));
      else if (text === null) faults.push(this.say("notText", name));
      else this.put(name, text);
    }
    this.told.replaceChildren(...faults.map((text) => Object.assign(document.createElement("div"), { textContent: text })));
    this.input.value = ""; // its text is in the row now
    this.changed();
  }
  async read(file) {
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      return text.includes("\0") ? null : text.replaceAll("\r\n", "\n");
    } catch {
      return null;
    }
  }
  // As a shell reads it without quotes; the portal does the same.
  nameOf(name) {
    const plain = name.replace(/[^A-Za-z0-9._-]+/g, "_").replace(/^[.-]+/, "");
    return plain.slice(-Number(this.words.longest)).replace(/^[.-]+/, "") || "file.txt";
  }
  put(name, text) {
    const known = this.rows().find((row) => row.querySelector("[name='files.path']").value === name);
    const row = known ?? this.place.querySelector("#file-row").content.firstElementChild.cloneNode(true);
    if (!known) this.list.append(row);
    row.querySelector("[name='files.path']").value = name;
    row.querySelector("textarea").value = text;
    this.measure(row);
    this.number();
    const command = this.form.elements.startup_command;
    const suggested = JSON.parse(this.words.commands)[name.split(".").at(-1).toLowerCase()];
    if (!command.value.trim() && suggested) {
      command.value = suggested.replace("{}", name);
      command.dispatchEvent(new Event("input", { bubbles: true }));
    }
  }
  measure(row) {
    const size = new TextEncoder().encode(row.querySelector("textarea").value).length;
    row.querySelector("[name='files.bytes']").value = size;
    // As the server writes it: Intl has no KiB, and says "71 byte".
    const [number, unit] = size < 1024 ? [size, "B"] : [Math.round(size / 102.4) / 10, "KiB"];
    const shown = new Intl.NumberFormat(document.documentElement.lang).format(number);
    row.querySelector("[data-size]").textContent = `${shown}\u00a0${unit}`;
  }
  remove(row) {
    const next = row.nextElementSibling ?? row.previousElementSibling;
    row.remove();
    this.number();
    this.changed();
    (next?.querySelector("[data-remove]") ?? this.input).focus();
  }
  number() {
    this.rows().forEach((row, index) => {
      for (const part of row.querySelectorAll("[aria-label]")) {
        part.setAttribute("aria-label", part.getAttribute("aria-label").replace(/\d+$/, index + 1));
      }
    });
  }
  changed() {
    for (const kind of ["input", "change"]) this.list.dispatchEvent(new Event(kind, { bubbles: true }));
  }
  say(what, name) {
    return this.words[what].replace("{name}", () => name);
  }
}

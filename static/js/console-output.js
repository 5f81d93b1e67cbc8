// @ts-check
// The output of a run as elements: text with colours, images, pages of their own that can do nothing, errors, gaps.
window.portal = window.portal || {};
(() => {
  const mostShown = 1000000; // characters of one text that stay in the page; the notebook has all
  const linesOfBlock = 200; // a block of lines is laid out once
  const longestOpen = 20000; // characters of a line without an end that may still be drawn over
  const images = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"]);
  const policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:";

  const element = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const colouredLine = (line) =>
    /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e-\u202e\u2066-\ufeff]/.test(line) ? portal.linePieces(line).map((piece) => element("span", piece.classes, piece.text)) : [line];
  const coloured = (text) => text.split("\n").flatMap((line, number) => [...(number ? ["\n"] : []), ...colouredLine(line)]);
  const base64 = (text) => {
    let bytes = "";
    for (const byte of new TextEncoder().encode(text)) bytes += String.fromCharCode(byte);
    return btoa(bytes);
  };
  const sizeOf = (bytes) => (bytes > 2 ** 20 ? `${(bytes / 2 ** 20).toFixed(1)} MiB` : `${Math.ceil(bytes / 1024)} KiB`);
  const gapText = (item, words) => (item.bytes ? words.gap.replace("{size}", sizeOf(item.bytes)) : words.gapItems);

  // A program that draws over its line, such as a progress bar, leaves what it drew last.
  const drawn = (line) => {
    let end = line.length;
    while (end && line[end - 1] === "\r") end -= 1;
    return line.slice(line.lastIndexOf("\r", end - 1) + 1 || 0, end);
  };

  // Text of one kind, to which more is added again and again: only what is new is looked at and laid out.
  class Text {
    constructor(type, words) {
      this.type = type;
      this.words = words;
      this.pieces = [];
      this.added = []; // of them, what is not in the page yet
      this.box = element("pre", `console-${type}`);
      this.open = element("span"); // the last line, which has no end yet
      this.rest = "";
      this.blocks = []; // what is shown: { element, length, lines }
      this.shown = 0;
      this.hidden = 0;
      this.planned = 0;
      this.note = null; // tells how much is hidden
    }
    get text() {
      return this.pieces.join("").split("\n").map(drawn).join("\n");
    }
    add(text) {
      this.pieces.push(text);
      this.added.push(text);
      this.planned ||= requestAnimationFrame(() => this.draw());
    }
    draw() {
      this.planned = 0;
      const follows = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < 16;
      const lines = (this.rest + this.added.join("")).split("\n");
      this.added = [];
      this.rest = lines.pop();
      this.open.remove();
      for (let at = Math.max(0, this.firstShown(lines)); at < lines.length; ) at += this.fill(lines, at);
      if (this.rest.length > longestOpen) this.closeLine();
      else this.rest = this.rest.includes("\r") ? this.rest.slice(this.rest.lastIndexOf("\r", this.rest.replace(/\r+$/, "").length - 1) + 1) : this.rest;
      this.open.replaceChildren(...colouredLine(drawn(this.rest)));
      (this.blocks.at(-1)?.lines < linesOfBlock ? this.blocks.at(-1) : this.block()).element.append(this.open);
      this.trim();
      if (follows) this.box.scrollTop = this.box.scrollHeight;
    }
    // Of more than can be shown only the end is made into elements.
    firstShown(lines) {
      let length = 0;
      let at = lines.length;
      while (at > 0 && length <= mostShown) length += lines[--at].length + 1;
      for (let before = 0; before < at; before += 1) this.hidden += lines[before].length + 1;
      return at;
    }
    block() {
      const block = { element: element("div"), length: 0, lines: 0 };
      this.blocks.push(block);
      this.box.append(block.element);
      return block;
    }
    fill(lines, at) {
      const block = this.blocks.at(-1)?.lines < linesOfBlock ? this.blocks.at(-1) : this.block();
      const taken = lines.slice(at, at + linesOfBlock - block.lines).map(drawn);
      const parts = [];
      for (const line of taken) parts.push(...colouredLine(line), "\n");
      block.element.append(...joined(parts));
      const length = taken.reduce((sum, line) => sum + line.length + 1, 0);
      block.lines += taken.length;
      block.length += length;
      this.shown += length;
      return taken.length;
    }
    // A line that never ends goes on in pieces, which are drawn over no more.
    closeLine() {
      const block = this.block();
      block.element.classList.add("console-long");
      const text = drawn(this.rest);
      block.element.append(...colouredLine(text));
      [block.lines, block.length] = [linesOfBlock, text.length];
      this.shown += text.length;
      this.rest = "";
    }
    trim() {
      while (this.shown > mostShown && this.blocks.length > 2) {
        const block = this.blocks.shift();
        block.element.remove();
        this.shown -= block.length;
        this.hidden += block.length;
      }
      if (!this.hidden) return;
      this.note ||= element("p", "console-gap");
      this.note.textContent = this.words.notShown.replace("{size}", sizeOf(this.hidden));
      if (!this.note.isConnected) this.box.before(this.note);
    }
  }
  const joined = (parts) => {
    const found = [];
    let text = [];
    for (const part of parts) {
      if (typeof part === "string") text.push(part);
      else found.push(text.join(""), part), (text = []);
    }
    return [...found, text.join("")].filter((part) => part !== "");
  };

  // A page of its own: without scripts, without an origin, without a network, and it can lead nowhere.
  const framed = (given, title) => {
    const read = new DOMParser().parseFromString(given, "text/html"); // runs and loads nothing
    for (const script of read.querySelectorAll("script")) script.remove();
    for (const one of read.querySelectorAll("*")) {
      for (const name of one.getAttributeNames()) if (name.startsWith("on")) one.removeAttribute(name);
    }
    const html = read.head.innerHTML + read.body.innerHTML;
    const frame = element("iframe", "console-frame");
    frame.title = title;
    frame.setAttribute("sandbox", "");
    frame.referrerPolicy = "no-referrer";
    const here = getComputedStyle(document.body);
    const look = `<style>body{margin:.5rem;color:${here.color};background:${here.backgroundColor};font:14px system-ui,sans-serif}table{border-collapse:collapse}td,th{padding:.2rem .6rem;text-align:right}a{pointer-events:none}</style>`;
    frame.srcdoc = `<!doctype html><meta http-equiv="Content-Security-Policy" content="${policy}">${look}${html}`;
    const rows = (html.match(/<tr|<br|<p|<div|<li/gi) || []).length;
    frame.style.height = `${Math.min(4 + rows * 1.75, 30)}rem`;
    return frame;
  };

  // Its scripts run after a click, in a frame of a constant page at another origin: nothing is loaded, nobody is told.
  const withScripts = (html, words) => {
    const box = element("div", "console-page");
    const still = framed(html, words.html);
    box.append(still);
    if (!/<script|\son\w+\s*=/i.test(html) || !words.outputOrigin) return box;
    const button = element("button", "btn btn-sm", words.runScripts);
    button.type = "button";
    button.addEventListener("click", () => {
      const frame = element("iframe", "console-frame console-frame-live");
      frame.title = words.html;
      frame.setAttribute("sandbox", "allow-scripts");
      frame.referrerPolicy = "no-referrer";
      frame.addEventListener("load", () => frame.contentWindow.postMessage(html, "*"), { once: true });
      frame.src = `${words.outputOrigin}/`;
      still.replaceWith(frame);
      button.remove();
    });
    box.append(button);
    return box;
  };

  // Writes items into a box, and keeps them for the notebook. `displays` holds what a program may draw anew, by its name.
  class Output {
    constructor(box, words, displays) {
      this.box = box;
      this.words = words;
      this.displays = displays;
      this.items = [];
      this.clearLater = false;
    }
    add(item) {
      if (item.type === "clear") {
        this.clearLater = item.wait;
        if (!item.wait) this.clear();
        return;
      }
      if (item.updates) return this.update(item);
      if (this.clearLater) this.clear();
      if (item.type === "stdout" || item.type === "stderr") this.text(item);
      else this.show(item);
    }
    clear() {
      this.clearLater = false;
      this.items = [];
      this.box.replaceChildren();
    }
    // Text of one kind goes on where it was.
    text(item) {
      if (this.items.at(-1)?.type !== item.type) {
        const text = new Text(item.type, this.words);
        this.items.push(text);
        this.box.append(text.box);
      }
      this.items.at(-1).add(item.text);
    }
    show(item) {
      const place = { output: this, item, made: this.made(item) };
      this.items.push(item);
      this.box.append(place.made);
      if (item.display) this.displays.set(item.display, [...(this.displays.get(item.display) || []), place]);
    }
    update(item) {
      for (const place of this.displays.get(item.display) || []) {
        const [at, made] = [place.output.items.indexOf(place.item), place.output.made(item)];
        if (at < 0) continue;
        place.output.items[at] = item;
        place.made.replaceWith(made);
        Object.assign(place, { item, made });
      }
    }
    made(item) {
      if (item.type === "html") return withScripts(item.html, this.words);
      if (item.type === "media" && images.has(item.mime)) {
        const data = item.mime === "image/svg+xml" && !/^[A-Za-z0-9+/=\s]+$/.test(item.data) ? base64(item.data) : item.data;
        const image = element("img", "console-image");
        image.alt = item.text || this.words.image;
        image.src = `data:${item.mime};base64,${data}`;
        return image;
      }
      if (item.type === "media") return element("pre", "console-result", item.data);
      if (item.type === "error") {
        const place = element("pre", "console-error");
        place.replaceChildren(...coloured(item.traceback || `${item.name}: ${item.value}`));
        return place;
      }
      if (item.type === "gap") return element("p", "console-gap", gapText(item, this.words));
      return element("p", "console-log", item.text || "");
    }
  }
  Object.assign(portal, { ConsoleOutput: Output, consoleGap: gapText });
})();

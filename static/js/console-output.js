// The output of a run as elements: text with colours, images, pages of their own that can do nothing, errors, gaps.
window.portal = window.portal || {};
(() => {
  const mostText = 400000; // characters of one text that stay in the page; the notebook has what the page has
  const images = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"]);
  const policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:";

  const element = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const coloured = (text) =>
    text.split("\n").flatMap((line, number) => [
      ...(number ? [document.createTextNode("\n")] : []),
      ...portal.linePieces(line).map((piece) => element("span", piece.classes, piece.text)),
    ]);
  const base64 = (text) => {
    let bytes = "";
    for (const byte of new TextEncoder().encode(text)) bytes += String.fromCharCode(byte);
    return btoa(bytes);
  };
  const sizeOf = (bytes) => (bytes > 2 ** 20 ? `${(bytes / 2 ** 20).toFixed(1)} MiB` : `${Math.ceil(bytes / 1024)} KiB`);

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

  // Writes items into a box, and keeps them for the notebook.
  class Output {
    constructor(box, words) {
      [this.box, this.words, this.items] = [box, words, []];
      this.clearLater = false;
    }
    add(item) {
      if (item.type === "clear") {
        this.clearLater = item.wait;
        if (!item.wait) this.clear();
        return;
      }
      if (this.clearLater) this.clear();
      if (item.type === "stdout" || item.type === "stderr") this.text(item);
      else {
        this.items.push(item);
        this.box.append(this.made(item));
      }
    }
    clear() {
      this.clearLater = false;
      this.items = [];
      this.box.replaceChildren();
    }
    // Text of one kind goes on where it was; what a program drew over is gone.
    text(item) {
      const last = this.items.at(-1);
      const goesOn = last?.type === item.type && this.box.lastElementChild?.matches("pre");
      const whole = `${goesOn ? last.text : ""}${item.text}`.replace(/\r+\n/g, "\n").replace(/[^\n]*\r(?=[^\n])/g, "");
      const kept = whole.length > mostText ? whole.slice(-mostText) : whole;
      if (goesOn) last.text = kept;
      else this.items.push({ ...item, text: kept });
      const place = goesOn ? this.box.lastElementChild : element("pre", `console-${item.type}`);
      place.replaceChildren(...coloured(kept));
      if (!goesOn) this.box.append(place);
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
      if (item.type === "gap") return element("p", "console-gap", item.bytes ? this.words.gap.replace("{size}", sizeOf(item.bytes)) : this.words.gapItems);
      return element("p", "console-log", item.text || "");
    }
  }
  portal.ConsoleOutput = Output;
})();

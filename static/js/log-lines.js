// @ts-check
// The lines of a log: bytes in, lines out. What a program sends stays text: colours become class names, other commands
// to a terminal are left out, and characters that cannot be seen are shown by their names.
window.portal = window.portal || {};
(() => {
  const mostLines = 500000;
  const longestLine = 20000;
  const escapes = /(?:\x1b\[|\x9b)([0-?]*)[ -/]*([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\)?|\x1b[ -/]*[0-~]?/g;
  const unseen = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;
  const names = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

  const nameOf = (character) => `\u27e8U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
  const plain = (line) => (/[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e-\u202e\u2066-\ufeff]/.test(line) ? line.replace(escapes, "").replace(unseen, nameOf) : line);

  const colour = (look, number, bright) => ({ ...look, colour: `${bright ? "bright-" : ""}${names[number]}` });
  // One "select graphic rendition": the sixteen colours, bold, faint, italic, underlined, inverse; finer colours are left out.
  const dressed = (look, numbers) => {
    const codes = (numbers || "0").split(/[;:]/).map(Number);
    for (let i = 0; i < codes.length; i += 1) {
      const code = codes[i];
      if (code === 0) look = {};
      else if (code === 1) look = { ...look, bold: true };
      else if (code === 2) look = { ...look, faint: true };
      else if (code === 3) look = { ...look, italic: true };
      else if (code === 4) look = { ...look, underlined: true };
      else if (code === 7) look = { ...look, inverse: true };
      else if (code === 22) look = { ...look, bold: false, faint: false };
      else if (code === 23) look = { ...look, italic: false };
      else if (code === 24) look = { ...look, underlined: false };
      else if (code === 27) look = { ...look, inverse: false };
      else if (code >= 30 && code <= 37) look = colour(look, code - 30, false);
      else if (code >= 90 && code <= 97) look = colour(look, code - 90, true);
      else if (code === 39) look = { ...look, colour: "" };
      else if (code === 38 || code === 48) {
        const number = codes[i + 1] === 5 ? codes[i + 2] : -1;
        if (code === 38 && number >= 0 && number < 16) look = colour(look, number % 8, number > 7);
        i += codes[i + 1] === 5 ? 2 : 4;
      }
    }
    return look;
  };
  const classesOf = (look) =>
    [look.colour && `ink-${look.colour}`, ...["bold", "faint", "italic", "underlined", "inverse"].filter((name) => look[name]).map((name) => `ink-${name}`)]
      .filter(Boolean)
      .join(" ");

  // A line as pieces of text, each with the classes of its look.
  const pieces = (line) => {
    const found = [];
    let look = {};
    let from = 0;
    const add = (text) => text && found.push({ text: text.replace(unseen, nameOf), classes: classesOf(look) });
    for (const match of line.matchAll(escapes)) {
      add(line.slice(from, match.index));
      from = match.index + match[0].length;
      if (match[2] === "m") look = dressed(look, match[1]);
    }
    add(line.slice(from));
    return found;
  };

  // A program that draws over its line, such as a progress bar, leaves what it drew last.
  const overdrawn = (line) => {
    const text = line.endsWith("\r") ? line.slice(0, -1) : line;
    const start = text.lastIndexOf("\r") + 1;
    return start ? text.slice(start) : text;
  };
  const cut = (line) => (line.length > longestLine ? `${line.slice(0, longestLine)} \u2026` : line);

  class LogLines {
    constructor() {
      this.clear();
    }
    clear() {
      this.lines = [];
      this.first = 0; // the number of the first line that is kept, from 0
      this.rest = "";
      this.decoder = new TextDecoder();
    }
    // How many lines there are in all, with those that are kept no more.
    get end() {
      return this.first + this.lines.length + (this.rest ? 1 : 0);
    }
    get count() {
      return this.end - this.first;
    }
    at(number) {
      const index = number - this.first;
      return index < this.lines.length ? this.lines[index] : cut(overdrawn(this.rest));
    }
    // Takes bytes; returns how many of the oldest lines had to go.
    add(bytes) {
      const parts = (this.rest + this.decoder.decode(bytes, { stream: true })).split("\n");
      const rest = parts.pop();
      this.rest = rest.length > 4 * longestLine ? overdrawn(rest).slice(0, 4 * longestLine) : rest;
      for (const part of parts) this.lines.push(cut(overdrawn(part)));
      return this.#drop(this.lines.length - mostLines);
    }
    // What came too fast is passed over; the numbers of lines stay right.
    skip(bytes) {
      let ends = 0;
      for (let i = bytes.indexOf(10); i >= 0; i = bytes.indexOf(10, i + 1)) ends += 1;
      this.rest = "";
      this.first += this.lines.length + ends;
      this.lines = [];
    }
    #drop(number) {
      if (number <= mostLines / 10) return 0;
      this.lines.splice(0, number);
      this.first += number;
      return number;
    }
  }

  Object.assign(portal, { LogLines, linePieces: pieces, linePlain: plain });
})();

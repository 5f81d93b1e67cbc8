// Feeds one terminal as the page does and another with every byte, and compares all that they hold.
window.flood = (() => {
  const encoder = new TextEncoder();
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

  const cellsOf = (line, cols) => {
    const cells = [];
    for (let x = 0; x < cols; x++) {
      const cell = line.getCell(x);
      cells.push([cell.getChars(), cell.getWidth(), cell.getFgColorMode(), cell.getFgColor(), cell.getBgColorMode(), cell.getBgColor(), cell.isBold(), cell.isInverse()].join());
    }
    return cells.join(";");
  };
  const linesOf = (terminal, buffer) => {
    const lines = [];
    for (let y = 0; y < buffer.length; y++) {
      const line = buffer.getLine(y);
      lines.push(`${line.isWrapped} ${line.translateToString()} ${cellsOf(line, terminal.cols)}`);
    }
    return lines;
  };
  const stateOf = (terminal) =>
    ["normal", "alternate"].flatMap((name) => {
      const buffer = terminal.buffer[name];
      return [`${name} ${buffer.cursorX} ${buffer.cursorY} ${buffer.baseY} ${buffer.viewportY}`, ...linesOf(terminal, buffer)];
    }).concat(`${terminal.buffer.active.type} ${JSON.stringify(terminal.modes)}`);

  // Returns the first difference, or nothing when there is none in the end.
  const difference = async (one, other) => {
    let found = "";
    for (let tries = 0; tries < 100; tries++) {
      await new Promise((resolve) => other.write("", resolve));
      const [left, right] = [stateOf(one), stateOf(other)];
      const at = left.findIndex((line, index) => line !== right[index]);
      if (at < 0 && left.length === right.length) return "";
      found = `line ${at} of ${left.length} and ${right.length}:\n${left[at]?.slice(0, 400)}\n${right[at]?.slice(0, 400)}`;
      await pause(100);
    }
    return found;
  };

  const randomFrom = (seed) => () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };

  const words = ["plain", "text", "ünïcode", "漢字仮名", "🧪", "a\tb", "e\u0301", "\u00a0", "x".repeat(200), ""];
  const sequences = [
    "\x1b[31m", "\x1b[1;44m", "\x1b[0m", "\x1b[5;9r", "\x1b[r", "\x1b[4h", "\x1b[4l", "\x1b[?6h", "\x1b[?6l", "\x1b[?7l", "\x1b[?7h", "\x1b[20h", "\x1b[20l",
    "\x1b[?1049h", "\x1b[?1049l", "\x1b[2J", "\x1b[3;3H", "\x1b7", "\x1b8", "\x1bM", "\x1b(0", "\x1b(B", "\x1b]0;title", "\x1bPq", "\x1b\\", "\x1b", "\x1b[3", "\b\b", "\x07", "\v", "\x0e", "\x0f",
    "\u009b2A", "\u0085", "\u0090", "\u009c", "\x7f", "\x1b[10b", "\x1bc",
  ];
  const pick = (random, list) => list[Math.floor(random() * list.length)];
  const textOf = (random, count, ending) => {
    let text = "";
    for (let line = 0; line < count; line++) text += `${line} ${pick(random, words)} ${pick(random, words)}${ending}`;
    return text;
  };
  // A few changes of mode, and then so much text that what could be left out of it is.
  const partOf = (random) => {
    let part = "";
    for (let times = Math.floor(random() * 4); times > 0; times--) part += pick(random, sequences) + textOf(random, Math.floor(random() * 6), "\r\n");
    const kind = random();
    if (kind < 0.7) part += textOf(random, 2500, "\r\n");
    else if (kind < 0.8) part += textOf(random, 1500, "\n");
    else if (kind < 0.9) part += textOf(random, 1500, pick(random, ["\r", "\r\n\n", "\n\r"]));
    return encoder.encode(part);
  };

  const newPair = (options) => {
    const pair = [new Terminal(options), new Terminal(options)];
    for (const terminal of pair) {
      terminal.loadAddon(new Unicode11Addon.Unicode11Addon());
      terminal.unicode.activeVersion = "11";
    }
    return pair;
  };

  // Returns the difference after any of the parts, and how many bytes were left out (less than none when pictures cost
  // more). A part is what comes in a row, as messages.
  const compareParts = async (sizes, parts, random) => {
    const [quick, slow] = newPair({ allowProposedApi: true, logLevel: "off", ...sizes });
    const feed = portal.feedOf(quick, () => {});
    let [brought, read, found] = [0, 0, ""];
    const write = quick.write.bind(quick);
    quick.write = (bytes, done) => ((read += bytes.length), write(bytes, done));
    for (const part of parts) {
      for (const message of part) {
        brought += message.length;
        slow.write(message);
        feed.take(message);
        if (random() < 0.2) await pause(random() * 30);
        while (!feed.hasRoom()) await pause(5);
      }
      found = await difference(quick, slow);
      if (found) break;
    }
    quick.dispose();
    slow.dispose();
    return { found, leftOut: brought - read };
  };

  const compareRandom = (seed) => {
    const random = randomFrom(seed);
    const sizes = { cols: 20 + Math.floor(random() * 80), rows: 4 + Math.floor(random() * 30), scrollback: Math.floor(random() * 400) };
    const end = encoder.encode("\x18\x07\x1bc"); // whatever sequence was started: it ends
    const parts = Array.from({ length: 10 }, () => {
      const bytes = partOf(random);
      const messages = random() < 0.3 ? [end] : [];
      for (let at = 0; at < bytes.length; ) messages.push(bytes.slice(at, (at += 1 + Math.floor(random() ** 3 * 65536))));
      return messages;
    });
    return compareParts(sizes, parts, random);
  };

  // What may keep the page from leaving text out, between two texts of more lines than screen and scrollback hold: at one
  // go, and with the second text when all before it has been read.
  const compareAfter = async (before) => {
    const sizes = { cols: 80, rows: 24, scrollback: 100 };
    const [first, second] = [1, 2].map((seed) => {
      const bytes = encoder.encode(textOf(randomFrom(seed), 2500, "\r\n"));
      return Array.from({ length: Math.ceil(bytes.length / 40000) }, (_, at) => bytes.slice(at * 40000, (at + 1) * 40000));
    });
    const between = before.map((bytes) => new Uint8Array(bytes));
    const atOnce = await compareParts(sizes, [[...first, ...between, ...second]], () => 1);
    const oneByOne = await compareParts(sizes, [[...first, ...between], second], () => 1);
    return { found: atOnce.found || oneByOne.found, leftOut: atOnce.leftOut + oneByOne.leftOut };
  };

  // Returns the difference between the page's own terminal and one that is given all that its socket brought.
  const compareWithAll = async (terminal, messages) => {
    const { cols, rows } = terminal;
    const [other, spare] = newPair({ allowProposedApi: true, cols, rows, scrollback: terminal.options.scrollback });
    spare.dispose();
    for (const message of messages) other.write(message);
    const found = await difference(terminal, other);
    other.dispose();
    return found;
  };

  return { compareRandom, compareAfter, compareWithAll };
})();

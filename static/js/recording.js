// @ts-check
// Recordings of terminals (asciicast: version 3 is written, 2 is read, too): made and replayed in the browser alone, so that nobody else has them.
window.portal = window.portal || {};
(() => {
  const most = 20 * 1024 * 1024;
  const longestPause = 2;

  // Keeps what a terminal prints from one press of the button to the next, and saves it as a file.
  portal.recorderOf = (button, notice) => {
    const word = button.querySelector("span");
    const usual = word.textContent;
    let lines = null;
    let decoder = null;
    let [lastAt, size] = [0, 0];

    const keep = (kind, text) => {
      const now = performance.now();
      const line = JSON.stringify([Number(((now - lastAt) / 1000).toFixed(6)), kind, text]);
      lastAt = now;
      size += line.length;
      lines.push(line);
      if (size <= most) return;
      stop();
      notice(button.dataset.full);
    };
    const show = (isOn) => {
      button.setAttribute("aria-pressed", isOn);
      word.textContent = isOn ? button.dataset.recording : usual;
    };
    const stop = () => {
      if (!lines) return;
      const file = new Blob([lines.join("\n"), "\n"], { type: "application/x-asciicast" });
      const link = Object.assign(document.createElement("a"), {
        href: URL.createObjectURL(file),
        download: `${button.dataset.name}-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.cast`,
      });
      lines = null;
      show(false);
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    };
    const start = (terminal) => {
      [lastAt, size, decoder] = [performance.now(), 0, new TextDecoder()];
      const head = { version: 3, term: { cols: terminal.cols, rows: terminal.rows }, timestamp: Math.floor(Date.now() / 1000) };
      lines = [JSON.stringify(head)];
      show(true);
    };
    addEventListener("pagehide", stop);
    return {
      stop,
      toggle: (terminal) => (lines ? stop() : start(terminal)),
      take: (bytes) => lines && keep("o", decoder.decode(bytes, { stream: true })),
      resize: ({ cols, rows }) => lines && keep("r", `${cols}x${rows}`),
    };
  };

  // Returns the size of the screen and what happened on it, each event with the seconds since the one before; nothing for
  // a file that is no recording. In version 3 a line may be a comment; in version 2 times count from the beginning.
  portal.readRecording = (text) => {
    try {
      const lines = text.split("\n").filter((line) => line.trim() && !line.startsWith("#"));
      const [head, ...events] = lines.map((line) => JSON.parse(line));
      const isSide = (side) => Number.isInteger(side) && side > 0 && side <= 1000;
      const isEvent = (event) => Array.isArray(event) && Number.isFinite(event[0]) && typeof event[2] === "string";
      const [cols, rows] = head?.version === 3 ? [head.term?.cols, head.term?.rows] : [head?.width, head?.height];
      if (![2, 3].includes(head?.version) || !isSide(cols) || !isSide(rows) || !events.every(isEvent)) return null;
      const sinceLast = ([at, kind, said], number) => [number ? at - events[number - 1][0] : at, kind, said];
      return { cols, rows, events: head.version === 3 ? events : events.map(sinceLast) };
    } catch {
      return null;
    }
  };

  const dialog = document.getElementById("terminal-replay");
  if (!dialog) return;
  const [place, buttons, fault] = [".terminal-replay-screen", ".box-actions", "#terminal-replay-fault"].map((name) => dialog.querySelector(name));
  const speed = document.getElementById("terminal-speed");
  let [recording, terminal, timer] = [null, null, 0];

  const play = (number = 0) => {
    clearTimeout(timer);
    if (!recording || !dialog.open || number >= recording.events.length) return;
    if (!number) {
      terminal?.dispose();
      const { cols, rows } = recording;
      terminal = new Terminal({ allowProposedApi: true, cols, rows, disableStdin: true, cursorBlink: false, screenReaderMode: true });
      terminal.open(place);
    }
    const [pause, kind, text] = recording.events[number];
    const wait = (Math.min(longestPause, Math.max(0, pause)) * 1000) / Number(speed.value);
    timer = setTimeout(() => {
      const [cols, rows] = kind === "r" ? text.split("x").map(Number) : [];
      if (cols > 0 && rows > 0 && cols <= 1000 && rows <= 1000) terminal.resize(cols, rows);
      if (kind === "o") terminal.write(text, () => play(number + 1));
      else play(number + 1);
    }, wait);
  };
  const say = (text) => {
    fault.textContent = text;
    fault.hidden = !text;
    place.hidden = buttons.hidden = Boolean(text);
  };
  document.getElementById("terminal-recording").addEventListener("change", async ({ target }) => {
    const file = target.files[0];
    if (!file) return;
    recording = file.size > 4 * most ? null : portal.readRecording(await file.text());
    say(file.size > 4 * most ? dialog.dataset.tooLarge : recording ? "" : dialog.dataset.unreadable);
    play();
  });
  document.getElementById("terminal-again").addEventListener("click", () => play());
  dialog.addEventListener("close", () => clearTimeout(timer));
})();

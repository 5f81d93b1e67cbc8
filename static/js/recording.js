// @ts-check
// Recordings of terminals (asciicast, version 2): made and replayed in the browser alone, so that nobody else has them.
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
    let [startedAt, size] = [0, 0];

    const keep = (kind, text) => {
      const line = JSON.stringify([Number(((performance.now() - startedAt) / 1000).toFixed(6)), kind, text]);
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
      [startedAt, size, decoder] = [performance.now(), 0, new TextDecoder()];
      const head = { version: 2, width: terminal.cols, height: terminal.rows, timestamp: Math.floor(Date.now() / 1000) };
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

  // Returns the size of the screen and what happened on it; nothing for a file that is no recording.
  portal.readRecording = (text) => {
    try {
      const [head, ...events] = text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
      const isSide = (side) => Number.isInteger(side) && side > 0 && side <= 1000;
      const isEvent = (event) => Array.isArray(event) && Number.isFinite(event[0]) && typeof event[2] === "string";
      if (head?.version !== 2 || !isSide(head.width) || !isSide(head.height) || !events.every(isEvent)) return null;
      return { cols: head.width, rows: head.height, events };
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
    const [at, kind, text] = recording.events[number];
    const before = number ? recording.events[number - 1][0] : 0;
    const wait = (Math.min(longestPause, Math.max(0, at - before)) * 1000) / Number(speed.value);
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

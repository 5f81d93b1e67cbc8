// The terminal of a session. Bytes travel as binary frames; text frames are JSON. Bytes are acknowledged as they come
// while little waits to be drawn, and held back while much does: so the way to the node never runs dry, and a program
// that prints without end is slowed down instead of flooding the page. What comes while much is undrawn is gathered and
// drawn together: a picture for each little piece of a flood costs more than reading the flood.
(() => {
  const acknowledgeEvery = 65536;
  const mostUndrawn = 2 ** 20;
  const atOnce = 32768;
  const gatherFor = 40; // ms
  const pasteAtOnce = 32768;
  const encoder = new TextEncoder();
  const box = document.getElementById("terminal-box");
  if (!box) return;
  const notice = portal.noticeOf(box);
  const state = document.getElementById("terminal-state");
  const kernel = document.getElementById("terminal-kernel");
  let screen = null;
  let socket = null;
  let unacknowledged = 0;
  let undrawn = 0;
  const gathered = [];
  let drawing = 0;

  const sendJson = (message) => socket.send(JSON.stringify(message));
  const sendBytes = (bytes) => {
    for (let start = 0; start < bytes.length; start += pasteAtOnce) socket.send(bytes.subarray(start, start + pasteAtOnce));
  };
  const sendSize = () => sendJson({ type: "resize", rows: screen.terminal.rows, cols: screen.terminal.cols });
  const take = (bytes) => {
    unacknowledged += bytes.length;
    undrawn += bytes.length;
    gathered.push(bytes);
    acknowledge();
    if (drawing) return;
    if (undrawn < atOnce) draw();
    else drawing = setTimeout(draw, gatherFor);
  };
  const draw = () => {
    drawing = 0;
    for (const bytes of gathered.splice(0)) screen.terminal.write(bytes, () => drawn(bytes));
  };
  const drawn = (bytes) => {
    undrawn -= bytes.length;
    acknowledge();
  };
  const acknowledge = () => {
    if (unacknowledged < acknowledgeEvery || undrawn > mostUndrawn) return;
    sendJson({ type: "ack", bytes: unacknowledged });
    unacknowledged = 0;
  };

  const ends = {
    4000: ["The shell has ended.", "Open again"],
    4001: ["The kernel of this terminal is gone."],
    4003: ["You may not open this terminal."],
    4004: ["The session is not running."],
  };
  const connect = () => {
    state.textContent = "Connecting…";
    const query = new URLSearchParams({ rows: screen.terminal.rows, cols: screen.terminal.cols });
    if (kernel) query.set("kernel", kernel.value);
    socket = portal.steadySocket(() => portal.address(`${box.dataset.address}?${query}`), {
      onOpen: () => (unacknowledged = 0),
      onBytes: take,
      onMessage: (text) => {
        if (JSON.parse(text).type !== "ready") return;
        state.textContent = "Connected";
        notice("");
        sendSize();
      },
      onAway: (wait, now) => {
        state.textContent = "Reconnecting…";
        notice("The connection is interrupted; what runs in the terminal goes on.", "Reconnect now", now);
      },
      onEnd: (code, reason) => {
        state.textContent = "Closed";
        const [text, label] = ends[code] || [reason || "The terminal was closed.", "Open again"];
        notice(text, label, () => { notice(""); socket.again(); screen.terminal.focus(); });
      },
    });
  };

  const bindKeys = ({ terminal }) => {
    terminal.attachCustomKeyEventHandler((event) => {
      if (event.type !== "keydown" || !event.ctrlKey || !event.shiftKey) return true;
      if (event.code === "KeyC" && terminal.hasSelection()) {
        navigator.clipboard?.writeText(terminal.getSelection());
        event.preventDefault();
        return false;
      }
      if (event.code === "KeyX") {
        document.getElementById("tab-terminal").focus();
        return false;
      }
      // The browser's own paste event brings the text.
      return event.code !== "KeyV";
    });
  };

  const open = () => {
    // Few lines, because they make drawing slower: where there is tmux, it keeps the past.
    const cursorBlink = !matchMedia("(prefers-reduced-motion: reduce)").matches;
    screen = portal.openScreen(box.querySelector(".screen"), { cursorBlink, scrollback: 10000 });
    screen.terminal.onData((text) => sendBytes(encoder.encode(text)));
    screen.terminal.onBinary((text) => sendBytes(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
    screen.terminal.onResize(sendSize);
    bindKeys(screen);
    connect();
    screen.terminal.focus();
  };

  // Called when the tab is shown and whenever the status of the session changes.
  portal.showTerminal = (status) => {
    if (status === "RUNNING") {
      if (!screen) { notice(""); open(); } else screen.terminal.focus();
      return;
    }
    if (["TERMINATED", "CANCELLED", "ERROR"].includes(status)) notice("The session has ended; its log is kept.");
    else if (status === "TERMINATING") notice("The session is being ended.");
    else notice("The terminal opens by itself as soon as the session runs.");
  };

  kernel?.addEventListener("change", () => {
    socket?.close();
    for (const bytes of gathered.splice(0)) undrawn -= bytes.length;
    screen?.terminal.reset();
    if (screen) connect();
  });

  const tools = {
    smaller: () => resize(-1),
    larger: () => resize(1),
    reader: (button) => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", on);
      portal.remember("screen-reader", on);
      if (screen) screen.terminal.options.screenReaderMode = on;
    },
    full: (button) => {
      const on = box.classList.toggle("is-full");
      document.documentElement.classList.toggle("has-full-screen", on);
      button.setAttribute("aria-pressed", on);
      screen?.terminal.focus();
    },
  };
  const resize = (step) => {
    const size = Math.min(28, Math.max(9, portal.remembered("screen-font", 14) + step));
    portal.remember("screen-font", size);
    if (!screen) return;
    screen.terminal.options.fontSize = size;
    screen.refit();
  };
  box.querySelector('[data-tool="reader"]').setAttribute("aria-pressed", portal.remembered("screen-reader", false));
  box.addEventListener("click", (event) => {
    const button = event.target.closest("[data-tool]");
    if (button) tools[button.dataset.tool](button);
  });
})();

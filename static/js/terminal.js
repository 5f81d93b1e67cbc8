// @ts-check
// Hands the bytes of a terminal to xterm, and leaves out what nobody could ever see. A flood of plain text runs faster than
// xterm reads; but of plain text that has scrolled through all of screen and scrollback nothing is left, whatever was
// there before. So of the bytes that wait, only the last lines of such text are kept, as many as screen and scrollback
// hold: in the end everything is exactly as if each byte had been read.
window.portal = window.portal || {};
(() => {
  const mostUndrawn = 2 ** 20;
  const mostPassing = 2 ** 22;
  const lookEvery = 65536;
  const atOnce = 32768;
  const gatherFor = 40; // ms
  const glimpseEvery = 200; // ms, and the longest rest
  const quietAfter = 100; // ms
  const longLine = 256; // bytes; of longer ones too much would wait before some can be left out
  const lineFeed = 10;
  const carriageReturn = 13;
  const beforeControls = 0xc2; // in UTF-8 the controls from U+0080 to U+009F are this byte and one below 0xa0
  const [text, line, odd, maybeOdd] = [0, 1, 2, 4];
  const kinds = new Uint8Array(256).fill(odd, 0, 32).fill(odd, 127, 128);
  kinds[9] = kinds[carriageReturn] = text;
  kinds[lineFeed] = line;
  kinds[beforeControls] = maybeOdd;

  // Text is plain when it leaves every mode of the terminal as it is: no escapes, no controls but tabs and ends of lines.
  const look = (bytes, before) => {
    let lines = 0;
    let found = before === beforeControls && bytes[0] < 0xa0 ? odd : 0;
    for (let at = 0; at < bytes.length; at++) {
      const kind = kinds[bytes[at]];
      if (kind === text) continue;
      if (kind === line) lines++;
      else if (kind === odd || bytes[at + 1] < 0xa0) found = odd;
    }
    return { bytes, lines, plain: found === 0 };
  };

  // The parser stands between two sequences and a line feed on the last row moves everything up. xterm tells this only
  // behind its public interface: where an update has moved it away, the answer is no, and nothing is left out.
  const runsThrough = ({ _core: core, rows, options }) =>
    core?._inputHandler?._parser?.currentState === 0 &&
    core.buffer?.scrollTop === 0 &&
    core.buffer.scrollBottom === rows - 1 &&
    !options.screenReaderMode;

  const looksAtEnd = (terminal) => terminal.buffer.active.viewportY === terminal.buffer.active.baseY && !terminal.hasSelection();
  const linesOf = (pieces) => pieces.reduce((sum, { lines }) => sum + lines, 0);

  // `take` brings bytes, `hasRoom` says whether more may come, `whenRoom` is called when that may have changed, and
  // `restart` forgets all and empties the screen.
  portal.feedOf = (terminal, whenRoom) => {
    let pieces = []; // what waits
    let waiting = 0; // bytes
    let given = 0; // bytes that xterm has and has not read
    let unlooked = 0; // bytes
    let passing = false; // all that xterm has is plain and runs through the screen, so what comes next will too
    let leftOut = false; // since something was drawn last; what waits then fills screen and scrollback
    let lastByte = 0;
    let lastAt = 0;
    let busy = false;
    let timer = 0;

    const take = (bytes) => {
      pieces.push(look(bytes, lastByte));
      lastByte = bytes.at(-1) ?? lastByte;
      lastAt = performance.now();
      waiting += bytes.length;
      unlooked += bytes.length;
      if (passing && unlooked >= lookEvery) leaveOut();
      if (busy || timer) return;
      if (waiting < atOnce) draw(false);
      else timer = setTimeout(draw, gatherFor, false);
    };

    const leaveOut = () => {
      unlooked = 0;
      // Once the height of the screen for what stood below the cursor, once for the screen itself, and both again in case
      // the window grows before this is read.
      const enough = terminal.options.scrollback + 4 * terminal.rows;
      const end = pieces.findIndex(({ plain }) => !plain);
      let lines = linesOf(end < 0 ? pieces : pieces.slice(0, end));
      let first = 0;
      while (first < pieces.length && lines - pieces[first].lines >= enough) lines -= pieces[first++].lines;
      // What is kept begins with a carriage return, for the column in which the rest ended is not known.
      let at = -1;
      while (first > 0 && at < 0) at = pieces[--first].bytes.lastIndexOf(carriageReturn);
      if (at < 0 || first + at === 0) return;
      pieces = pieces.slice(first);
      pieces[0] = { bytes: pieces[0].bytes.subarray(at), lines: 0, plain: true };
      waiting = pieces.reduce((sum, { bytes }) => sum + bytes.length, 0);
      leftOut = true;
    };

    // Rests until that time, or until nothing comes any more.
    const rest = (until) => {
      timer = setTimeout(() => {
        const now = performance.now();
        const isQuiet = now - lastAt >= quietAfter;
        if (now < until && !isQuiet) rest(until);
        else draw(isQuiet);
      }, Math.min(quietAfter, until - performance.now()));
    };

    const draw = (isQuiet) => {
      timer = 0;
      passing = runsThrough(terminal);
      if (passing) leaveOut();
      passing &&= pieces.every(({ plain }) => plain);
      if (passing && leftOut && !isQuiet && looksAtEnd(terminal)) glimpse();
      else giveAll();
    };

    // In a flood only its newest piece is shown. All that was kept is given later and makes it as if this had never been.
    const glimpse = () => {
      const { bytes } = pieces.at(-1);
      const start = bytes.indexOf(carriageReturn);
      give(start < 0 ? [] : [bytes.subarray(start)], () => glimpseEvery);
    };

    const giveAll = () => {
      const [drawn, lines] = [waiting, linesOf(pieces)];
      const writes = pieces.map(({ bytes }) => bytes);
      pieces = [];
      waiting = 0;
      // Much plain text is drawn in a third of the time at most: what gathers meanwhile may need no drawing.
      const mayFlood = passing && drawn >= atOnce && drawn < lines * longLine;
      give(writes, (took) => (mayFlood ? Math.min(glimpseEvery, 2 * took) : 0));
    };

    const give = (writes, restAfter) => {
      const startedAt = performance.now();
      busy = true;
      leftOut = false;
      given = writes.reduce((sum, { length }) => sum + length, 0);
      for (const bytes of writes) terminal.write(bytes);
      terminal.write("", () => {
        busy = false;
        given = 0;
        whenRoom();
        const now = performance.now();
        const wait = restAfter(now - startedAt);
        if (wait) rest(now + wait);
        else if (pieces.length) draw(false);
      });
    };

    return {
      take,
      hasRoom: () => waiting + given <= (passing ? mostPassing : mostUndrawn),
      restart: () => {
        pieces = [];
        waiting = 0;
        passing = false;
        leftOut = false;
        // After what xterm still has to read, and before all that comes now.
        terminal.write("", () => terminal.reset());
      },
    };
  };
})();

// What copies text of a terminal. Programs may fill the clipboard (OSC 52) just after a press of the mouse only: so tmux
// copies what was dragged over, and a file that is printed fills nobody's clipboard. Nobody reads it.
(() => {
  const pressLasts = 5000; // ms
  const againLasts = 3000; // ms
  const modifiers = ["Control", "Shift", "Alt", "Meta"];
  const longest = 2 ** 20; // letters of base64

  // What a key does: "copy", "find", "leave", "paste" (the browser's own event brings the text), or "send".
  portal.terminalKey = ({ type, code, ctrlKey, shiftKey, altKey, metaKey }, hasSelection) => {
    if (type !== "keydown" || !ctrlKey || altKey || metaKey) return "send";
    if (code === "KeyC" && hasSelection) return "copy";
    if (!shiftKey) return "send";
    return { KeyF: "find", KeyX: "leave", KeyV: "paste" }[code] ?? "send";
  };

  const textOf = (data) => {
    const letters = data.slice(data.indexOf(";") + 1);
    if (!letters || letters === "?" || letters.length > longest) return "";
    try {
      return new TextDecoder().decode(Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0)));
    } catch {
      return "";
    }
  };

  // Copies what is dragged over. Returns a function that takes what a program has just copied: once, before another key or press.
  const copyByMouse = (terminal, place, copy) => {
    let isPressed = false;
    let pressedAt = -Infinity;
    let given = { text: "", at: -Infinity };
    const takeGiven = () => {
      const { text, at } = given;
      given = { text: "", at: -Infinity };
      return performance.now() - at < againLasts ? text : "";
    };
    const press = ({ button }) => {
      isPressed = button === 0;
      takeGiven();
    };
    place.addEventListener("mousedown", press, true);
    document.addEventListener("mouseup", () => {
      if (!isPressed) return;
      isPressed = false;
      pressedAt = performance.now();
      if (terminal.hasSelection()) copy(terminal.getSelection());
    });
    terminal.parser.registerOscHandler(52, (data) => {
      const text = textOf(data);
      const isAsked = performance.now() - pressedAt < pressLasts;
      if (text && isAsked) {
        copy(text);
        given = { text, at: performance.now() };
      }
      if (text) pressedAt = -Infinity;
      return true;
    });
    return takeGiven;
  };

  // Gives the keys and the mouse of a terminal what they do: `copy(text)`, `find()` and `leave()`. tmux drops its marking
  // when it has copied it, so a Ctrl-C just after a drag finds none: it copies that text again instead of interrupting.
  portal.bindTerminal = (terminal, place, { copy, find, leave }) => {
    const takeGiven = copyByMouse(terminal, place, copy);
    terminal.attachCustomKeyEventHandler((event) => {
      const isMarked = terminal.hasSelection();
      const given = event.type === "keydown" && !modifiers.includes(event.key) ? takeGiven() : "";
      const does = portal.terminalKey(event, isMarked || given !== "");
      if (does === "send") return true;
      if (does !== "paste") event.preventDefault();
      if (does === "copy") {
        copy(isMarked ? terminal.getSelection() : given);
        terminal.clearSelection();
      }
      ({ find, leave })[does]?.();
      return false;
    });
  };
})();

// The terminal of a session. Bytes travel as binary frames; text frames are JSON. Bytes are acknowledged as they come
// while little waits to be drawn, and held back while much does: so the way to the node never runs dry, and a program
// that prints without end is slowed down instead of flooding the page.
(() => {
  const acknowledgeEvery = 131072;
  const pasteAtOnce = 32768;
  const atOnceWithin = 3000; // ms: a shell that ends so soon was hardly ended by a person
  const encoder = new TextEncoder();
  const box = document.getElementById("terminal-box");
  if (!box) return;
  const [words, notice] = [box.dataset, portal.noticeOf(box)];
  const state = document.getElementById("terminal-state");
  const kernel = document.getElementById("terminal-kernel");
  const shell = document.getElementById("terminal-shell");
  const find = document.getElementById("terminal-find");
  const sought = document.getElementById("terminal-words");
  let screen = null;
  let feed = null;
  let socket = null;
  let unacknowledged = 0;
  let readyAt = 0;

  const sendJson = (message) => socket.send(JSON.stringify(message));
  const sendBytes = (bytes) => {
    for (let start = 0; start < bytes.length; start += pasteAtOnce) socket.send(bytes.subarray(start, start + pasteAtOnce));
  };
  const sendSize = () => sendJson({ type: "resize", rows: screen.terminal.rows, cols: screen.terminal.cols });
  const recorder = portal.recorderOf(document.getElementById("terminal-record"), notice);
  const take = (bytes) => {
    recorder.take(bytes);
    unacknowledged += bytes.length;
    feed.take(bytes);
    acknowledge();
  };
  const acknowledge = () => {
    if (unacknowledged < acknowledgeEvery || !feed.hasRoom()) return;
    sendJson({ type: "ack", bytes: unacknowledged });
    unacknowledged = 0;
  };

  const ends = {
    4000: [words.shellEnded, words.openAgain],
    4001: [words.kernelGone],
    4003: [words.notAllowed, words.reconnect],
    4004: [words.notRunning],
  };
  const connect = () => {
    state.textContent = words.connecting;
    const query = new URLSearchParams({ rows: screen.terminal.rows, cols: screen.terminal.cols });
    if (kernel) query.set("kernel", kernel.value);
    if (shell.value !== "1") query.set("shell", shell.value);
    socket = portal.steadySocket(() => portal.address(`${box.dataset.address}?${query}`), {
      onOpen: () => (unacknowledged = 0),
      onBytes: take,
      onMessage: (text) => {
        if (JSON.parse(text).type !== "ready") return;
        state.textContent = words.connected;
        readyAt = Date.now();
        notice("");
        sendSize();
      },
      onAway: (_, now) => {
        state.textContent = words.reconnecting;
        notice(words.interrupted, words.reconnectNow, now);
      },
      onEnd: (code, reason, isSignedOut) => {
        state.textContent = words.closed;
        if (isSignedOut) return notice(words.signedOut, words.signIn, () => portal.toSignIn(box));
        const [text, label] = ends[code] || [reason || words.terminalClosed, words.openAgain];
        const endedAtOnce = code === 4000 && Date.now() - readyAt < atOnceWithin;
        notice(endedAtOnce ? words.shellEndedAtOnce : text, label, () => { notice(""); socket.again(); screen.terminal.focus(); });
      },
    });
  };

  const copied = document.getElementById("terminal-copied");
  let copiedUntil = 0;
  const copy = async (text) => {
    copied.textContent = (await portal.copy(text)) ? words.copied : words.notCopied;
    clearTimeout(copiedUntil);
    copiedUntil = setTimeout(() => (copied.textContent = ""), 1500);
    screen.terminal.focus();
  };

  const open = () => {
    // Few lines, because they make drawing slower: where there is tmux, it keeps the past.
    const cursorBlink = !matchMedia("(prefers-reduced-motion: reduce)").matches;
    screen = portal.openScreen(box.querySelector(".screen"), { cursorBlink, scrollback: 10000, macOptionClickForcesSelection: true });
    feed = portal.feedOf(screen.terminal, acknowledge);
    screen.terminal.onData((text) => sendBytes(encoder.encode(text)));
    screen.terminal.onBinary((text) => sendBytes(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
    screen.terminal.onResize(sendSize);
    screen.terminal.onResize(recorder.resize);
    const leave = () => document.getElementById("tab-terminal").focus();
    portal.bindTerminal(screen.terminal, box.querySelector(".screen"), { copy, find: () => showFind(true), leave });
    connect();
    screen.terminal.focus();
    if (new URLSearchParams(location.search).get("terminal") === "window") tools.full(box.querySelector('[data-tool="full"]'));
  };

  // Called when the tab is shown and whenever the status of the session changes.
  portal.showTerminal = (status) => {
    if (status === "RUNNING") {
      if (!screen) { notice(""); open(); } else screen.terminal.focus();
      return;
    }
    if (["TERMINATED", "CANCELLED", "ERROR"].includes(status)) notice(words.sessionEnded);
    else if (status === "TERMINATING") notice(words.sessionEnding);
    else notice(words.notYet);
  };

  const goElsewhere = () => {
    recorder.stop();
    socket?.close();
    feed?.restart();
    if (!screen) return;
    notice("");
    connect();
    screen.terminal.focus();
  };
  kernel?.addEventListener("change", goElsewhere);
  shell.addEventListener("change", goElsewhere);

  const showFind = (isShown) => {
    find.hidden = !isShown;
    box.querySelector('[data-tool="find"]').setAttribute("aria-expanded", isShown);
    if (isShown) return sought.select(), sought.focus();
    if (soughtByTmux) sendJson({ type: "find", does: "end" });
    soughtByTmux = "";
    screen?.search.clearDecorations();
    screen?.terminal.focus();
  };
  find.addEventListener("submit", (event) => {
    event.preventDefault();
    lookFor("previous");
  });
  // tmux shows its screen in the alternate buffer, which keeps nothing of what has scrolled out: tmux itself has that.
  let soughtByTmux = "";
  const lookFor = (does) => {
    if (!screen || !sought.value) return;
    if (screen.terminal.buffer.active.type !== "alternate") return does === "next" ? screen.search.findNext(sought.value) : screen.search.findPrevious(sought.value);
    sendJson({ type: "find", does: sought.value === soughtByTmux ? does : "find", text: sought.value });
    soughtByTmux = sought.value;
  };
  find.addEventListener("keydown", (event) => {
    if (event.key === "Escape") showFind(false);
  });

  const tools = {
    find: () => showFind(find.hidden),
    findNext: () => lookFor("next"),
    record: () => screen && recorder.toggle(screen.terminal),
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

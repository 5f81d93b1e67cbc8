// The output of a kernel: followed while it runs, kept after its end. Drawn as a screen, so colours and progress bars
// look as in the terminal. A flood is thinned here; the download always has everything.
(() => {
  const mostWaiting = 16 * 2 ** 20;
  const box = document.getElementById("log-box");
  if (!box) return;
  const notice = portal.noticeOf(box);
  const state = document.getElementById("log-state");
  const kernel = document.getElementById("log-kernel");
  const follow = document.getElementById("log-follow");
  const download = document.getElementById("log-download");
  let screen = null;
  let socket = null;
  let waiting = 0;
  let left = 0;

  const draw = (bytes) => {
    if (waiting > mostWaiting) {
      left += bytes.length;
      return;
    }
    if (left) {
      const text = `\r\n\x1b[7m ${(left / 2 ** 20).toFixed(1)} MiB not shown, they came too fast; the download has them \x1b[0m\r\n`;
      screen.terminal.write(text);
      left = 0;
    }
    waiting += bytes.length;
    screen.terminal.write(bytes, () => (waiting -= bytes.length));
  };
  const stillEmpty = () => screen.terminal.buffer.active.length <= screen.terminal.rows && !screen.terminal.buffer.active.getLine(0)?.translateToString(true);

  const connect = () => {
    state.textContent = "Loading…";
    socket = portal.steadySocket(() => portal.address(`${box.dataset.address}?kernel=${kernel.value}`), {
      onOpen: () => {
        screen.terminal.reset();
        notice("");
        state.textContent = "Live";
      },
      onBytes: draw,
      onMessage: (text) => {
        if (JSON.parse(text).type === "truncated") screen.terminal.write("\x1b[7m The beginning was not kept \x1b[0m\r\n");
      },
      onAway: (wait, now) => {
        state.textContent = "Reconnecting…";
        notice("The connection is interrupted.", "Reconnect now", now);
      },
      onEnd: (code, reason) => {
        state.textContent = code === 4000 ? "Complete" : "";
        screen.terminal.write("", () => {
          if (code !== 4000) notice(reason || "The log of this kernel cannot be read now.", "Try again", () => socket.again());
          else if (stillEmpty()) notice("This kernel has written nothing.");
        });
      },
    });
  };

  const open = () => {
    screen = portal.openScreen(box.querySelector(".screen"), { quiet: true, disableStdin: true, convertEol: true, cursorInactiveStyle: "none", fontSize: 13 });
    connect();
  };

  portal.showLog = (status) => {
    if (screen) return;
    if (["PENDING", "SCHEDULED", "PREPARING", "PULLING"].includes(status)) notice("The log begins when the session starts.");
    else if (status === "CANCELLED") notice("The session never ran, so there is no log.");
    else open();
  };
  portal.chooseLog = (id) => {
    kernel.value = id;
    kernel.dispatchEvent(new Event("change"));
  };

  kernel.addEventListener("change", () => {
    download.href = `${download.dataset.base}?kernel=${kernel.value}`;
    if (!screen) return;
    socket.close();
    connect();
  });

  const atEnd = () => screen.terminal.buffer.active.viewportY >= screen.terminal.buffer.active.baseY;
  follow.addEventListener("change", () => {
    if (!screen) return;
    follow.checked ? screen.terminal.scrollToBottom() : screen.terminal.scrollLines(-1);
  });
  for (const kind of ["wheel", "touchmove", "keyup", "pointerup"]) {
    box.querySelector(".screen").addEventListener(kind, () => requestAnimationFrame(() => screen && (follow.checked = atEnd())), { passive: true });
  }

  const colours = { matchOverviewRuler: "#d29a2c", activeMatchColorOverviewRuler: "#3b4cca", matchBackground: "#d2b06a", activeMatchBackground: "#f0a400" };
  document.getElementById("log-find").addEventListener("submit", (event) => {
    event.preventDefault();
    const words = document.getElementById("log-words").value;
    if (!screen || !words) return;
    const options = { decorations: colours };
    const found = event.submitter?.name === "back" ? screen.search.findPrevious(words, options) : screen.search.findNext(words, options);
    state.textContent = found ? "" : `No “${words}” in the log`;
    follow.checked = atEnd();
  });
})();

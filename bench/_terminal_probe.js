// Runs in the page before its own scripts: counts what the terminal's socket brings, and notices when the page is blocked.
(() => {
  const lookEvery = 10; // ms
  const probe = { bytes: 0, worstPause: 0, terminal: null, startedAt: 0, seenAt: 0 };
  window.probe = probe;

  const Plain = window.WebSocket;
  window.WebSocket = class extends Plain {
    constructor(...address) {
      super(...address);
      this.addEventListener("message", ({ data }) => {
        if (typeof data === "string") return;
        probe.bytes += data.byteLength;
      });
    }
  };

  let Terminal;
  Object.defineProperty(window, "Terminal", {
    get: () => Terminal,
    set: (made) => {
      Terminal = class extends made {
        constructor(options) {
          super(options);
          probe.terminal ||= this;
        }
      };
    },
  });

  let last = performance.now();
  setInterval(() => {
    const now = performance.now();
    probe.worstPause = Math.max(probe.worstPause, now - last - lookEvery);
    last = now;
  }, lookEvery);

  const shows = (terminal, mark) => {
    const buffer = terminal.buffer.active;
    for (let row = 0; row < terminal.rows; row++) {
      if (buffer.getLine(buffer.baseY + row)?.translateToString(true).startsWith(mark)) return true;
    }
    return false;
  };

  // Notes the time when a line that begins so is drawn.
  probe.lookFor = (mark) => {
    probe.seenAt = 0;
    const waiting = probe.terminal.onRender(() => {
      if (!shows(probe.terminal, mark)) return;
      waiting.dispose();
      probe.seenAt = performance.now();
    });
  };

  probe.start = () => {
    probe.bytes = 0;
    probe.worstPause = 0;
    probe.startedAt = performance.now();
  };

  // The same bytes without any way: a terminal of the same size in the same place.
  probe.alone = async (bytes, line) => {
    const piece = new TextEncoder().encode(line.repeat(Math.ceil(65536 / line.length)));
    const startedAt = performance.now();
    for (let left = bytes; left > 0; left -= piece.length) {
      await new Promise((resolve) => probe.terminal.write(piece, resolve));
    }
    return performance.now() - startedAt;
  };
})();

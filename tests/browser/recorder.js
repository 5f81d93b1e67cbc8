// Runs before the page's own scripts: keeps what the sockets bring, and the terminal that is made first.
(() => {
  const record = { messages: [], bytes: 0, frames: 0, terminal: null };
  window.record = record;
  const Plain = window.WebSocket;
  window.WebSocket = class extends Plain {
    constructor(...address) {
      super(...address);
      this.addEventListener("message", ({ data }) => {
        if (typeof data === "string") return;
        record.messages.push(new Uint8Array(data.slice(0)));
        record.bytes += data.byteLength;
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
          record.terminal ||= this;
        }
      };
    },
  });
  record.holds = (text) => {
    const buffer = record.terminal.buffer.active;
    for (let y = buffer.length - 1; y >= 0; y--) if (buffer.getLine(y).translateToString().startsWith(text)) return true;
    return false;
  };
  const count = () => {
    record.frames += 1;
    requestAnimationFrame(count);
  };
  requestAnimationFrame(count);
})();

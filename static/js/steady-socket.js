// @ts-check
// Websockets that come back by themselves, and the line that says how they are.
window.portal = window.portal || {};
(() => {
  const refused = 4003;
  const signedOut = 401;

  // A socket that comes back by itself, unless the server ended it for a reason; `onEnd` is told the close code, the reason,
  // and whether nobody is signed in any more.
  const steadySocket = (address, { onOpen, onBytes, onMessage, onAway, onEnd }) => {
    let tries = 0;
    let socket = null;
    let timer = 0;
    let stopped = false;
    const connect = () => {
      clearTimeout(timer);
      socket = new WebSocket(address());
      socket.binaryType = "arraybuffer";
      const mine = socket;
      let opened = false;
      mine.onopen = () => {
        opened = true;
        if (mine === socket) onOpen();
      };
      mine.onmessage = ({ data }) => {
        if (mine !== socket) return;
        tries = 0;
        typeof data === "string" ? onMessage(data) : onBytes(new Uint8Array(data));
      };
      mine.onclose = async ({ code, reason }) => {
        if (mine !== socket || stopped) return;
        const refusal = !opened || code === refused ? await portal.refusalOf(`/api/v1/sessions/${mine.url.split("/")[5]}/`) : 0;
        if (mine !== socket || stopped) return;
        if (refusal) return onEnd(refused, "", refusal === signedOut);
        if (code >= 4000 && code < 5000) return onEnd(code, reason, false);
        tries += 1;
        const wait = Math.min(20000, 400 * 2 ** tries) * (0.5 + Math.random() / 2);
        timer = setTimeout(connect, wait);
        onAway(wait, connect);
      };
    };
    connect();
    return {
      send: (data) => socket.readyState === WebSocket.OPEN && socket.send(data),
      again: () => { tries = 0; connect(); },
      close: () => { stopped = true; clearTimeout(timer); socket.close(1000); },
    };
  };

  const address = (path) => `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`;

  // One line above the screen: what is going on, and a button when there is something to do about it.
  const noticeOf = (box) => {
    const place = box.querySelector(".screen-notice");
    return (text, label, action) => {
      place.replaceChildren(text || "");
      place.hidden = !text;
      if (!label) return;
      const button = Object.assign(document.createElement("button"), { type: "button", className: "btn btn-sm", textContent: label });
      button.addEventListener("click", action);
      place.append(button);
    };
  };

  // Anyone who signs in there comes back to this place.
  const toSignIn = (box) => {
    const next = location.pathname + location.search + location.hash;
    location.assign(`${box.dataset.signInAt}?${new URLSearchParams({ next })}`);
  };

  Object.assign(portal, { steadySocket, address, noticeOf, toSignIn });
})();

// @ts-check
// One websocket per page tells "this changed, look again". It carries no state: whenever it opens the page looks
// again at everything, and while the socket is away it looks every fifteen seconds.
window.portal = window.portal || {};
(() => {
  // A refused handshake (HTTP 403) tells a script nothing: the same question by HTTP says whether it is worth a retry.
  // Returns 401 (signed out), 403 or 404 (not allowed), and 0 where a retry may help.
  portal.refusalOf = async (address) => {
    try {
      const { status } = await fetch(address, { headers: { Accept: "application/json" } });
      return [401, 403, 404].includes(status) ? status : 0;
    } catch {
      return 0;
    }
  };

  const address = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/events/`;
  const pollEvery = 15000;
  const signedOut = 4003;
  let tries = 0;
  let poll = null;

  const announce = (name, detail) => document.dispatchEvent(new CustomEvent(name, { detail }));
  const mark = (what, away) => {
    const place = document.getElementById("live-mark");
    if (!place) return;
    place.hidden = false;
    place.textContent = place.dataset[what];
    place.classList.toggle("is-away", away);
  };

  const connect = () => {
    const socket = new WebSocket(address);
    let opened = false;
    socket.onopen = () => {
      opened = true;
      tries = 0;
      clearInterval(poll);
      poll = null;
      mark("live", false);
      // Something may have changed between the making of the page and now, or while the socket was away.
      announce("look-again-at-all");
    };
    socket.onmessage = ({ data }) => {
      try {
        const message = JSON.parse(data);
        if (message.type === "session") announce("session-changed", message);
        if (message.type === "job") announce("job-changed", message);
      } catch {
        // Not for us: a newer portal may send more kinds of messages.
      }
    };
    socket.onclose = async ({ code }) => {
      if (code === signedOut || (!opened && await portal.refusalOf("/api/v1/me/"))) {
        mark("signedOut", true);
        clearInterval(poll);
        return;
      }
      tries += 1;
      mark("away", true);
      poll ??= setInterval(() => document.hidden || announce("look-again-at-all"), pollEvery);
      setTimeout(connect, Math.min(30000, 500 * 2 ** tries) * (0.5 + Math.random() / 2));
    };
  };

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && poll) announce("look-again-at-all");
  });
  // Not before all scripts of the page listen: an earlier "look again" would be heard by nobody.
  if (document.readyState === "complete") connect();
  else document.addEventListener("DOMContentLoaded", connect);
})();

// What a page of an app could try against the portal and against another app of the same visitor. Each is "refused" or says how it got through.
async ({ portal, neighbour, session }) => {
  const answer = (asking) => asking.then((it) => `${it.type} ${it.status}`, () => "refused");
  const attempt = (act) => {
    try {
      return act() ?? "reached";
    } catch {
      return "refused";
    }
  };
  const socket = (address) =>
    new Promise((done) => {
      const one = new WebSocket(address);
      one.onopen = () => done("open");
      one.onerror = () => done("refused");
    });
  const loads = (name, address) =>
    new Promise((done) => {
      const one = document.createElement(name);
      one.onload = () => done(`loaded ${address}`);
      one.onerror = () => done("refused");
      one.src = address;
      document.body.append(one);
    });
  // A window has the page that was asked for after a while; until then it is an empty one of ours.
  const title = async (one) => {
    for (let tries = 0; one && tries < 100; tries++) {
      if (one.closed) return "refused";
      if (attempt(() => one.location.href) === "refused") return attempt(() => one.document.title);
      await new Promise((done) => setTimeout(done, 100));
    }
    return "an open window";
  };
  const readable = document.cookie;
  const launch = { method: "POST", credentials: "include", body: JSON.stringify({ name: "forged", image: "notes" }) };
  // The answer to this one is hidden from the page; whether it did anything is asked of the platform afterwards.
  await fetch(`${portal}/api/v1/sessions/`, { ...launch, mode: "no-cors" }).catch(() => {});
  const opened = window.open(`${portal}/account/`, "portal");
  const frame = document.body.appendChild(Object.assign(document.createElement("iframe"), { src: `${portal}/account/` }));
  await new Promise((done) => {
    frame.onload = frame.onerror = done;
  });
  const host = location.hostname;
  for (const domain of [host.split(".").slice(1).join("."), "localhost", new URL(portal).hostname]) {
    for (const name of ["portal", "csrf", "sessionid", "backendai-app"]) document.cookie = `${name}=forged; domain=${domain}; path=/`;
  }
  return {
    "read cookies": readable || "refused",
    "read by fetch": await answer(fetch(`${portal}/api/v1/me/`, { credentials: "include" })),
    "change by fetch": await answer(fetch(`${portal}/api/v1/sessions/`, launch)),
    "listen by websocket": await socket(`${portal.replace("http", "ws")}/ws/events/`),
    "type by websocket": await socket(`${portal.replace("http", "ws")}/ws/sessions/${session}/terminal/`),
    "read a frame": attempt(() => frame.contentDocument?.title ?? "refused"),
    "script a window": await title(opened),
    "script the opener": window.opener === null ? "refused" : "an opener",
    "load as a script": await loads("script", `${portal}/api/v1/me/`),
    "register a service worker": await navigator.serviceWorker.register(`${portal}/static/js/page.js`).then(() => "registered", () => "refused"),
    "read another app": await answer(fetch(`${neighbour}/headers`, { credentials: "include" })),
    "listen at another app": await socket(`${neighbour.replace("http", "ws")}/ws`),
  };
};

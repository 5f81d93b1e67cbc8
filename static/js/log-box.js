// @ts-check
// The log of a session over the list: every link to one opens it here; its address keeps it over a reload, Back and Esc
// close it.
(() => {
  const dialog = document.getElementById("session-box");
  const ofSession = /^\/sessions\/([0-9a-f-]{36})\/$/;
  const asked = () => new URLSearchParams(location.search).get("log") || "";
  let told = asked();
  let shown = "";

  const addressWith = (id, kernel) => {
    const address = new URL(location.href);
    for (const [name, value] of [["log", id], ["kernel", kernel]]) {
      value ? address.searchParams.set(name, value) : address.searchParams.delete(name);
    }
    return address.pathname + address.search;
  };
  const show = async () => {
    const id = asked();
    const address = `/sessions/${encodeURIComponent(id)}/`;
    const text = await portal.part(`${address}log/`);
    if (asked() !== id) return;
    if (!text) {
      location.replace(`${address}#log`);
      return;
    }
    if (shown) portal.endLog();
    shown = id;
    portal.fillBox(text, "log");
    portal.beginLog();
    portal.showLog(document.getElementById("log-title").dataset.status);
    document.getElementById("log-view").focus();
  };

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href]");
    const id = link && link.hash === "#log" && ofSession.exec(link.pathname)?.[1];
    if (!id || event.defaultPrevented || !portal.isPlain(event)) return;
    event.preventDefault();
    const kernel = link.dataset.logOf || new URLSearchParams(link.search).get("kernel");
    history.pushState({ drawer: history.state?.drawer, log: true }, "", addressWith(id, kernel));
    told = id;
    show();
  });
  document.addEventListener("session-changed", ({ detail }) => detail.id === shown && portal.showLog(detail.status));

  dialog.addEventListener("close", () => {
    if (!shown) return;
    const left = shown;
    shown = "";
    portal.endLog();
    if (!asked()) told = "";
    else if (history.state?.log) history.back();
    else history.replaceState(history.state, "", addressWith((told = "")));
    // The row may have been drawn anew since; the browser would give the focus to nothing then.
    if (document.activeElement !== document.body) return;
    [...document.querySelectorAll("#session-list a[href$='#log']")].find((each) => each.pathname.includes(left))?.focus();
  });
  // Before htmx, which would draw the list from its memory although only the box over it comes or goes.
  addEventListener("popstate", (event) => {
    const id = asked();
    if (id === told) return;
    told = id;
    event.stopImmediatePropagation();
    if (id) show();
    else dialog.close();
  }, true);

  if (asked()) portal.drawn.then(show);
})();

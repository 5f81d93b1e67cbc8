// @ts-check
// The live parts of a session's panel, on its page and over the list: looked at again when the session changes.
(() => {
  const panel = () => document.getElementById("session-page");
  const state = () => document.getElementById("session-state");
  const outlook = () => document.getElementById("outlook");
  const name = () => document.getElementById("session-name")?.textContent || "";
  const waitsFor = () => state()?.dataset.wait?.trim() || "";

  let planned = 0;
  const lookAgain = () => {
    clearTimeout(planned);
    planned = setTimeout(() => panel() && htmx.trigger("#session-head", "look-again"), 120);
  };
  document.addEventListener("session-changed", ({ detail }) => {
    if (detail.id === panel()?.dataset.panelOf && detail.version > Number(state().dataset.version)) lookAgain();
  });
  document.addEventListener("look-again-at-all", lookAgain);
  // What is measured, and with it when an idle checker ends it, moves without the session changing.
  setInterval(() => !document.hidden && document.querySelector("#session-page .idle-check") && lookAgain(), 30000);

  // What would start it now: looked at again when what it waits for changes, every few seconds at most.
  let lookedAt = 0;
  let looksAt = 0;
  let reason = "";
  let shownText = "";
  let last = "";
  let named = "";
  const forget = () => {
    clearTimeout(looksAt);
    looksAt = 0;
    shownText = "";
  };
  const lookAhead = () => {
    if (waitsFor() === reason) return;
    reason = waitsFor();
    if (!reason) {
      forget();
      htmx.trigger(outlook(), "htmx:abort");
      outlook().replaceChildren();
    } else if (!looksAt) {
      looksAt = setTimeout(() => {
        looksAt = 0;
        lookedAt = Date.now();
        if (outlook()) htmx.trigger(outlook(), "look-again");
      }, outlook().querySelector("section") ? Math.max(0, lookedAt + 3000 - Date.now()) : 0);
    }
  };
  document.addEventListener("htmx:beforeSwap", ({ detail }) => {
    const { elt, path } = detail.requestConfig;
    if (elt.id !== "outlook" && elt.id !== "session-head") return;
    // An answer about a session whose panel is not there any more.
    if (!panel() || !path.includes(panel().dataset.panelOf)) {
      detail.shouldSwap = false;
      return;
    }
    if (elt.id === "session-head") return;
    if (detail.serverResponse === shownText) detail.shouldSwap = false;
    shownText = detail.serverResponse;
  });

  // Another session's panel is there: nothing that is known of the one before counts.
  portal.beginPanel = () => {
    forget();
    lookedAt = Date.now();
    reason = waitsFor();
    last = state()?.dataset.status;
    named = name();
  };
  // The window is called as the session is, also once somebody has renamed it.
  const renameWindow = () => {
    if (document.title.startsWith(named)) document.title = name() + document.title.slice(named.length);
    named = name();
  };

  document.addEventListener("htmx:oobAfterSwap", ({ detail }) => {
    if (detail.target.id !== "session-head") return;
    lookAhead();
    renameWindow();
    const status = state().dataset.status;
    if (status === last) return;
    last = status;
    document.getElementById("announce").textContent = state().querySelector(".status").textContent;
    document.dispatchEvent(new CustomEvent("session-status", { detail: status }));
  });

  portal.beginPanel();
})();

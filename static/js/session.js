// The page of one session: its tabs, and its live parts.
(() => {
  const page = document.getElementById("session-page");
  const tabs = [...page.querySelectorAll("[role=tab]")];
  const status = () => document.getElementById("session-state").dataset.status;
  const shown = () => tabs.find((tab) => tab.getAttribute("aria-selected") === "true");
  const open = {
    "#terminal": () => portal.showTerminal(status()),
    "#log": () => portal.showLog(status()),
    "#history": () => htmx.trigger("#history-rows", "look-again"),
  };

  // The address of a tab would also take the keyboard's focus to the pane, away from the terminal.
  for (const tab of tabs) {
    const pane = document.getElementById(tab.getAttribute("aria-controls"));
    pane.id = `pane-${pane.id}`;
    tab.setAttribute("aria-controls", pane.id);
  }

  const show = (tab) => {
    for (const other of tabs) {
      const chosen = other === tab;
      other.setAttribute("aria-selected", chosen);
      other.tabIndex = chosen ? 0 : -1;
      document.getElementById(other.getAttribute("aria-controls")).classList.toggle("is-shown", chosen);
    }
    open[tab.hash]?.();
  };
  const showByHash = () => show(tabs.find((tab) => tab.hash === location.hash) || tabs[0]);
  const choose = (tab) => {
    history.replaceState(null, "", tab.hash);
    show(tab);
  };

  page.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#'], a[data-tab]");
    const tab = link && tabs.find((each) => each.hash === (link.dataset.tab || link.hash));
    if (!tab) return;
    event.preventDefault();
    if (link.dataset.tab) tab.focus();
    if (link.dataset.logOf) portal.chooseLog(link.dataset.logOf);
    choose(tab);
  });
  page.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(tabs.indexOf(shown()) + step + tabs.length) % tabs.length];
    next.focus();
    if (next.hash !== "#terminal") choose(next);
    else show(next), next.focus();
  });
  addEventListener("hashchange", showByHash);

  let planned = 0;
  const lookAgain = () => {
    clearTimeout(planned);
    planned = setTimeout(() => htmx.trigger("#session-head", "look-again"), 120);
  };
  document.addEventListener("session-changed", ({ detail }) => {
    const known = Number(document.getElementById("session-state").dataset.version);
    if (detail.id === page.dataset.session && detail.version > known) lookAgain();
  });
  document.addEventListener("look-again-at-all", lookAgain);

  // What would start it now: looked at again when what it waits for changes, every few seconds at most.
  const outlook = document.getElementById("outlook");
  const waitsFor = () => document.getElementById("session-state").dataset.wait?.trim() || "";
  let lookedAt = Date.now();
  let looksAt = 0;
  let reason = waitsFor();
  let shownText = "";
  const lookAhead = () => {
    if (waitsFor() === reason) return;
    reason = waitsFor();
    if (!reason) {
      clearTimeout(looksAt);
      looksAt = 0;
      htmx.trigger(outlook, "htmx:abort");
      outlook.replaceChildren();
      shownText = "";
    } else if (!looksAt) {
      looksAt = setTimeout(() => {
        looksAt = 0;
        lookedAt = Date.now();
        htmx.trigger(outlook, "look-again");
      }, outlook.querySelector("section") ? Math.max(0, lookedAt + 3000 - Date.now()) : 0);
    }
  };
  outlook.addEventListener("htmx:beforeSwap", ({ detail }) => {
    if (detail.serverResponse === shownText) detail.shouldSwap = false;
    shownText = detail.serverResponse;
  });

  let last = status();
  document.addEventListener("htmx:oobBeforeSwap", (event) => {
    if (event.detail.target.open) event.detail.shouldSwap = false;
  });
  document.addEventListener("htmx:oobAfterSwap", (event) => {
    if (event.detail.target.id !== "session-head") return;
    lookAhead();
    if (shown().hash === "#history") open["#history"]();
    if (status() === last) return;
    last = status();
    document.getElementById("announce").textContent = page.querySelector("#session-state .status").textContent;
    if (shown().hash !== "#history") open[shown().hash]?.();
  });

  showByHash();
})();

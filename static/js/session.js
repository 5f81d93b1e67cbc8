// @ts-check
// The page of one session: its tabs.
(() => {
  const page = document.getElementById("session-page");
  const tabs = [...page.querySelectorAll("[role=tab]")];
  const status = () => document.getElementById("session-state").dataset.status;
  const shown = () => tabs.find((tab) => tab.getAttribute("aria-selected") === "true");
  const open = {
    "#terminal": () => portal.showTerminal(status()),
    "#log": () => portal.showLog(status()),
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
    const link = event.target.closest("a[href*='#']");
    const tab = link && link.pathname === location.pathname && tabs.find((each) => each.hash === link.hash);
    if (!tab || event.defaultPrevented) return;
    event.preventDefault();
    if (link.dataset.logOf) portal.chooseLog(link.dataset.logOf);
    choose(tab);
    if (link !== tab && tab.hash !== "#terminal") tab.focus();
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
  document.addEventListener("session-status", () => open[shown().hash]?.());

  const kernel = new URLSearchParams(location.search).get("kernel");
  if (kernel && document.querySelector(`#log-kernel option[value="${CSS.escape(kernel)}"]`)) portal.chooseLog(kernel);
  showByHash();
})();

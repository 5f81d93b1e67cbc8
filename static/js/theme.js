// @ts-check
// Sets the colours before the first paint; the rest of the page waits for nothing else.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => {
    try {
      return localStorage.getItem("theme") || "auto";
    } catch {
      return "auto";
    }
  };
  const apply = () => {
    const choice = chosen();
    root.dataset.themeChoice = choice;
    root.dataset.bsTheme = choice === "auto" ? (system.matches ? "dark" : "light") : choice;
    root.dispatchEvent(new CustomEvent("themechange"));
  };
  system.addEventListener("change", apply);
  addEventListener("storage", apply);
  addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-set-theme]");
    if (!button) return;
    try {
      localStorage.setItem("theme", button.dataset.setTheme);
    } catch {
      // Storage is blocked: the choice then lasts as long as the page.
    }
    apply();
    if (chosen() !== button.dataset.setTheme) root.dataset.bsTheme = button.dataset.setTheme;
  });
  root.classList.add("has-js");
  apply();
})();

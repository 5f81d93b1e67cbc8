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

// What somebody presses or drops before the page's scripts have come is kept, and done once all of them listen: a button
// of a script would do nothing, and a browser opens a dropped file instead of the page. Of several presses the last counts.
(() => {
  const waits = "button, [data-dialog], [data-box], [data-pick]";
  const brings = ({ dataTransfer }) => dataTransfer?.types.includes("Files");
  let pressed = null;
  let dropped = null;
  const keep = (event) => {
    const control = event.target.closest?.(waits);
    if (!control || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    pressed = control;
  };
  const over = (event) => brings(event) && event.preventDefault();
  // Afterwards the browser has let go of the event's own list, but not of the files and directories in it.
  const drop = (event) => {
    if (!brings(event)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const items = [...event.dataTransfer.items].filter(({ kind }) => kind === "file").map((item) => {
      const [entry, file] = [item.webkitGetAsEntry?.() ?? null, item.getAsFile()];
      return { kind: "file", webkitGetAsEntry: () => entry, getAsFile: () => file };
    });
    dropped = { target: event.target, dataTransfer: { types: ["Files"], items, files: [...event.dataTransfer.files] } };
  };
  const heard = { click: keep, dragover: over, drop };
  for (const [kind, act] of Object.entries(heard)) document.addEventListener(kind, act, true);
  document.addEventListener("DOMContentLoaded", () => setTimeout(() => {
    for (const [kind, act] of Object.entries(heard)) document.removeEventListener(kind, act, true);
    if (dropped?.target.isConnected) {
      const { target, dataTransfer } = dropped;
      target.dispatchEvent(Object.assign(new Event("drop", { bubbles: true, cancelable: true }), { dataTransfer }));
    }
    if (pressed?.isConnected) pressed.click();
  }));
})();

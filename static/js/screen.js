// @ts-check
// A text screen (xterm.js) that fits its place and follows the page's colours; the terminal and the log are built on it.
window.portal = window.portal || {};
(() => {
  const palettes = {
    light: {
      background: "#ffffff", foreground: "#1a2233", cursor: "#3b4cca", cursorAccent: "#ffffff", selectionBackground: "#c9d0f7",
      black: "#1a2233", red: "#b42330", green: "#116b43", yellow: "#7a5000", blue: "#1c5fb8", magenta: "#8a2a8f", cyan: "#0b6a78", white: "#586174",
      brightBlack: "#586174", brightRed: "#c92a3a", brightGreen: "#18784d", brightYellow: "#8a5a00", brightBlue: "#2b6fd0", brightMagenta: "#9c36a3", brightCyan: "#0f7787", brightWhite: "#1a2233",
    },
    dark: {
      background: "#0b0f17", foreground: "#dfe5ef", cursor: "#a3afff", cursorAccent: "#0b0f17", selectionBackground: "#35406e",
      black: "#2a3344", red: "#ff8a90", green: "#6fdaa6", yellow: "#f3c26b", blue: "#8dbdf8", magenta: "#dba1ee", cyan: "#6fd3e0", white: "#dfe5ef",
      brightBlack: "#8391a8", brightRed: "#ffabaf", brightGreen: "#93e8be", brightYellow: "#f8d596", brightBlue: "#b0d2fb", brightMagenta: "#e8c0f5", brightCyan: "#9ae3ec", brightWhite: "#ffffff",
    },
  };
  const palette = (quiet) => {
    const colours = palettes[document.documentElement.dataset.bsTheme] || palettes.light;
    return quiet ? { ...colours, cursor: colours.background } : colours;
  };

  const remembered = (name, fallback) => {
    try {
      return JSON.parse(localStorage.getItem(name)) ?? fallback;
    } catch {
      return fallback;
    }
  };
  const remember = (name, value) => {
    try {
      localStorage.setItem(name, JSON.stringify(value));
    } catch {
      // Storage is blocked: the choice lasts as long as the page.
    }
  };

  // Where WebGL is emulated by the processor, drawing with elements is four times as fast.
  const hasGraphicsProcessor = () => {
    const context = document.createElement("canvas").getContext("webgl2", { failIfMajorPerformanceCaveat: true });
    if (!context) return false;
    const names = context.getExtension("WEBGL_debug_renderer_info");
    const drawer = context.getParameter(names ? names.UNMASKED_RENDERER_WEBGL : context.RENDERER);
    context.getExtension("WEBGL_lose_context")?.loseContext();
    return !/swiftshader|llvmpipe|software|basic render/i.test(drawer);
  };

  const drawFast = (terminal) => {
    if (!hasGraphicsProcessor()) return;
    try {
      const webgl = new WebglAddon.WebglAddon();
      webgl.onContextLoss(() => webgl.dispose());
      terminal.loadAddon(webgl);
    } catch {
      // No WebGL after all: xterm goes on drawing with elements.
    }
  };

  const keepFitting = (terminal, place) => {
    const fit = new FitAddon.FitAddon();
    terminal.loadAddon(fit);
    let planned = 0;
    const refit = () => {
      planned = 0;
      if (place.offsetWidth > 0 && place.offsetHeight > 0) fit.fit();
    };
    const plan = () => (planned ||= requestAnimationFrame(refit));
    new ResizeObserver(plan).observe(place);
    refit();
    return plan;
  };

  // Returns the terminal, its search, and `refit` for changes that the place's size does not show.
  const openScreen = (place, { quiet = false, ...options } = {}) => {
    const terminal = new Terminal({
      allowProposedApi: true,
      fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--tblr-font-monospace"),
      fontSize: remembered("screen-font", 14),
      lineHeight: 1.1, // a row is a whole number of pixels, rounded down: at 14 px that cuts the underscore of DejaVu Sans Mono off
      scrollback: 50000,
      screenReaderMode: remembered("screen-reader", false),
      minimumContrastRatio: 4.5,
      theme: palette(quiet),
      ...options,
    });
    terminal.open(place);
    terminal.loadAddon(new Unicode11Addon.Unicode11Addon());
    terminal.unicode.activeVersion = "11";
    terminal.loadAddon(new WebLinksAddon.WebLinksAddon((_, address) => open(address, "_blank", "noopener,noreferrer")));
    const search = new SearchAddon.SearchAddon();
    terminal.loadAddon(search);
    drawFast(terminal);
    const refit = keepFitting(terminal, place);
    document.documentElement.addEventListener("themechange", () => (terminal.options.theme = palette(quiet)));
    return { terminal, search, refit };
  };

  Object.assign(portal, { openScreen, remembered, remember });
})();

// @ts-check
// A cursor in plots: the column under the pointer or the arrow keys is told beneath, in all plots that stand side by side
// at the same time. The columns and their words are the server's, so plots can be read without this script, too.
(() => {
  const columnsOf = (svg) => [...svg.querySelectorAll("g")].filter((one) => one.querySelector("title") && !one.querySelector(".endpoint-mark"));
  const edge = (column, end) => {
    const bar = column.querySelector("rect");
    return Number(bar.getAttribute("x")) + (end ? Number(bar.getAttribute("width")) : 0);
  };
  const nearest = (columns, x) => columns.findLast((one) => edge(one, false) <= x) ?? columns[0];
  const beside = (svg) => svg.closest("[data-plots]")?.querySelectorAll("svg[data-plot]") ?? [svg];

  const tell = (svg, text) => {
    let readout = svg.nextElementSibling;
    if (!readout?.matches(".plot-readout")) {
      if (!text) return;
      svg.insertAdjacentHTML("afterend", '<output class="plot-readout number"></output>');
      readout = svg.nextElementSibling;
    }
    readout.textContent = text;
  };
  const put = (svg, x) => {
    for (const one of beside(svg)) {
      const columns = columnsOf(one);
      const column = x === undefined ? undefined : nearest(columns, x);
      for (const each of columns) each.classList.toggle("is-read", each === column);
      tell(one, column?.querySelector("title").textContent ?? "");
    }
  };

  const plotOf = (event) => (event.target instanceof Element ? event.target.closest("svg[data-plot]") : null);
  document.addEventListener("pointermove", (event) => {
    const svg = plotOf(event);
    if (!svg) return;
    const box = svg.getBoundingClientRect();
    put(svg, ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width);
  });
  document.addEventListener("pointerout", (event) => {
    const svg = plotOf(event);
    if (svg && !svg.contains(/** @type {Node | null} */ (event.relatedTarget)) && document.activeElement !== svg) put(svg, undefined);
  });
  document.addEventListener("focusout", (event) => {
    const svg = plotOf(event);
    if (svg) put(svg, undefined);
  });
  document.addEventListener("keydown", (event) => {
    const svg = plotOf(event);
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    const columns = svg && step ? columnsOf(svg) : [];
    if (!columns.length) return;
    event.preventDefault();
    const at = columns.findIndex((one) => one.classList.contains("is-read"));
    const from = at < 0 ? (step < 0 ? columns.length : -1) : at;
    put(svg, edge(columns[Math.min(Math.max(from + step, 0), columns.length - 1)], false));
  });
})();

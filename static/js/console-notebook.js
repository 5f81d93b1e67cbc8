// @ts-check
// The cells of a console as a notebook of Jupyter. What was not kept is named where it is missing.
window.portal = window.portal || {};
portal.notebookOf = (cells, language, words) => {
  const lines = (text) => text.split(/(?<=\n)/);
  const output = (item, count) => {
    if (item.type === "stdout" || item.type === "stderr") return { output_type: "stream", name: item.type, text: lines(item.text) };
    if (item.type === "error") return { output_type: "error", ename: item.name || "", evalue: item.value || "", traceback: (item.traceback || "").split("\n") };
    if (item.type === "html") return { output_type: "display_data", data: { "text/html": lines(item.html), "text/plain": lines(item.text || "") }, metadata: {} };
    if (item.type === "media" && item.mime === "text/plain") return { output_type: "execute_result", execution_count: count, data: { "text/plain": lines(item.data) }, metadata: {} };
    if (item.type === "media") return { output_type: "display_data", data: { [item.mime]: item.data }, metadata: {} };
    const said = item.type === "gap" ? portal.consoleGap(item, words) : item.text || "";
    return { output_type: "stream", name: "stderr", text: [`${said}\n`] };
  };
  return {
    nbformat: 4,
    nbformat_minor: 5,
    metadata: { kernelspec: { name: language, display_name: language }, language_info: { name: language.replace(/\d+$/, "") } },
    cells: cells.map(({ id, code, items }, index) => ({
      cell_type: "code",
      id: id.slice(0, 64),
      metadata: {},
      execution_count: index + 1,
      source: lines(code),
      outputs: items.map((item) => output(item, index + 1)),
    })),
  };
};

// @ts-check
// Previews of notebooks and of tables in CSV or TSV, made of texts and images alone: nothing in a file becomes markup.
(() => {
  const mostRows = 500;
  const mostColumns = 100;
  const images = ["image/png", "image/jpeg"];
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };

  // The rows of a table: fields in quotes may hold separators, line ends and doubled quotes.
  const rowsOf = (text, separator) => {
    const rows = [[""]];
    let quoted = false;
    for (let at = 0; at < text.length; at += 1) {
      const letter = text[at];
      const row = rows[rows.length - 1];
      if (quoted && letter === '"' && text[at + 1] === '"') row[row.length - 1] += text[(at += 1)];
      else if (letter === '"' && (quoted || row[row.length - 1] === "")) quoted = !quoted;
      else if (!quoted && letter === separator) row.push("");
      else if (!quoted && letter === "\n") rows.push([""]);
      else if (quoted || letter !== "\r") row[row.length - 1] += letter;
    }
    return rows.filter((row) => row.length > 1 || row[0] !== "");
  };
  const separatorOf = (path, text) => {
    if (/\.tsv$/i.test(path)) return "\t";
    const line = text.slice(0, text.search(/\n|$/));
    return line.split(";").length > line.split(",").length ? ";" : ",";
  };
  const table = (path, text, words) => {
    const rows = rowsOf(text, separatorOf(path, text));
    if (rows.length < 2) return null;
    const cells = (row, tag) => row.slice(0, mostColumns).map((content) => make(tag, { textContent: content }));
    const [head, ...body] = rows;
    const shown = body.slice(0, mostRows).map((row) => make("tr", {}, ...cells(row, "td")));
    const element = make("table", { className: "preview-table" }, make("thead", {}, make("tr", {}, ...cells(head, "th"))), make("tbody", {}, ...shown));
    for (const heading of element.querySelectorAll("th")) heading.scope = "col";
    const note = body.length > mostRows ? [make("p", { className: "pane-note", textContent: words.rows.replace("%n", mostRows).replace("%m", body.length) })] : [];
    return make("div", {}, ...note, element);
  };

  const joined = (source) => (Array.isArray(source) ? source.join("") : String(source ?? ""));
  const colours = /\x1b\[[0-9;]*m/g;
  const image = (kind, data, name) => {
    const bytes = Uint8Array.from(atob(joined(data).replace(/\s/g, "")), (letter) => letter.charCodeAt(0));
    return make("img", { src: URL.createObjectURL(new Blob([bytes], { type: kind })), alt: name });
  };
  const output = (told, name) => {
    const kind = images.find((one) => told.data?.[one]);
    if (kind) return image(kind, told.data[kind], name);
    const text = told.output_type === "error" ? joined(told.traceback?.map((line) => `${line}\n`)) || `${told.ename}: ${told.evalue}` : joined(told.text ?? told.data?.["text/plain"]);
    const isBad = told.output_type === "error" || told.name === "stderr";
    return make("pre", { className: isBad ? "preview-bad" : "", textContent: text.replace(colours, "") });
  };
  const cell = (told, number, words) => {
    const source = joined(told.source);
    if (told.cell_type !== "code") return make("div", { className: "preview-prose", textContent: source });
    const outputs = (told.outputs ?? []).map((one) => output(one, words.output.replace("%n", number)));
    const label = make("span", { className: "sub", textContent: `[${told.execution_count ?? " "}]` });
    return make("div", { className: "preview-cell" }, label, make("pre", { className: "preview-code", textContent: source }), ...outputs);
  };
  const notebook = (text, words) => {
    const { cells } = JSON.parse(text);
    return Array.isArray(cells) ? make("div", {}, ...cells.map((one, index) => cell(one, index + 1, words))) : null;
  };

  // An element that shows the file; null where its text says more.
  window.folderPreview = (path, marked, words) => {
    const text = marked.replace(/^\ufeff/, ""); // the mark with which some programs begin a text
    try {
      if (/\.ipynb$/i.test(path)) return notebook(text, words);
      return /\.[ct]sv$/i.test(path) ? table(path, text, words) : null;
    } catch {
      return null; // the file is not what its name says
    }
  };
})();

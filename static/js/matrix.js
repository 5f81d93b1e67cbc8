// @ts-check
// The values of an array: a row for each name in place of the lines of text that are sent, and how many elements they make.
document.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("matrix");
  if (!place) return;
  const text = document.getElementById("id_matrix");
  const find = (name) => place.querySelector(`[data-${name}]`);
  const [count, add, template] = [find("count"), find("add"), place.querySelector("template")];
  const rows = () => [...place.querySelectorAll(".variable[data-row]")];
  /** @returns {[string, string] | null} */
  const parts = (line) => {
    const at = line.indexOf("=");
    return at < 0 ? null : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  };
  const valuesOf = (said) => said.split(",").filter((one) => one.trim()).length;

  const tell = () => {
    const said = text.value.split("\n").map(parts).filter((pair) => pair?.[0] && valuesOf(pair[1]));
    const number = said.reduce((product, [, values]) => product * valuesOf(values), 1);
    const most = Number(place.dataset.most);
    const { one, many, tooMany } = count.dataset;
    const shown = new Intl.NumberFormat(document.documentElement.lang);
    count.hidden = !said.length;
    count.classList.toggle("state-bad", number > most);
    count.textContent = (number > most ? tooMany : number === 1 ? one : many).replace("NUMBER", shown.format(number)).replace("MOST", shown.format(most));
  };
  const write = () => {
    // A row that is still being typed says nothing yet.
    const isOpen = (row) => row.contains(document.activeElement) && !row.querySelector("[data-values]").value.trim();
    text.value = rows().filter((row) => !isOpen(row)).map((row) => row.querySelectorAll("input")).map(([name, values]) => (name.value.trim() || values.value.trim() ? `${name.value.trim()} = ${values.value.trim()}` : "")).filter(Boolean).join("\n");
    text.dispatchEvent(new Event("input", { bubbles: true }));
    text.dispatchEvent(new Event("change", { bubbles: true }));
  };
  const append = ([name, values] = ["", ""]) => {
    const row = template.content.firstElementChild.cloneNode(true);
    const inputs = row.querySelectorAll("input");
    [inputs[0].value, inputs[1].value] = [name, values];
    const example = text.placeholder.split("\n").map(parts)[rows().length] ?? ["", ""];
    [inputs[0].placeholder, inputs[1].placeholder] = example;
    for (const input of inputs) {
      input.setAttribute("form", ""); // the text is what is sent
      input.readOnly = text.readOnly;
      input.addEventListener("input", (event) => {
        event.stopPropagation();
        write();
      });
    }
    row.addEventListener("focusout", () => setTimeout(write)); // when the next field has the focus
    row.querySelector("[data-remove]").addEventListener("click", () => {
      row.remove();
      write();
      add.focus();
    });
    add.before(row);
    return inputs[0];
  };
  const show = () => {
    const lines = text.value.split("\n").filter((line) => line.trim()).map(parts);
    if (lines.includes(null)) return; // a text that rows cannot show stays as it is
    for (const row of rows()) row.remove();
    text.hidden = true;
    add.hidden = text.readOnly;
    for (const pair of lines) append(pair);
    text.dataset.standIn = "matrix-first";
    place.querySelector("[data-name]")?.setAttribute("id", "matrix-first");
  };
  add.addEventListener("click", () => append().focus());
  text.addEventListener("input", tell);
  show();
  tell();
});

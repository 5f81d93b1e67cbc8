// @ts-check
// The cells of a console: the code of runs, their states and output, in the order of the runs.
window.portal = window.portal || {};
portal.consoleCells = (box, { onEdit, onAnswer, onWhole }) => {
  const part = (name) => document.getElementById(`console-${name}`);
  const [list, empty, contextBox, words] = [part("cells"), part("empty"), part("context"), box.dataset];
  const live = new Set(["SENDING", "QUEUED", "STARTING", "CLEANING", "BUILDING", "RUNNING", "WAITING_INPUT", "INTERRUPTING"]);
  const interruptible = new Set(["CLEANING", "BUILDING", "RUNNING", "WAITING_INPUT", "INTERRUPTING"]);
  const cells = new Map(); // run id → cell
  const displays = new Map();

  const cellOf = (run) => {
    const known = cells.get(run.run_id);
    if (known) return known;
    const element = part("cell").content.firstElementChild.cloneNode(true);
    const find = (selector) => element.querySelector(selector);
    const cell = {
      id: run.run_id, element, code: "", length: 0, state: "", context: run.context, number: Infinity, offset: 0, end: 0,
      ask: find(".console-ask"), stateBox: find(".console-cell-state"), source: find(".console-source"), cut: find(".console-cut"),
      output: new portal.ConsoleOutput(find(".console-output"), words, displays),
    };
    find("[data-again]").addEventListener("click", () => onEdit(cell));
    cell.cut.querySelector("button").addEventListener("click", () => onWhole(cell));
    cell.ask.addEventListener("submit", (event) => {
      event.preventDefault();
      const field = cell.ask.querySelector("input");
      if (onAnswer(cell, field.value)) field.value = "";
    });
    cells.set(run.run_id, cell);
    list.append(element);
    return cell;
  };
  // Older runs may come after younger ones.
  const place = (cell, number) => {
    if (!number || cell.number === number) return;
    cell.number = number;
    let next = list.firstElementChild;
    const numbers = new Map(Array.from(cells.values(), (one) => [one.element, one.number]));
    while (next && (next === cell.element || numbers.get(next) < number)) next = next.nextElementSibling;
    if (cell.element.nextElementSibling !== next) list.insertBefore(cell.element, next);
  };
  const setCode = (cell, { code, code_length: length }) => {
    if (code === undefined || code === null || code.length < cell.code.length) return;
    cell.code = cell.source.textContent = code;
    cell.length = length ?? Array.from(code).length;
    cell.cut.hidden = isWhole(cell);
  };
  const isWhole = (cell) => Array.from(cell.code).length >= cell.length;
  const stateOf = (run) => {
    if (run.state === "REFUSED") return words.notRun.replace("{reason}", run.reason);
    if (run.state === "LOST" || run.state === "CANCELLED") return words[run.state.toLowerCase()].replace("{reason}", run.reason);
    if (run.state !== "FINISHED") return words[run.state.toLowerCase()] || run.state;
    if (run.reason === "interrupted") return words.interrupted;
    if (run.reason === "exec-timeout") return words.timeout;
    return run.exit_code ? words.failed.replace("{code}", run.exit_code) : words.finished;
  };
  const showQuestion = (cell, run) => {
    const asksAnew = run.state === "WAITING_INPUT" && cell.state !== "WAITING_INPUT";
    const field = cell.ask.querySelector("input");
    cell.ask.hidden = run.state !== "WAITING_INPUT";
    field.type = run.password ? "password" : "text";
    field.id = `ask-${cell.id}`;
    const label = cell.ask.querySelector("label");
    [label.htmlFor, label.textContent] = [field.id, run.prompt || words.waiting_input];
    if (asksAnew && cell.context === contextBox.value) field.focus();
  };
  const show = (run, { follow = true } = {}) => {
    const atEnd = follow && window.innerHeight + window.scrollY > document.documentElement.scrollHeight - 80;
    const isNew = follow && !cells.get(run.run_id)?.state;
    const cell = cellOf(run);
    place(cell, run.number);
    setCode(cell, run);
    for (const item of run.items || []) cell.output.add(item);
    if (run.offset !== undefined) cell.offset = Math.max(cell.offset, run.offset);
    cell.end = Math.max(cell.end, run.end ?? 0);
    showQuestion(cell, run);
    cell.state = cell.element.dataset.state = run.state;
    cell.element.dataset.failed = ["LOST", "REFUSED"].includes(run.state) || (run.state === "FINISHED" && run.exit_code !== 0);
    cell.stateBox.textContent = stateOf(run);
    if (isNew || atEnd) cell.element.scrollIntoView({ block: "nearest" });
    sort();
    return cell;
  };
  // Shows the cells of the chosen context; returns the one that can be interrupted.
  const sort = () => {
    let shown = 0;
    let busy = null;
    for (const cell of cells.values()) {
      const isHidden = cell.context !== contextBox.value;
      if (cell.element.hidden !== isHidden) cell.element.hidden = isHidden;
      if (isHidden) continue;
      shown += 1;
      if (interruptible.has(cell.state)) busy = cell;
    }
    empty.hidden = shown > 0;
    box.querySelector('[data-tool="interrupt"]').disabled = !busy;
    return busy;
  };
  const remove = (cell) => {
    cell.element.remove();
    cells.delete(cell.id);
    sort();
  };
  return {
    cells, show, sort, remove, setCode, isWhole,
    isLive: (cell) => live.has(cell.state),
    offsets: () => Object.fromEntries(Array.from(cells.values()).filter(({ state }) => state !== "SENDING" && state !== "REFUSED").map((cell) => [cell.id, cell.offset])),
    ofContext: (name) => Array.from(cells.values()).filter((cell) => cell.context === name && cell.number < Infinity).sort((one, other) => one.number - other.number),
  };
};

// The console of a session: cells of code, whose runs are kept by the session. The page is a view of them: it may be
// closed and opened again, and reads on where it was. Texts come from the page.
(() => {
  const box = document.getElementById("console");
  if (!box) return;
  const part = (name) => document.getElementById(`console-${name}`);
  const [cellsBox, empty, editor, codeBox, matchesBox, contextBox, stateBox, notice] = ["cells", "empty", "editor", "code", "matches", "context", "state", "notice"].map(part);
  const words = box.dataset;
  const live = new Set(["QUEUED", "STARTING", "CLEANING", "BUILDING", "RUNNING", "WAITING_INPUT", "INTERRUPTING"]);
  const stubbornAfter = 10000;
  const cells = new Map(); // run id → cell
  const answers = new Map(); // number of an order → what is done with its answer
  const languages = new Map([["main", ""]]);
  let socket = null;
  let number = 0;
  let retryIn = 500;
  let interruptedAt = null;

  const say = (text) => (stateBox.textContent = text);
  const warn = (text) => {
    notice.textContent = text || "";
    notice.hidden = !text;
  };
  const identity = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const order = (type, more = {}, then = () => {}) => {
    if (socket?.readyState !== WebSocket.OPEN) return false;
    number += 1;
    answers.set(number, then);
    socket.send(JSON.stringify({ type, id: number, ...more }));
    return true;
  };

  // Cells

  const cellOf = (run) => {
    if (cells.has(run.run_id)) return cells.get(run.run_id);
    const element = part("cell").content.firstElementChild.cloneNode(true);
    const find = (selector) => element.querySelector(selector);
    const cell = { id: run.run_id, element, code: "", state: "", context: run.context, offset: 0, ask: find(".console-ask") };
    cell.output = new portal.ConsoleOutput(find(".console-output"), words);
    cell.stateBox = find(".console-cell-state");
    cell.source = find(".console-source");
    find("[data-again]").addEventListener("click", () => {
      codeBox.value = cell.code;
      codeBox.focus();
      fit();
    });
    cell.ask.addEventListener("submit", (event) => {
      event.preventDefault();
      const field = cell.ask.querySelector("input");
      if (order("input", { run_id: cell.id, text: field.value })) field.value = "";
    });
    cells.set(run.run_id, cell);
    cellsBox.append(element);
    return cell;
  };
  const stateOf = (run) => {
    if (run.state === "LOST" || run.state === "CANCELLED") return words[run.state.toLowerCase()].replace("{reason}", run.reason);
    if (run.state !== "FINISHED") return words[run.state.toLowerCase()] || run.state;
    if (run.reason === "interrupted") return words.interrupted;
    if (run.reason === "exec-timeout") return words.timeout;
    return run.exit_code ? words.failed.replace("{code}", run.exit_code) : words.finished;
  };
  const show = (run) => {
    const atEnd = window.innerHeight + window.scrollY > document.documentElement.scrollHeight - 80;
    const cell = cellOf(run);
    const isNew = cell.element.hidden || !cell.state;
    if (run.code) [cell.code, cell.source.textContent] = [run.code, run.code];
    for (const item of run.items || []) cell.output.add(item);
    if (run.offset !== undefined) cell.offset = Math.max(cell.offset, run.offset);
    const asksAnew = run.state === "WAITING_INPUT" && cell.state !== "WAITING_INPUT";
    cell.state = run.state;
    cell.element.dataset.state = run.state;
    cell.element.dataset.failed = run.state === "LOST" || (run.state === "FINISHED" && run.exit_code !== 0);
    cell.stateBox.textContent = stateOf(run);
    const field = cell.ask.querySelector("input");
    cell.ask.hidden = run.state !== "WAITING_INPUT";
    field.type = run.password ? "password" : "text";
    field.id = `ask-${cell.id}`;
    const label = cell.ask.querySelector("label");
    [label.htmlFor, label.textContent] = [field.id, run.prompt || words.waiting_input];
    if (asksAnew && cell.context === contextBox.value) field.focus();
    sort();
    if (isNew || atEnd) cell.element.scrollIntoView({ block: "nearest" });
  };
  const sort = () => {
    let shown = 0;
    let busy = null;
    for (const cell of cells.values()) {
      cell.element.hidden = cell.context !== contextBox.value;
      if (cell.element.hidden) continue;
      shown += 1;
      if (live.has(cell.state) && cell.state !== "QUEUED") busy = cell;
    }
    empty.hidden = shown > 0;
    box.querySelector('[data-tool="interrupt"]').disabled = !busy;
    if (busy?.state !== "INTERRUPTING") interruptedAt = null;
    return busy;
  };
  const showContexts = (contexts) => {
    for (const { name, language } of contexts) languages.set(name, language);
    const chosen = contextBox.value;
    contextBox.replaceChildren(...Array.from(languages.keys(), (name) => new Option(languages.get(name) ? `${name} · ${languages.get(name)}` : name, name)));
    contextBox.value = languages.has(chosen) ? chosen : "main";
  };

  // The connection: whatever breaks, it comes back and reads on.

  const open = () => {
    say(words.connecting);
    socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${words.address}`);
    socket.onmessage = ({ data }) => hear(JSON.parse(data));
    socket.onclose = ({ code, reason }) => {
      answers.clear();
      if (code === 4000 || code === 4004) return warn(reason || words.ended), say("");
      if (code === 4003) return warn(words.refused), say("");
      say(words.away);
      setTimeout(open, retryIn);
      retryIn = Math.min(retryIn * 2, 8000);
    };
  };
  const hear = (message) => {
    if (message.type === "ready") {
      order("runs", {}, ({ runs, contexts, error }) => {
        if (error) return warn(error.message), setTimeout(() => socket.close(), 2000);
        warn("");
        showContexts(contexts);
        for (const run of runs) if (!cells.has(run.run_id)) show({ ...run, items: [] });
        const after = Object.fromEntries(Array.from(cells.values(), (cell) => [cell.id, cell.offset]));
        socket.send(JSON.stringify({ type: "attach", after }));
      });
    } else if (message.type === "connection") {
      if (message.is_up) retryIn = 500;
      say(message.is_up ? words.connected : words.away);
    } else if (message.type === "run") {
      if ((message.items || []).length && message.offset <= (cells.get(message.run_id)?.offset ?? -1)) return;
      if (!languages.has(message.context)) showContexts([{ name: message.context, language: "" }]);
      show(message);
    } else if (message.type === "answer") {
      const then = answers.get(message.id);
      answers.delete(message.id);
      then?.(message);
    }
  };

  // What people do

  const fit = () => {
    codeBox.rows = Math.min(Math.max(codeBox.value.split("\n").length, 4), 20);
  };
  const run = () => {
    const code = codeBox.value;
    if (!code.trim()) return codeBox.focus();
    const context = contextBox.value;
    const sent = order("run", { run_id: identity(), code, context, language: languages.get(context) || "" }, ({ error }) => {
      if (!error) return warn("");
      warn(error.message);
      if (!codeBox.value) codeBox.value = code;
    });
    if (!sent) return warn(words.away);
    codeBox.value = "";
    hideMatches();
    fit();
  };
  editor.addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  codeBox.addEventListener("input", () => {
    hideMatches();
    fit();
  });
  codeBox.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.shiftKey || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run();
    } else if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      complete();
    } else if (!matchesBox.hidden && ["ArrowDown", "ArrowUp", "Escape", "Enter", "Tab"].includes(event.key)) {
      event.preventDefault();
      choose(event.key);
    }
  });

  // Completion: a list below the code, moved through with the arrow keys.

  let completion = null;
  const hideMatches = () => {
    matchesBox.hidden = true;
    completion = null;
  };
  const complete = () => {
    const [code, cursor] = [codeBox.value, codeBox.selectionStart];
    const characters = Array.from(code.slice(0, cursor)).length; // the interpreter counts characters, not halves of them
    order("complete", { code, cursor: characters, context: contextBox.value, language: languages.get(contextBox.value) || "" }, (found) => {
      if (codeBox.value !== code) return;
      if (found.error || !found.matches?.length) return say(found.status === "busy" ? words.busy : words.noMatches);
      const start = Array.from(code).slice(0, found.cursor_start).join("").length;
      completion = { start, end: cursor, at: 0 };
      matchesBox.replaceChildren(
        ...found.matches.slice(0, 50).map((text) => {
          const option = document.createElement("li");
          option.setAttribute("role", "option");
          option.textContent = text;
          option.addEventListener("mousedown", (event) => (event.preventDefault(), insert(text)));
          return option;
        }),
      );
      matchesBox.hidden = false;
      found.matches.length === 1 ? insert(found.matches[0]) : mark(0);
    });
  };
  const mark = (at) => {
    const options = Array.from(matchesBox.children);
    completion.at = (at + options.length) % options.length;
    options.forEach((option, index) => option.setAttribute("aria-selected", index === completion.at));
    options[completion.at].scrollIntoView({ block: "nearest" });
  };
  const insert = (text) => {
    codeBox.setRangeText(text, completion.start, completion.end, "end");
    hideMatches();
  };
  const choose = (key) => {
    if (key === "Escape") hideMatches();
    else if (key === "ArrowDown" || key === "ArrowUp") mark(completion.at + (key === "ArrowDown" ? 1 : -1));
    else insert(matchesBox.children[completion.at].textContent);
  };

  const tools = {
    interrupt: () => {
      const busy = sort();
      if (!busy || !order("interrupt", { run_id: busy.id })) return;
      const at = (interruptedAt = Date.now());
      setTimeout(() => interruptedAt === at && sort()?.state === "INTERRUPTING" && warn(words.stubborn), stubbornAfter);
    },
    restart: () => order("restart", { context: contextBox.value }, ({ error }) => warn(error && error.code !== "no-such-context" ? error.message : "") || say(words.cleared)),
    download: () => {
      const context = contextBox.value;
      const chosen = Array.from(cells.values()).filter((cell) => cell.context === context && cell.code);
      const notebook = portal.notebookOf(chosen.map(({ id, code, output }) => ({ id, code, items: output.items })), languages.get(context) || "python3");
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([JSON.stringify(notebook, null, 1)], { type: "application/x-ipynb+json" }));
      link.download = `${words.name}-${context}.ipynb`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    },
  };
  document.addEventListener("click", (event) => {
    const tool = event.target.closest("[data-tool]")?.dataset.tool;
    if (tools[tool]) tools[tool]();
  });
  contextBox.addEventListener("change", sort);
  part("new-form").addEventListener("submit", () => {
    const [name, language] = [part("new-name").value.trim(), part("new-language").value.trim()];
    if (!name) return;
    showContexts([{ name, language }]);
    contextBox.value = name;
    sort();
    codeBox.focus();
  });

  showContexts([]);
  sort();
  open();
  codeBox.focus();
})();

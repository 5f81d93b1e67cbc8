// @ts-check
// The console of a session: cells of code, whose runs are kept by the session. The page is a view of them: it may be
// closed and opened again, and reads on where it was. Texts come from the page.
(() => {
  const box = document.getElementById("console");
  if (!box) return;
  const part = (name) => document.getElementById(`console-${name}`);
  const [editor, codeBox, contextBox, stateBox, earlier] = ["editor", "code", "context", "state", "earlier"].map(part);
  const words = box.dataset;
  const stubbornAfter = 10000;
  const [largestCode, largestCompleted] = [2 ** 20, 100000];
  const languages = new Map([["main", ""]]);
  const tell = portal.noticeOf(box);
  const notice = (text, label, action, isGood = false) => {
    part("notice").classList.toggle("is-good", isGood);
    tell(text, label, action);
  };
  let before = null; // the number before which older runs are
  let interruptedAt = null;

  const say = (text) => (stateBox.textContent = text);
  const identity = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const reasonOf = (error) => error?.message || words.away;
  const languageOf = (context) => languages.get(context) || "";
  const showContexts = (contexts) => {
    for (const { name, language } of contexts) languages.set(name, language || languageOf(name));
    const chosen = contextBox.value;
    contextBox.replaceChildren(...Array.from(languages.keys(), (name) => new Option(languageOf(name) ? `${name} · ${languageOf(name)}` : name, name)));
    contextBox.value = languages.has(chosen) ? chosen : "main";
  };

  // The session

  const view = portal.consoleCells(box, {
    onEdit: async (cell) => {
      if (!(await whole(cell))) return;
      codeBox.value = cell.code;
      codeBox.dispatchEvent(new Event("input"));
      codeBox.focus();
      if (cell.state !== "REFUSED") return;
      orders.withdraw(cell.id);
      view.remove(cell);
    },
    onAnswer: (cell, text) => orders.send("input", { run_id: cell.id, text }),
    onWhole: (cell) => whole(cell),
  });
  const showRun = (run) => {
    if ((run.items || []).length && run.offset <= (view.cells.get(run.run_id)?.offset ?? -1)) return;
    if (!languages.has(run.context)) showContexts([{ name: run.context, language: run.language }]);
    view.show(run);
    if (view.cells.get(run.run_id).state !== "INTERRUPTING" && interruptedAt?.id === run.run_id) interruptedAt = null;
  };
  const csrf = () => box.querySelector("[name=csrfmiddlewaretoken]").value;
  // Code that is too long for a message of the socket.
  const post = async (order, then) => {
    const headers = { "Content-Type": "application/json", "X-CSRFToken": csrf() };
    const answer = await fetch(words.runs, { method: "POST", headers, body: JSON.stringify(order) }).catch(() => null);
    if (answer?.ok) return then({});
    const said = (await answer?.json().catch(() => null)) || {};
    then({ error: { message: said.detail || words.away, is_passing: !answer || answer.status >= 500 || answer.status === 429 } });
  };
  const orders = portal.consoleOrders(words.address, post, {
    onReady: async () => {
      try {
        const { runs, contexts, before: more } = await orders.ask("runs");
        notice("");
        showContexts([...runs.map(({ context, language }) => ({ name: context, language })), ...contexts]);
        if (before === null) showEarlier(more);
        for (const run of runs) if (!view.cells.get(run.run_id)?.state || view.cells.get(run.run_id).state === "SENDING") view.show({ ...run, items: [] });
        orders.attach(view.offsets());
      } catch (error) {
        notice(reasonOf(error), words.retry, () => orders.again());
      }
    },
    onRun: showRun,
    onConnection: (isUp) => say(isUp ? words.connected : words.away),
    onRefused: (run, reason) => {
      view.show({ ...run, state: "REFUSED", reason });
      if (!codeBox.value) onlyCopy(run.code);
    },
    onAway: (now) => {
      say(words.reconnecting);
      notice(words.away, words.reconnect, now);
    },
    onEnd: (code, reason, isSignedOut) => {
      say(words.closed);
      if (isSignedOut) return notice(words.signedOut, words.signIn, () => portal.toSignIn(box));
      if (code === 4003) return notice(words.refused, words.reconnect, () => (notice(""), orders.again()));
      notice(reason || words.ended);
    },
  });
  const onlyCopy = (code) => {
    codeBox.value = code;
    codeBox.dispatchEvent(new Event("input"));
  };

  // Runs whose code or output is not here yet

  const whole = async (cell) => {
    if (view.isWhole(cell)) return true;
    try {
      const { code } = await orders.ask("code", { run_id: cell.id });
      view.setCode(cell, { code });
      return true;
    } catch (error) {
      notice(reasonOf(error));
      return false;
    }
  };
  const showEarlier = (more) => {
    before = more ?? 0;
    earlier.hidden = !before;
  };
  const readOn = async (cell) => {
    while (!view.isLive(cell)) {
      const told = /** @type {Run} */ (await orders.ask("read", { run_id: cell.id, after: cell.offset }));
      view.show(told, { follow: false });
      if (told.offset >= told.end) return;
    }
  };
  const loadEarlier = async () => {
    const { runs, before: more } = await orders.ask("runs", { before });
    showContexts(runs.map(({ context, language }) => ({ name: context, language })));
    for (const run of runs) await readOn(view.show({ ...run, items: [] }, { follow: false }));
    showEarlier(more);
  };
  earlier.querySelector("button").addEventListener("click", async ({ currentTarget: button }) => {
    const height = document.documentElement.scrollHeight - window.scrollY;
    button.disabled = true;
    await loadEarlier().catch((error) => notice(reasonOf(error)));
    button.disabled = false;
    window.scrollTo({ top: document.documentElement.scrollHeight - height, behavior: "instant" });
  });

  // The editor

  const fit = () => {
    codeBox.rows = Math.min(Math.max(codeBox.value.split("\n").length, 4), 20);
  };
  const hideMatches = portal.consoleCompletion(codeBox, part("matches"), words, async (code, cursor) => code.length > largestCompleted ? { matches: [] } : orders.ask("complete", { code, cursor, context: contextBox.value, language: languageOf(contextBox.value) }), say);
  const run = () => {
    const [code, context] = [codeBox.value, contextBox.value];
    if (!code.trim()) return codeBox.focus();
    if (new TextEncoder().encode(code).length > largestCode) return notice(words.tooLarge);
    const wanted = { run_id: identity(), code, context, language: languageOf(context) };
    view.show({ ...wanted, state: "SENDING" });
    codeBox.value = "";
    orders.submit(wanted);
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
    orders.save({ draft: codeBox.value });
  });
  codeBox.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.shiftKey || event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    run();
  });

  // Tools

  const notebook = async () => {
    say(words.preparing);
    while (before) await loadEarlier();
    const context = contextBox.value;
    const chosen = view.ofContext(context);
    for (const cell of chosen) if (!(await whole(cell))) throw { message: words.away };
    say(words.connected);
    const cells = chosen.map(({ id, code, output }) => ({ id, code, items: output.items }));
    return JSON.stringify(portal.notebookOf(cells, languageOf(context) || "python3", words), null, 1);
  };
  const tools = {
    interrupt: () => {
      const busy = view.sort();
      if (!busy || !orders.send("interrupt", { run_id: busy.id }, ({ error }) => error && notice(error.message))) return;
      const mine = (interruptedAt = { id: busy.id });
      setTimeout(() => interruptedAt === mine && busy.state === "INTERRUPTING" && notice(words.stubborn), stubbornAfter);
    },
    restart: () => orders.send("restart", { context: contextBox.value }, ({ error }) => {
      notice(error && error.code !== "no-such-context" ? error.message : "");
      say(words.cleared);
    }),
    languages: async () => {
      const known = await orders.ask("languages");
      const options = known.languages.map(({ name, title }) => new Option(title === name ? name : `${title} (${name})`, name));
      part("new-language").replaceChildren(part("new-language").options[0], ...options);
    },
    delete: () => {
      const context = contextBox.value;
      orders.send("delete-context", { context, runs: true }, ({ error }) => {
        if (error) return notice(error.message);
        for (const cell of Array.from(view.cells.values())) if (cell.context === context) view.remove(cell);
        languages.delete(context);
        showContexts([]);
        chooseContext("main");
      });
    },
    save: async () => {
      const content = await notebook();
      for (let number = 1; ; number += 1) {
        const name = `${contextBox.value}${number > 1 ? `-${number}` : ""}.ipynb`;
        const answer = await fetch(`${words.files}${name}`, {
          method: "PUT",
          headers: { "Content-Type": "application/octet-stream", "If-None-Match": "*", "X-CSRFToken": csrf() },
          body: content,
        });
        if (answer.status === 409 && (await answer.clone().json()).code === "exists") continue;
        if (!answer.ok) throw { message: (await answer.json().catch(() => ({}))).detail || words.away };
        return notice(words.saved.replace("{name}", name), words.lab && words.openLab, () => window.open(words.lab, "_blank", "noopener"), true);
      }
    },
    download: async () => {
      const link = document.createElement("a");
      const name = `${words.name}-${contextBox.value}.ipynb`;
      link.href = URL.createObjectURL(new Blob([await notebook()], { type: "application/x-ipynb+json" }));
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    },
  };
  document.addEventListener("click", (event) => {
    const tool = event.target.closest("[data-tool]")?.dataset.tool;
    if (tools[tool]) Promise.resolve(tools[tool]()).catch((error) => notice(reasonOf(error)));
  });
  const chooseContext = (name) => {
    contextBox.value = name;
    part("delete-open").disabled = name === "main";
    view.sort();
  };
  contextBox.addEventListener("change", () => chooseContext(contextBox.value));
  part("new-form").addEventListener("submit", () => {
    const [name, language] = [part("new-name").value.trim(), part("new-language").value];
    if (!name) return;
    if (!languages.has(name)) showContexts([{ name, language }]);
    chooseContext(name);
    part("new-name").value = "";
    codeBox.focus();
  });

  showContexts([]);
  for (const one of orders.state.unsent) {
    showContexts([{ name: one.context, language: one.language }]);
    view.show({ ...one, state: one.reason ? "REFUSED" : "SENDING" });
  }
  codeBox.value = orders.state.draft;
  fit();
  chooseContext(contextBox.value);
  say(words.connecting);
  codeBox.focus();
})();

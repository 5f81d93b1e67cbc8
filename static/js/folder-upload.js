// Picks and drops of files and whole directories, and the list of what is being uploaded.
(() => {
  const explorer = document.getElementById("explorer");
  const panel = document.getElementById("upload");
  const { sendLarge, sendSmall } = window.folderSend;
  const { numbered } = window.folderNames;
  const large = 8 * 2 ** 20;
  const mostFiles = 500;
  const mostBytes = 32 * 2 ** 20;
  const atOnce = 3;
  const mostNumbered = 100;
  const list = panel.querySelector(".upload-list");
  const words = panel.dataset;
  const place = explorer.dataset.path;
  const below = (path) => (place ? `${place}/${path}` : path);
  const jobs = [];
  let running = 0;

  const show = () => {
    const total = jobs.reduce((sum, job) => sum + job.bytes, 0);
    const sent = jobs.reduce((sum, job) => sum + (job.state === "done" ? job.bytes : Math.min(job.sent, job.bytes)), 0);
    const isOver = jobs.every((job) => ["done", "failed", "cancelled"].includes(job.state));
    panel.hidden = !jobs.length;
    panel.querySelector("progress").value = total ? sent / total : isOver ? 1 : 0;
    panel.querySelector("[data-sum]").textContent = `${jobs.filter((job) => job.state === "done").length} / ${jobs.length}`;
    panel.querySelector("[data-cancel-all]").hidden = isOver;
    panel.querySelector("[data-hide]").hidden = !isOver;
  };
  const note = (job, text, tone = "") => {
    job.line.querySelector(".upload-state").textContent = text;
    job.line.dataset.state = tone;
    job.line.querySelector("button").hidden = job.state === "done" || job.state === "cancelled";
    job.line.querySelector("button").textContent = job.state === "failed" ? words.retry : words.cancel;
    show();
  };
  const add = (job) => {
    const line = document.createElement("li");
    const name = Object.assign(document.createElement("bdi"), { textContent: job.title });
    const state = Object.assign(document.createElement("span"), { className: "upload-state" });
    const bar = Object.assign(document.createElement("progress"), { max: 1, value: 0 });
    bar.setAttribute("aria-label", job.title);
    const button = Object.assign(document.createElement("button"), { type: "button", className: "btn btn-sm" });
    button.addEventListener("click", () => (job.state === "failed" ? start(job) : cancel(job)));
    line.append(name, bar, state, button);
    list.append(line);
    Object.assign(job, { line, bar, sent: 0, state: "waiting", overwrite: false, number: 1 });
    jobs.push(job);
    note(job, words.waiting);
  };
  const cancel = (job) => {
    job.controller?.abort();
    if (job.state !== "waiting") return;
    job.state = "cancelled";
    note(job, words.cancelled);
  };
  const start = (job) => {
    job.state = "waiting";
    note(job, words.waiting);
    next();
  };

  const replace = document.getElementById("replace");
  let asking = Promise.resolve();
  // Asked about one job after the other: "replace", "both", or "keep" for what is there, as with Escape.
  const answerAbout = (number, path, canKeepBoth) => {
    const ask = () => new Promise((resolve) => {
      const text = replace.querySelector("[data-text]");
      text.textContent = path ? text.dataset.one.replace("%what", path) : text.dataset.many.replace("%n", number);
      replace.querySelector("[data-answer=both]").hidden = !canKeepBoth;
      let answer = "keep";
      const pick = ({ target }) => {
        const button = target.closest("[data-answer]");
        if (!button) return;
        answer = button.dataset.answer;
        replace.close();
      };
      replace.addEventListener("click", pick);
      replace.addEventListener("close", () => (replace.removeEventListener("click", pick), resolve(answer)), { once: true });
      replace.showModal();
    });
    return (asking = asking.then(ask, ask));
  };
  // Where the job's path goes: with a number once both files are kept.
  const goal = (job, path) => (job.answer === "both" && job.number > 1 ? numbered(below(path), job.number) : below(path));

  const work = async (job) => {
    const progress = (sent) => {
      job.sent = sent;
      job.bar.value = job.bytes ? sent / job.bytes : 0;
      show();
    };
    const options = { overwrite: job.overwrite, signal: job.controller.signal, progress };
    if (job.file) {
      await sendLarge(explorer.dataset.folder, goal(job, job.path), job.file, { ...options, inDirectory: job.path.includes("/"), resumed: () => note(job, words.resumed) });
      return;
    }
    const entries = job.entries.map(({ path, file }) => ({ path: goal(job, path), file }));
    const { skipped, equal, refused } = await sendSmall(entries, options);
    if (refused.length) {
      const what = refused.slice(0, 5).map(({ path, code }) => `${path} (${code})`).join(", ");
      throw new Error(words.refused.replace("%n", refused.length).replace("%what", what));
    }
    // Equal files need no answer: they are there, perhaps from a try whose answer was lost.
    const number = skipped - (equal ?? 0);
    if (number && !job.overwrite) throw Object.assign(new Error(), { code: "exists", number, tellsEqual: equal !== undefined });
  };
  const run = async (job) => {
    job.state = "running";
    job.controller = new AbortController();
    note(job, "");
    try {
      await work(job);
      job.state = "done";
      note(job, words.done, "good");
    } catch (fault) {
      if (fault.code === "exists" && !job.overwrite) {
        const isOne = job.file || job.entries.length === 1;
        job.answer ||= await answerAbout(fault.number ?? 1, isOne ? job.title : "", isOne || fault.tellsEqual);
        if (job.answer === "replace" || (job.answer === "both" && isOne && job.number < mostNumbered)) {
          job.overwrite = job.answer === "replace";
          job.number += 1;
          return run(job);
        }
        const isSplit = job.answer === "both" && !isOne;
        job.state = "done";
        note(job, isSplit ? words.done : words.kept.replace("%n", fault.number ?? 1));
        // Nobody knows which of many are taken: each is sent again alone, and those that have come are skipped as equal.
        if (isSplit) job.entries.forEach((entry) => add({ title: entry.path, entries: [entry], bytes: entry.file?.size ?? 0, answer: "both" }));
      } else if (fault.name === "AbortError") {
        job.state = "cancelled";
        note(job, words.cancelled);
      } else {
        job.state = "failed";
        const why = fault.code === "expired" ? words.expired : fault.message;
        note(job, fault instanceof TypeError ? words.failed : `${words.failed}: ${why}`, "bad");
      }
    }
    document.dispatchEvent(new CustomEvent("folder-changed"));
  };
  const next = () => {
    for (const job of jobs) {
      if (running >= atOnce) return;
      if (job.state !== "waiting") continue;
      running += 1;
      job.state = "running";
      run(job).finally(() => {
        running -= 1;
        next();
      });
    }
  };

  // Entries are {path, file}, or {path} for an empty directory.
  const take = (entries) => {
    let batch = [];
    let bytes = 0;
    const close = () => {
      if (!batch.length) return;
      const title = batch.length === 1 ? batch[0].path : words.small.replace("%n", batch.length);
      add({ title, entries: batch, bytes });
      batch = [];
      bytes = 0;
    };
    for (const entry of entries) {
      if (entry.file && entry.file.size > large) {
        add({ title: entry.path, path: entry.path, file: entry.file, bytes: entry.file.size });
        continue;
      }
      if (batch.length >= mostFiles || bytes + (entry.file?.size ?? 0) > mostBytes) close();
      batch.push(entry);
      bytes += entry.file?.size ?? 0;
    }
    close();
    next();
  };

  explorer.addEventListener("click", ({ target }) => {
    const pick = target.closest("[data-pick]");
    if (pick) document.getElementById(`pick-${pick.dataset.pick}`).click();
    if (target.closest("[data-cancel-all]")) jobs.forEach(cancel);
    if (target.closest("[data-hide]")) {
      jobs.length = 0;
      list.replaceChildren();
      show();
    }
  });
  explorer.addEventListener("change", ({ target }) => {
    if (target.type !== "file" || !target.files.length) return;
    take([...target.files].map((file) => ({ path: file.webkitRelativePath || file.name, file })));
    target.value = "";
  });

  // A browser gives the entries of a directory in parts: it is asked until nothing comes.
  const entriesIn = async (directory) => {
    const reader = directory.createReader();
    const all = [];
    for (;;) {
      const part = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!part.length) return all;
      all.push(...part);
    }
  };
  const walk = async (entry, path, into) => {
    if (entry.isFile) into.push({ path, file: await new Promise((resolve, reject) => entry.file(resolve, reject)) });
    if (!entry.isDirectory) return;
    const inside = await entriesIn(entry);
    if (!inside.length) into.push({ path: `${path}/` });
    for (const one of inside) await walk(one, `${path}/${one.name}`, into);
  };
  const hint = document.getElementById("drop-hint");
  const brings = ({ dataTransfer }) => dataTransfer?.types.includes("Files");
  const isAway = () => Boolean(document.querySelector("[data-away]")); // the storage host, as the page says
  let inside = 0;
  document.addEventListener("dragenter", (event) => {
    if (!brings(event)) return;
    inside += 1;
    hint.hidden = isAway();
  });
  document.addEventListener("dragleave", (event) => {
    if (brings(event) && (inside -= 1) <= 0) hint.hidden = true;
  });
  document.addEventListener("dragover", (event) => brings(event) && event.preventDefault());
  document.addEventListener("drop", async (event) => {
    if (!brings(event)) return;
    event.preventDefault();
    inside = 0;
    hint.hidden = true;
    if (isAway()) return;
    // Asked for before the first wait: afterwards the browser has let go of them.
    const dropped = [...event.dataTransfer.items].filter(({ kind }) => kind === "file").map((item) => item.webkitGetAsEntry() ?? item.getAsFile());
    const all = [];
    for (const one of dropped) one instanceof File ? all.push({ path: one.name, file: one }) : await walk(one, one.name, all);
    take(all);
  });
  addEventListener("beforeunload", (event) => {
    if (jobs.some((job) => job.state === "running" || job.state === "waiting")) event.preventDefault();
  });
})();

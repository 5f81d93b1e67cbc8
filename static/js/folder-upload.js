// @ts-check
// Picks and drops of files and whole directories, and the list of what is being uploaded.
(() => {
  const explorer = document.getElementById("explorer");
  const panel = document.getElementById("upload");
  const { sendLarge, sendSmall, forgetLarge } = window.folderSend;
  const { askAboutTaken } = window.folderNames;
  const large = 8 * 2 ** 20;
  const mostFiles = 500;
  const mostBytes = 32 * 2 ** 20;
  const atOnce = 3;
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
    panel.querySelector("progress").value = String(total ? sent / total : isOver ? 1 : 0);
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
    Object.assign(job, { line, bar, sent: 0, state: "waiting", answer: "", refused: [] });
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
    Object.assign(job, { answer: "", refused: [], state: "waiting" });
    note(job, words.waiting);
    next();
  };

  const work = async (job) => {
    const paused = () => note(job, words.paused, "paused");
    const progress = (sent) => {
      if (job.line.dataset.state === "paused") note(job, "");
      job.sent = sent;
      job.bar.value = job.bytes ? sent / job.bytes : 0;
      show();
    };
    const options = { answer: job.answer, signal: job.controller.signal, progress, paused };
    if (job.file) {
      return sendLarge(explorer.dataset.folder, below(job.path), job.file, { ...options, inDirectory: job.path.includes("/"), resumed: () => note(job, words.resumed) });
    }
    const { kept, refused } = await sendSmall(job.entries.map(({ path, file }) => ({ path: below(path), file })), options);
    job.refused.push(...refused);
    if (kept.length) throw Object.assign(new Error(), { code: "exists", kept });
  };
  const askAbout = (job, { code, kept }) => {
    const isOne = job.file || kept.length === 1;
    const canReplace = kept ? kept.some(({ kind }) => kind !== "directory") : code !== "is-directory";
    return askAboutTaken({ path: isOne ? (job.file ? job.title : kept[0].path) : "", number: kept?.length, canReplace });
  };
  // Only what was kept is sent again. A name that the browser spells otherwise than the answer counts as kept.
  const keepOf = (job, kept) => {
    const paths = new Set(kept.map(({ path }) => path));
    const found = job.entries.filter(({ path }) => paths.has(below(path)));
    return found.length === kept.length ? found : job.entries;
  };
  const end = (job, text) => {
    if (job.refused.length) {
      const what = job.refused.slice(0, 5).map(({ path, code }) => `${path} (${code})`).join(", ");
      throw new Error(words.refused.replace("%n", job.refused.length).replace("%what", what));
    }
    job.state = "done";
    note(job, text, text === words.done ? "good" : "");
  };
  const send = async (job) => {
    try {
      await work(job);
      end(job, words.done);
    } catch (fault) {
      if (!["exists", "is-directory"].includes(fault.code) || job.answer) throw fault;
      const answer = await askAbout(job, fault);
      if (answer === "keep") {
        if (job.file) forgetLarge(explorer.dataset.folder, below(job.path), job.file);
        return end(job, words.kept.replace("%n", fault.kept?.length ?? 1));
      }
      job.answer = answer;
      if (fault.kept) job.entries = keepOf(job, fault.kept);
      return send(job);
    }
  };
  const run = async (job) => {
    job.state = "running";
    job.controller = new AbortController();
    note(job, "");
    try {
      await send(job);
    } catch (fault) {
      if (fault.name === "AbortError") {
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
  const takeChosen = (input) => {
    if (input.type !== "file" || !input.files.length) return;
    take([...input.files].map((file) => ({ path: file.webkitRelativePath || file.name, file })));
    input.value = "";
  };
  explorer.addEventListener("change", ({ target }) => takeChosen(target));
  explorer.querySelectorAll("input[type=file]").forEach(takeChosen); // before this script was here

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

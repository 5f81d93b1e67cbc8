// @ts-check
// The explorer of a folder: choosing entries, renaming, moving, copying, searching, and keeping what is shown fresh.
(() => {
  const explorer = document.getElementById("explorer");
  // A folder that is being made is there in a moment.
  if (explorer.dataset.status === "CREATING") setTimeout(() => location.reload(), 2000);
  const { ask, download, faultOf, follow } = window.folderFiles;
  const says = document.getElementById("explorer-says");
  const bar = document.getElementById("entry-bar");
  const boxes = () => [...explorer.querySelectorAll(".cell-pick input[name=path]")];
  const chosen = () => boxes().filter((box) => box.checked).map((box) => box.value);
  const query = (params) => new URLSearchParams(params).toString();
  const lookEvery = 5000;
  const raw = "//raw:"; // begins paths that are not UTF-8

  const showChosen = () => {
    const number = chosen().length;
    bar.hidden = !number;
    bar.querySelector("[data-number]").textContent = number === 1 ? bar.dataset.one : bar.dataset.many.replace("%n", number);
    const all = document.getElementById("choose-entries");
    if (all) {
      all.checked = number > 0 && number === boxes().length;
      all.indeterminate = number > 0 && !all.checked;
    }
  };
  const choose = (checked) => {
    boxes().forEach((box) => (box.checked = checked));
    showChosen();
  };
  explorer.addEventListener("change", ({ target }) => {
    if (target.id === "choose-entries") choose(target.checked);
    else if (target.matches(".cell-pick input")) showChosen();
  });
  addEventListener("pageshow", showChosen);

  const relocate = document.getElementById("relocate");
  let verb = "move";
  explorer.addEventListener("click", ({ target }) => {
    if (target.closest("[data-choose-no-entry]")) choose(false);
    if (target.closest("[data-download-chosen]")) {
      const [first, ...rest] = chosen();
      const row = boxes().find((box) => box.value === first)?.closest("tr");
      if (!rest.length && row?.dataset.kind === "file") download(`/content?${query({ path: first })}`).catch(unreachable);
      else download(`/archive?format=zip&${chosen().map((path) => query({ path })).join("&")}`).catch(unreachable);
    }
    const rename = target.closest("[data-rename]");
    if (rename) {
      const dialog = document.getElementById("rename-entry");
      const name = dialog.querySelector("[name=name]");
      dialog.querySelector("[name=source]").value = rename.dataset.rename;
      name.value = rename.dataset.name;
      dialog.showModal();
      const dot = name.value.lastIndexOf(".");
      name.setSelectionRange(0, dot > 0 ? dot : name.value.length);
    }
    const opener = target.closest("[data-relocate]");
    if (opener) {
      verb = opener.dataset.relocate;
      for (const each of relocate.querySelectorAll("h2, [type=submit]")) each.textContent = each.dataset[verb];
      relocate.querySelector("[data-error]").textContent = "";
      relocate.querySelector("[data-sources]").replaceChildren(
        ...chosen().map((value) => Object.assign(document.createElement("input"), { type: "hidden", name: "path", value })));
      relocate.querySelector("[name=target]").value = explorer.dataset.path;
      relocate.showModal();
    }
  });

  // A new file is an empty text, which opens in the editor.
  const newFile = document.getElementById("new-file");
  newFile?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const error = newFile.querySelector("[data-error]");
    const button = newFile.querySelector("[type=submit]");
    const name = newFile.querySelector("input").value.trim();
    const path = explorer.dataset.path ? `${explorer.dataset.path}/${name}` : name;
    error.textContent = "";
    try {
      const headers = { "If-None-Match": "*", "Content-Type": "text/plain; charset=utf-8" };
      const answer = await ask("PUT", `/text?${query({ path })}`, { headers, body: "" });
      if (answer.ok) return location.assign(`${found.dataset.file}?${query({ path })}`);
      error.textContent = [409, 412].includes(answer.status) ? says.dataset.exists : says.dataset.failed.replace("%what", await faultOf(answer));
    } catch {
      error.textContent = says.dataset.unreachable;
    }
    button.disabled = false;
    button.classList.remove("is-busy");
  });

  // What becomes of entries whose names are taken: "replace", "both", or "keep" for what is there, as with Escape. A file
  // never replaces a directory. Uploads ask here too.
  const replace = document.getElementById("replace");
  const showQuestion = ({ path = "", number = 1, canReplace = true }) => new Promise((resolve) => {
    const text = replace.querySelector("[data-text]");
    const one = canReplace ? text.dataset.one : text.dataset.directory;
    text.textContent = path ? one.replace("%what", path) : text.dataset.many.replace("%n", number);
    const title = replace.querySelector("h2");
    title.textContent = canReplace ? title.dataset.replace : title.dataset.taken;
    replace.querySelector("[data-answer=replace]").hidden = !canReplace;
    replace.returnValue = "";
    const pick = ({ target }) => {
      const answer = target.closest("[data-answer]");
      if (answer) replace.close(answer.dataset.answer);
    };
    replace.addEventListener("click", pick);
    replace.addEventListener("close", () => (replace.removeEventListener("click", pick), resolve(replace.returnValue || "keep")), { once: true });
    replace.showModal();
  });
  let asking = Promise.resolve();
  const askAboutTaken = (question) => (asking = asking.then(() => showQuestion(question))); // one after the other
  window.folderNames = { askAboutTaken };

  const copyOne = async (source, to, options, answer = "") => {
    options.signal.throwIfAborted();
    const body = JSON.stringify({ source, into: to, overwrite: answer === "replace", keep_both: answer === "both" });
    const told = await ask("POST", "/copies", { headers: { "Content-Type": "application/json" }, body });
    if (told.ok) return follow(told, options);
    const fault = await told.json().catch(() => ({}));
    if (fault.code !== "exists" || answer) throw new Error(fault.message ?? String(told.status));
    options.signal.throwIfAborted();
    const next = await askAboutTaken({ path: source.split("/").pop() });
    if (next !== "keep") return copyOne(source, to, options, next);
  };

  // A copy may take long: the dialog says how far it is, and closing it stops the copy. A move is as quick as a rename.
  let copying = null;
  relocate?.addEventListener("close", () => copying?.abort());
  relocate?.addEventListener("submit", async (event) => {
    if (verb !== "copy") return;
    event.preventDefault();
    const error = relocate.querySelector("[data-error]");
    const button = relocate.querySelector("[type=submit]");
    const typed = relocate.querySelector("[name=target]").value;
    const to = typed.startsWith(raw) ? typed : typed.replace(/^\/+|\/+$/g, "");
    const bar = relocate.querySelector("progress");
    const { signal } = (copying = new AbortController());
    button.disabled = true;
    error.textContent = "";
    const progress = ({ bytes, total_bytes: total }) => {
      bar.hidden = false;
      if (total) bar.value = String(bytes / total);
      else bar.removeAttribute("value");
    };
    try {
      for (const source of chosen()) await copyOne(source, to, { progress, signal });
      copying = null;
      relocate.close();
      choose(false);
    } catch (fault) {
      if (fault.name !== "AbortError") {
        error.textContent = fault instanceof TypeError ? says.dataset.unreachable : says.dataset.failed.replace("%what", fault.message);
      }
    }
    look();
    bar.hidden = true;
    button.disabled = false;
    button.classList.remove("is-busy");
  });

  const unreachable = () => (says.textContent = says.dataset.unreachable);
  const look = () => isOver || htmx.trigger(document.getElementById("entries"), "look-again");
  document.addEventListener("folder-changed", look);
  // Who may no longer see the folder is told so, once.
  let isOver = false;
  document.addEventListener("htmx:responseError", ({ target, detail }) => {
    if (target.id !== "entries" || detail.xhr.status !== 404) return;
    isOver = true;
    const note = Object.assign(document.createElement("p"), { textContent: explorer.dataset.noAccess });
    const box = Object.assign(document.createElement("div"), { className: "empty-state" });
    box.setAttribute("role", "alert");
    box.append(note);
    target.replaceChildren(box);
    for (const button of explorer.querySelectorAll("[data-writes]")) button.disabled = true;
    showChosen();
  });
  // What sessions write is seen soon, but nothing moves under the hand: not while something is chosen, open or unfolded.
  setInterval(() => {
    const isBusy = document.hidden || chosen().length || document.querySelector("dialog[open]") || !found.hidden;
    if (!isBusy && !explorer.querySelector("[data-more]") && !explorer.contains(document.activeElement?.closest("table"))) look();
  }, lookEvery);
  // While the storage host is unreachable nothing can be written, and the reason is beside the buttons.
  const showAway = () => {
    const isAway = Boolean(explorer.querySelector("[data-away]"));
    for (const button of explorer.querySelectorAll("[data-writes]")) button.disabled = isAway;
    const reason = document.getElementById("host-away");
    if (reason) reason.hidden = !isAway;
  };
  // What is selected stays so when the list is renewed.
  let kept = [];
  document.addEventListener("htmx:beforeSwap", ({ target }) => {
    if (target.id === "entries") kept = chosen();
  });
  document.addEventListener("htmx:afterSettle", ({ target }) => {
    if (target.id === "entries") {
      boxes().forEach((box) => (box.checked ||= kept.includes(box.value)));
      showAway();
    }
    if (target.closest?.(".more-entries") || target.matches?.("tr")) document.getElementById("entries").dataset.more = "";
    showChosen();
  });

  const found = document.getElementById("found");
  const form = document.getElementById("find");
  let search = null;
  let timer = 0;
  const line = (entry) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    const isDirectory = entry.kind === "directory";
    link.href = `${isDirectory ? explorer.dataset.here : found.dataset.file}?${query({ path: entry.raw_path ? raw + entry.raw_path : entry.path })}`;
    link.textContent = isDirectory ? `${entry.path}/` : entry.path;
    item.append(link);
    return item;
  };
  const find = async () => {
    const words = form.querySelector("input").value.trim();
    search?.abort();
    found.hidden = !words;
    document.getElementById("entries").hidden = Boolean(words);
    if (!words) return;
    search = new AbortController();
    found.replaceChildren(Object.assign(document.createElement("p"), { className: "pane-note", textContent: found.dataset.searching }));
    try {
      const answer = await ask("GET", `/search?${query({ path: explorer.dataset.path, q: words })}`, { signal: search.signal });
      if (!answer.ok) throw new Error(await faultOf(answer));
      const { entries, complete } = await answer.json();
      const list = document.createElement("ul");
      list.className = "found-list";
      list.append(...entries.map(line));
      const note = Object.assign(document.createElement("p"), { className: "pane-note" });
      note.textContent = !complete ? found.dataset.partly : entries.length ? `${found.dataset.title}: ${entries.length}` : found.dataset.none;
      found.replaceChildren(note, list);
    } catch (fault) {
      if (fault.name === "AbortError") return;
      const text = fault instanceof TypeError ? says.dataset.unreachable : says.dataset.failed.replace("%what", fault.message);
      found.replaceChildren(Object.assign(document.createElement("p"), { className: "pane-note", textContent: text }));
    }
  };
  form?.addEventListener("submit", (event) => {
    event.preventDefault();
    find();
  });
  form?.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(find, 300);
  });
})();

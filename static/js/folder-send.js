// @ts-check
// Sends files into a folder: large ones by tus, so that they go on where they stopped, small ones many at once as a tar.
(() => {
  const { ask, send, isPassing } = window.folderFiles;
  const patience = [1, 2, 4, 8, 15, 30, 30, 30]; // seconds before another try; begins anew whenever bytes arrive
  const tus = { "Tus-Resumable": "1.0.0" };
  const faultIn = (xhr) => {
    try {
      return JSON.parse(xhr.responseText);
    } catch {
      return { code: "", message: String(xhr.status) };
    }
  };
  const refusal = (said) => Object.assign(new Error(said.message ?? said.detail ?? ""), { code: said.code ?? "" });
  const wait = (seconds, signal) => new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000 * (0.75 + Math.random() / 2));
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(new DOMException("cancelled", "AbortError"))), { once: true });
  });
  // The result of a step, which is tried again while the network, a proxy or the storage host is away.
  const patiently = async (step, { signal, paused }) => {
    for (let tries = 0; ; tries += 1) {
      try {
        return await step();
      } catch (fault) {
        if (!(fault instanceof TypeError) || tries >= patience.length) throw fault;
      }
      paused?.();
      await wait(patience[tries], signal);
    }
  };
  const base64 = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));
  const keyOf = (folder, path, file) => `upload:${folder}:${path}:${file.size}:${file.lastModified}`;
  const remember = (key, address) => {
    try {
      address ? localStorage.setItem(key, address) : localStorage.removeItem(key);
    } catch { /* without a store it begins anew after a reload */ }
  };
  const remembered = (key) => {
    try {
      return localStorage.getItem(key);
    } catch {
      return null;
    }
  };

  // "replace" or "both", as the file server calls them; before the answer to a question neither.
  const settings = (answer) => ({ overwrite: answer === "replace", keep_both: answer === "both" });
  // How much of an upload is there; null if it is gone. A complete one whose name is taken is refused until that is settled.
  const offsetOf = async (address, signal) => {
    const told = await ask("HEAD", address, { headers: tus, signal });
    if (told.status === 409) throw refusal({ code: "exists" });
    if (isPassing(told.status)) throw new TypeError("network");
    return told.ok ? Number(told.headers.get("Upload-Offset")) : null;
  };
  const settle = async (address, answer, signal) => {
    const headers = { ...tus, "Content-Type": "application/json" };
    const told = await ask("POST", address, { headers, body: JSON.stringify(settings(answer)), signal });
    if (told.status === 404) return null;
    if (isPassing(told.status)) throw new TypeError("network");
    if (!told.ok) throw refusal(await told.json().catch(() => ({ message: String(told.status) })));
    return Number(told.headers.get("Upload-Offset"));
  };
  const create = async (path, file, answer, signal) => {
    const chosen = Object.entries(settings(answer)).filter(([, isOn]) => isOn);
    const words = [`path ${base64(path)}`, ...chosen.map(([name]) => `${name} ${base64("1")}`)];
    const headers = { ...tus, "Upload-Length": String(file.size), "Upload-Metadata": words.join(",") };
    const told = await ask("POST", "/uploads", { headers, signal });
    if (isPassing(told.status)) throw new TypeError("network");
    if (told.status !== 201) throw refusal(await told.json().catch(() => ({ message: String(told.status) })));
    return new URL(told.headers.get("Location"), "http://x").pathname;
  };
  const keepsBytes = ({ code }) => ["exists", "is-directory", "quota", "too-many-files", "disk-full"].includes(code); // for another try
  const isTaken = ({ code }) => code === "exists" || code === "is-directory";

  // One large file. ``answer``: what becomes of a taken name; ``progress(bytes)``; ``paused()`` before another try;
  // ``resumed()`` when it goes on where an earlier visit stopped. A name that was taken meanwhile is refused, and the bytes stay for the next call.
  const sendLarge = async (folder, path, file, { answer, signal, progress, paused, resumed, inDirectory }) => {
    const key = keyOf(folder, path, file);
    let address = remembered(key);
    let offset = address && (await patiently(() => (answer ? settle(address, answer, signal) : offsetOf(address, signal)), { signal, paused }));
    if (offset === null || !address) {
      // Only an archive brings its directories along.
      if (inDirectory) await sendSmall([{ path: path.slice(0, path.lastIndexOf("/") + 1) }], { signal, paused });
      address = await patiently(() => create(path, file, answer, signal), { signal, paused });
      offset = 0;
      remember(key, address);
    } else resumed();
    for (let tries = 0; offset < file.size || file.size === 0; ) {
      const from = offset;
      try {
        const headers = { ...tus, "Upload-Offset": String(from), "Content-Type": "application/offset+octet-stream" };
        const xhr = await send("PATCH", address, { headers, body: file.slice(from), signal, progress: (sent) => progress(from + sent) });
        if (xhr.status === 204) {
          offset = Number(xhr.getResponseHeader("Upload-Offset") ?? file.size);
          if (offset >= file.size) break;
          continue;
        }
        if (xhr.status === 409 ? isTaken(faultIn(xhr)) : !isPassing(xhr.status)) throw refusal(faultIn(xhr));
      } catch (fault) {
        if (fault.name === "AbortError") {
          remember(key, null);
          ask("DELETE", address, { headers: tus }).catch(() => {});
          throw fault;
        }
        if (!(fault instanceof TypeError)) {
          if (!keepsBytes(fault)) remember(key, null);
          throw fault;
        }
      }
      if (tries >= patience.length) throw new TypeError("network");
      paused?.();
      await wait(patience[tries++], signal);
      const there = await offsetOf(address, signal).catch((fault) => {
        if (isTaken(fault)) throw fault;
        return from;
      });
      if (there === null) {
        remember(key, null);
        throw refusal({ code: "expired" });
      }
      if (there > from) tries = 0;
      offset = there;
    }
    remember(key, null);
    progress(file.size);
  };

  // Lets go of an upload whose name is taken and stays so.
  const forgetLarge = (folder, path, file) => {
    const address = remembered(keyOf(folder, path, file));
    remember(keyOf(folder, path, file), null);
    if (address) ask("DELETE", address, { headers: tus }).catch(() => {});
  };

  // Many small ones: resolves with the entries that are there and were kept, as {path, kind}, and with those refused, as
  // {path, code}. Equal files are neither: they are there, perhaps from a try whose answer was lost.
  const modes = { replace: "skip-equal", both: "keep-both" };
  /** @type {FolderSend["sendSmall"]} */
  const sendSmall = async (entries, { answer, signal, progress, paused }) => {
    const body = window.tarOf(entries);
    const address = `/archive?overwrite=${modes[answer] ?? "never"}`;
    return patiently(async () => {
      const xhr = await send("PUT", address, { headers: { "Content-Type": "application/x-tar" }, body, signal, progress });
      if (xhr.status < 300) return JSON.parse(xhr.responseText);
      throw isPassing(xhr.status) ? new TypeError("network") : refusal(faultIn(xhr));
    }, { signal, paused });
  };

  window.folderSend = { sendLarge, sendSmall, forgetLarge };
})();

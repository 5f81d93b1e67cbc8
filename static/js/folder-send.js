// Sends files into a folder: large ones by tus, so that they go on where they stopped, small ones many at once as a tar.
(() => {
  const { ask, send, faultOf } = window.folderFiles;
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

  const offsetOf = async (address, signal) => {
    const answer = await ask("HEAD", address, { headers: tus, signal });
    return answer.ok ? Number(answer.headers.get("Upload-Offset")) : null;
  };
  const create = async (path, file, overwrite, signal) => {
    const words = [`path ${base64(path)}`, ...(overwrite ? [`overwrite ${base64("1")}`] : [])];
    const headers = { ...tus, "Upload-Length": String(file.size), "Upload-Metadata": words.join(",") };
    const answer = await ask("POST", "/uploads", { headers, signal });
    if (answer.status !== 201) throw refusal(await answer.json().catch(() => ({ message: String(answer.status) })));
    return new URL(answer.headers.get("Location"), "http://x").pathname;
  };
  const isPassing = (status) => status === 0 || status === 408 || status === 423 || status === 429 || status >= 502 && status !== 507;

  // One large file. ``progress(bytes)``; ``resumed()`` when it goes on where an earlier visit stopped.
  const sendLarge = async (folder, path, file, { overwrite, signal, progress, resumed, inDirectory }) => {
    const key = keyOf(folder, path, file);
    let address = remembered(key);
    let offset = address && (await offsetOf(address, signal));
    if (offset === null || !address) {
      // Only an archive brings its directories along.
      if (inDirectory) await sendSmall([{ path: path.slice(0, path.lastIndexOf("/") + 1) }], { overwrite: false, signal });
      address = await create(path, file, overwrite, signal);
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
        if (xhr.status !== 409 && !isPassing(xhr.status)) throw refusal(faultIn(xhr));
        if (xhr.status === 409 && faultIn(xhr).code === "exists") throw refusal(faultIn(xhr));
      } catch (fault) {
        if (fault.name === "AbortError") {
          remember(key, null);
          ask("DELETE", address, { headers: tus }).catch(() => {});
          throw fault;
        }
        if (!(fault instanceof TypeError)) {
          remember(key, null);
          throw fault;
        }
      }
      if (tries >= patience.length) throw new TypeError("network");
      await wait(patience[tries++], signal);
      const there = await offsetOf(address, signal).catch(() => from);
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

  // Many small ones: resolves with how many are there already and were kept, how many of those are equal, and with those
  // refused, as {path, code}.
  const sendSmall = async (entries, { overwrite, signal, progress }) => {
    const body = window.tarOf(entries);
    const address = `/archive?overwrite=${overwrite ? "skip-equal" : "never"}`;
    for (let tries = 0; ; ) {
      try {
        const xhr = await send("PUT", address, { headers: { "Content-Type": "application/x-tar" }, body, signal, progress });
        if (xhr.status < 300) return JSON.parse(xhr.responseText);
        if (!isPassing(xhr.status)) throw refusal(faultIn(xhr));
      } catch (fault) {
        if (!(fault instanceof TypeError)) throw fault;
      }
      if (tries >= patience.length) throw new TypeError("network");
      await wait(patience[tries++], signal);
    }
  };

  window.folderSend = { sendLarge, sendSmall, faultOf };
})();

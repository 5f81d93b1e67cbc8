// @ts-check
// Sends files into the home folder of a session: one request for each, which writes it whole or not at all.
(() => {
  const { bytesAt, csrf } = window.folderFiles;
  const patience = [1, 2, 4, 8, 15, 30, 30]; // seconds before another try
  const isPassing = (status) => status === 0 || status === 408 || status === 429 || (status >= 502 && status !== 507);
  const wait = (seconds, signal) => new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(new DOMException("cancelled", "AbortError"))), { once: true });
  });
  const once = (path, file, { overwrite, resent }, signal, progress) => new Promise((resolve, reject) => {
    const xhr = new XMLHttpRequest();
    xhr.open("PUT", bytesAt(path) + (resent ? "?resent=1" : ""));
    xhr.setRequestHeader("X-CSRFToken", csrf());
    xhr.setRequestHeader("Content-Type", "application/octet-stream");
    if (!overwrite) xhr.setRequestHeader("If-None-Match", "*");
    xhr.upload.onprogress = ({ loaded }) => progress?.(loaded);
    xhr.onload = () => resolve(xhr);
    xhr.onerror = () => reject(new TypeError("network"));
    const cancel = () => reject(new DOMException("cancelled", "AbortError"));
    xhr.onabort = cancel;
    if (signal.aborted) return cancel();
    signal.addEventListener("abort", () => xhr.abort(), { once: true });
    xhr.send(file);
  });
  const refusal = (xhr) => {
    let said = {};
    try {
      said = JSON.parse(xhr.responseText);
    } catch { /* no answer of the portal's own */ }
    return Object.assign(new Error(said.detail ?? String(xhr.status)), { code: said.code ?? "" });
  };

  // A path with a number before the ending of its name: "data/a (2).txt".
  const longestName = 255; // bytes
  const mostNumbered = 100;
  const bytesOf = (text) => new TextEncoder().encode(text).length;
  const numbered = (path, number) => path.replace(/([^/]+?)(\.[^./]*)?$/, (_, stem, ending = "") => {
    const letters = Array.from(stem);
    while (letters.length > 1 && bytesOf(`${letters.join("")} (${number})${ending}`) > longestName) letters.pop();
    return `${letters.join("")} (${number})${ending}`;
  });

  // ``answer``: what becomes of a taken name: "replace", "both" for the first free number, or nothing yet.
  // After a lost answer the same file may be there already: it is sent again as such, and counts as this one.
  const sendLarge = async (_, path, file, { answer, signal, progress }) => {
    for (let tries = 0, number = 1, resent = false; ; ) {
      try {
        const goal = number > 1 ? numbered(path, number) : path;
        const xhr = await once(goal, file, { overwrite: answer === "replace", resent }, signal, progress);
        if (xhr.status < 300) return progress?.(file.size);
        if (xhr.status === 409 && answer === "both" && number < mostNumbered && refusal(xhr).code === "exists") {
          number += 1;
          resent = false;
          continue;
        }
        if (!isPassing(xhr.status)) throw refusal(xhr);
      } catch (fault) {
        if (!(fault instanceof TypeError)) throw fault;
      }
      if (tries >= patience.length) throw new TypeError("network");
      resent = true;
      await wait(patience[tries++], signal);
    }
  };

  // Many small ones: resolves with the entries that are there and were kept, as {path, kind}, and with those refused, as
  // {path, code}.
  const sendSmall = async (entries, { answer, signal, progress }) => {
    const refused = [];
    const kept = [];
    let sent = 0;
    for (const { path, file } of entries) {
      if (!file) continue; // an empty directory comes with its first file
      try {
        await sendLarge("", path, file, { answer, signal, progress: (bytes) => progress?.(sent + bytes) });
      } catch (fault) {
        if (fault.name === "AbortError" || fault instanceof TypeError) throw fault;
        if (fault.code === "exists") kept.push({ path, kind: "file" });
        else refused.push({ path, code: fault.code || fault.message });
      }
      sent += file.size;
    }
    return { kept, refused };
  };

  window.folderSend = { sendLarge, sendSmall, forgetLarge: () => {} };
})();

// @ts-check
// The way to the files of a folder: they live on an origin of their own. A one-time code of the portal is exchanged for a
// token, which this page alone keeps, in memory; links carry a code of their own, for a cookie.
(() => {
  const place = document.querySelector("[data-enter]");
  if (!place) return;
  const csrf = () => place.querySelector("[name=csrfmiddlewaretoken]").value;
  let entering = null;
  let origin = "";

  // Answers of a portal, proxy or storage host that is away for a moment: like a broken connection, tried again.
  const isPassing = (status) => status === 0 || status === 408 || status === 423 || status === 429 || (status >= 502 && status !== 507);
  const refusal = (status) => {
    if (isPassing(status)) return new TypeError("network");
    return new Error([403, 404].includes(status) ? place.dataset.noAccess : place.dataset.signedOut);
  };

  const code = async () => {
    const answer = await fetch(place.dataset.enter, { method: "POST", headers: { "X-CSRFToken": csrf() } });
    if (answer.redirected) throw refusal(401);
    if (!answer.ok) throw refusal(answer.status);
    return answer.json();
  };
  const enter = async () => {
    const entry = await code();
    origin = new URL(entry.url).origin;
    const answer = await fetch(entry.url, { method: "POST", headers: { Accept: "application/json" }, body: new URLSearchParams({ code: entry.code }) });
    if (!answer.ok) throw refusal(answer.status);
    return (await answer.json()).token;
  };
  const token = () => (entering ??= enter().catch((error) => { entering = null; throw error; }));

  // Asks the file server, and once more with a new token when the old one has ended.
  const ask = async (method, path, /** @type {Asked} */ { headers = {}, body, signal } = {}, again = true) => {
    const text = await token();
    const answer = await fetch(origin + path, { method, body, signal, headers: { ...headers, Authorization: `Bearer ${text}` }, cache: "no-store" });
    if (answer.status !== 401 || !again) return answer;
    entering = null;
    return ask(method, path, { headers, body, signal }, false);
  };

  // The same with what fetch does not have: how far a body has gone. Resolves with the request once it has an answer.
  const send = async (method, path, /** @type {Asked} */ { headers = {}, body, signal, progress } = {}, again = true) => {
    const text = await token();
    const request = await new Promise((resolve, reject) => {
      const xhr = new XMLHttpRequest();
      xhr.open(method, origin + path);
      for (const [name, value] of Object.entries({ ...headers, Authorization: `Bearer ${text}` })) xhr.setRequestHeader(name, value);
      xhr.upload.onprogress = ({ loaded }) => progress?.(loaded);
      xhr.onload = () => resolve(xhr);
      xhr.onerror = () => reject(new TypeError("network"));
      const cancel = () => reject(new DOMException("cancelled", "AbortError"));
      xhr.onabort = cancel;
      if (signal?.aborted) return cancel();
      signal?.addEventListener("abort", () => xhr.abort(), { once: true });
      xhr.send(body);
    });
    if (request.status !== 401 || !again) return request;
    entering = null;
    return send(method, path, { headers, body, signal, progress }, false);
  };

  const faultOf = async (answer) => {
    try {
      const said = await answer.json();
      return said.message ?? said.detail ?? String(answer.status);
    } catch {
      return String(answer.status);
    }
  };

  // Follows work that takes long to its end. Rejects with what went wrong, or as aborted once it was stopped.
  /** @type {FolderFiles["follow"]} */
  const follow = async (answer, { progress, signal } = {}) => {
    if (answer.status !== 202) return answer.json();
    let told = await answer.json();
    const address = `/operations/${told.operation}`;
    while (told.state === "running") {
      progress?.(told.progress);
      const next = await ask(signal?.aborted ? "DELETE" : "GET", address);
      if (!next.ok) throw new Error(await faultOf(next));
      told = await next.json();
    }
    if (told.state === "failed") throw new Error(told.error.message);
    if (told.state === "stopped") throw new DOMException("stopped", "AbortError");
    return told.result;
  };

  // An attachment leaves the page as it is.
  const download = async (path) => {
    const entry = await code();
    const form = Object.assign(document.createElement("form"), { method: "post", action: entry.url, hidden: true });
    for (const [name, value] of Object.entries({ code: entry.code, next: path })) {
      form.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
    }
    document.body.append(form);
    form.submit();
    form.remove();
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-download]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    download(link.dataset.download).catch(() => location.assign(link.href));
  });

  window.folderFiles = { ask, send, download, faultOf, follow, isPassing };
})();

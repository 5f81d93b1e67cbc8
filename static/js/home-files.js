// @ts-check
// The way to the files of a running session, for the scripts of the explorer: the portal's own REST addresses. Bytes come
// as attachments; what is shown of them is a text, or an image of a kind that cannot hold scripts.
(() => {
  const place = document.querySelector("[data-api]");
  if (!place) return;
  const api = place.dataset.api;
  const csrf = () => place.querySelector("[name=csrfmiddlewaretoken]").value;
  const kinds = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", avif: "image/avif", bmp: "image/bmp" };
  const bytesAt = (path) => `${api}files/${path.split("/").map(encodeURIComponent).join("/")}`;
  const problem = (status, message) => new Response(JSON.stringify({ message }), { status });
  const fetched = (address, /** @type {Asked & { method?: string }} */ { headers = {}, ...rest } = {}) =>
    fetch(address, { ...rest, headers: { ...headers, "X-CSRFToken": csrf() }, cache: "no-store" });

  const image = async (path, options) => {
    const answer = await fetched(bytesAt(path), options);
    if (!answer.ok) return answer;
    const type = kinds[path.split(".").pop().toLowerCase()] ?? "application/octet-stream";
    return new Response(await answer.arrayBuffer(), { headers: { "Content-Type": type } });
  };
  const text = async (path, options) => {
    const answer = await fetched(bytesAt(path), options);
    if (!answer.ok) return answer;
    const bytes = await answer.arrayBuffer();
    try {
      const found = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
      if (found.includes("\0")) throw new TypeError("binary");
      return new Response(bytes, { headers: { "Content-Type": "text/plain; charset=utf-8", ETag: answer.headers.get("ETag") ?? "" } });
    } catch {
      return problem(415, place.dataset.notText);
    }
  };
  // What is asked of the origin of a folder's files, asked of the session. A name that is taken is a condition not met.
  const ask = async (method, path, options = {}) => {
    const { pathname, searchParams: query } = new URL(path, "http://x");
    const of = query.get("path") ?? "";
    if (pathname === "/search") return fetched(`${api}search/?${query}`, options);
    if (pathname === "/content") return image(of, options);
    if (method === "GET") return text(of, options);
    const headers = { ...options.headers, "Content-Type": "application/octet-stream" };
    const answer = await fetched(bytesAt(of), { ...options, method, headers });
    return answer.status === 409 ? problem(412, await faultOf(answer)) : answer;
  };
  const faultOf = async (answer) => {
    try {
      const said = await answer.json();
      return said.message ?? said.detail ?? String(answer.status);
    } catch {
      return String(answer.status);
    }
  };

  // An attachment leaves the page as it is.
  const download = async (path) => {
    const { pathname, searchParams: query } = new URL(path, "http://x");
    query.delete("format");
    const link = document.createElement("a");
    link.href = pathname === "/content" ? bytesAt(query.get("path")) : `${api}archive/?${query}`;
    link.download = "";
    link.click();
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-download]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    download(link.dataset.download);
  });

  window.folderFiles = { ask, download, faultOf, bytesAt, csrf };
})();

// @ts-check
// One file of a folder: an image, a text that can be edited, a notebook or table, or the word that there is no preview.
(() => {
  const place = document.getElementById("file");
  if (!place) return;
  const { ask, faultOf } = window.folderFiles;
  const { path, size, editable, unreachable, saved, unsaved, page } = place.dataset;
  const part = (name) => place.querySelector(`[data-${name}]`);
  const field = document.getElementById("text");
  const form = part("text");
  const button = form.querySelector("[type=submit]");
  const conflict = part("conflict");
  const mostText = 2 ** 20;
  const mostPreview = 2 ** 24;
  const mostImage = 32 * 2 ** 20;
  const previewed = /\.(ipynb|[ct]sv)$/i;
  const images = /\.(png|jpe?g|gif|webp|avif|bmp)$/i;
  const at = (operation, of, more = {}) => `/${operation}?${new URLSearchParams({ path: of, ...more })}`;
  let etag = "";
  let stored = "";
  let ends = "\n"; // of the lines of the file; the field has its own
  const keepsMark = new TextDecoder("utf-8", { ignoreBOM: true });

  const show = (element) => {
    part("wait").hidden = true;
    element.hidden = false;
  };
  const other = (why = "") => {
    part("why").textContent = why;
    show(part("other"));
  };
  const state = (text) => {
    const line = part("state");
    if (line) line.textContent = text;
  };
  const showImage = async () => {
    const answer = await ask("GET", at("content", path, { inline: "1" }));
    if (!answer.ok) return other(await faultOf(answer));
    const blob = await answer.blob();
    if (!/^image\/(png|jpeg|gif|webp|avif|bmp)$/.test(blob.type)) return other();
    const image = place.querySelector("img");
    image.src = URL.createObjectURL(blob);
    show(image);
  };
  // A notebook or a table is shown as such, and its text can be edited beside it.
  const views = part("views");
  const choose = (view) => {
    const found = view === "preview" ? window.folderPreview?.(path, field.value, place.dataset) : null;
    if (found) part("preview").replaceChildren(found);
    part("preview").hidden = !found;
    form.hidden = Boolean(found);
    for (const one of views.querySelectorAll("[data-view]")) one.setAttribute("aria-pressed", String(one.dataset.view === (found ? "preview" : "text")));
    return Boolean(found);
  };
  views.addEventListener("click", ({ target }) => {
    const one = target.closest("[data-view]");
    if (one) choose(one.dataset.view);
  });
  // Larger than what can be edited: there is only the preview.
  const showLarge = async () => {
    const answer = await ask("GET", at("content", path));
    if (!answer.ok) return other(await faultOf(answer));
    const found = window.folderPreview(path, await answer.text(), place.dataset);
    if (!found) return other();
    part("preview").replaceChildren(found);
    show(part("preview"));
  };
  const showText = async () => {
    const answer = await ask("GET", at("text", path));
    if (!answer.ok) return other(await faultOf(answer));
    etag = answer.headers.get("ETag") ?? "";
    const text = keepsMark.decode(await answer.arrayBuffer());
    ends = /\r\n/.test(text) && !/(^|[^\r])\n/.test(text) ? "\r\n" : "\n";
    field.value = text;
    stored = field.value; // the browser's own line ends
    conflict.hidden = true;
    changed();
    show(form);
    if (previewed.test(path) && choose("preview")) views.hidden = false;
  };
  const changed = () => {
    const differs = field.value !== stored;
    if (button) button.disabled = !differs;
    state(differs ? unsaved : "");
    return differs;
  };
  const save = async (target, headers) => {
    const answer = await ask("PUT", at("text", target), { headers: { ...headers, "Content-Type": "text/plain; charset=utf-8" }, body: field.value.replaceAll("\n", ends) });
    if (answer.ok) return answer;
    if (answer.status === 412) {
      conflict.hidden = false;
      const name = path.split("/").pop();
      const dot = name.lastIndexOf(".");
      const input = conflict.querySelector("input");
      input.value ||= dot > 0 ? `${name.slice(0, dot)}-mine${name.slice(dot)}` : `${name}-mine`;
      conflict.scrollIntoView({ block: "center" });
    }
    state(await faultOf(answer));
    return null;
  };
  const tell = (work) => work().catch(() => state(unreachable));

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!button || button.disabled) return;
    tell(async () => {
      const sent = field.value;
      const answer = await save(path, { "If-Match": etag });
      button.classList.remove("is-busy");
      if (!answer) return changed.call(null) && undefined;
      etag = answer.headers.get("ETag") ?? etag;
      stored = sent;
      changed() || state(saved);
    });
  });
  part("save-as")?.addEventListener("click", () => tell(async () => {
    const name = conflict.querySelector("input").value.trim();
    if (!name || name.includes("/")) return;
    const target = [...path.split("/").slice(0, -1), name].join("/");
    if (!(await save(target, { "If-None-Match": "*" }))) return;
    stored = field.value;
    location.assign(`${page}?${new URLSearchParams({ path: target })}`);
  }));
  part("reload")?.addEventListener("click", () => tell(showText));
  field.addEventListener("input", changed);
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "s" && editable && !(form.hidden && views.hidden)) {
      event.preventDefault();
      form.requestSubmit(button);
    }
  });
  addEventListener("beforeunload", (event) => {
    if (editable && field.value !== stored) event.preventDefault();
  });

  const begin = async () => {
    if (images.test(path) && Number(size) <= mostImage) return showImage();
    if (Number(size) <= mostText) return showText();
    return previewed.test(path) && Number(size) <= mostPreview ? showLarge() : other();
  };
  begin().catch(() => other(unreachable));
})();

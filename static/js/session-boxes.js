// @ts-check
// Boxes over the panel of a session: history, info, name, apps, termination. Each is a page of its own, too: a link with
// data-box opens it here. One dialog serves them all.
window.portal = window.portal || {};
(() => {
  const dialog = document.getElementById("session-box");
  const body = document.getElementById("session-box-body");

  // What the server says of a part; nothing when it answers with a page of its own (signed out, gone).
  portal.part = async (address) => {
    const answer = await fetch(address, { headers: { "HX-Request": "true" } }).catch(() => null);
    if (!answer?.ok || answer.redirected) return "";
    const text = await answer.text();
    return /^\s*<!doctype/i.test(text) ? "" : text;
  };
  let opener = "";
  const open = async (link) => {
    const text = await portal.part(link.href);
    if (!text) {
      location.href = link.href;
      return;
    }
    opener = link.id;
    portal.fillBox(text, link.dataset.box);
    body.querySelector("[autofocus], input[name=name]")?.select?.();
  };
  portal.fillBox = (text, kind) => {
    dialog.className = `box session-box is-${kind}`;
    htmx.swap(body, text, { swapStyle: "innerHTML" });
    if (!dialog.open) dialog.showModal();
  };
  const isPlain = (event) => event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
  portal.isPlain = isPlain;

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-box]");
    if (!dialog || !link || !isPlain(event)) return;
    event.preventDefault();
    open(link);
  });
  dialog?.addEventListener("close", () => {
    body.replaceChildren();
    // The browser gives the focus back by itself, but not when the live parts were drawn anew meanwhile.
    if (document.activeElement === document.body) document.getElementById(opener)?.focus();
  });

  // 204: it is done. The live parts show it by themselves; the box has nothing more to say.
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (!body?.contains(detail.elt) || detail.xhr.status !== 204) return;
    dialog.close();
    document.dispatchEvent(new CustomEvent("look-again-at-all"));
  });
  document.addEventListener("htmx:afterSwap", ({ detail }) => {
    if (detail.target !== body) return;
    body.querySelector("[aria-invalid=true]")?.focus();
    const zone = body.querySelector("[data-own-zone]");
    if (zone) zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone;
  });

  // The arrow left of a row of the history unfolds its steps.
  document.addEventListener("click", (event) => {
    const arrow = event.target.closest(".expander");
    const steps = arrow && document.getElementById(arrow.getAttribute("aria-controls"));
    if (steps) steps.open = !steps.open;
  });
  document.addEventListener("toggle", ({ target }) => {
    document.getElementById(target.id.replace(/^steps-/, "expand-"))?.setAttribute("aria-expanded", target.open);
  }, true);
})();

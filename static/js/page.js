// @ts-check
window.portal = window.portal || {};
// What every page has: keys, copy buttons, dialogs, menus, and details that stay open when their part is renewed.
(() => {
  const typing = (element) => element.closest("input, textarea, select, [contenteditable], .xterm");
  const say = (what) => {
    const place = document.getElementById("announce");
    if (place) place.textContent = place.dataset[what];
  };

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") document.querySelectorAll("details.menu[open]").forEach((menu) => (menu.open = false));
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
    const target = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (!target) return;
    event.preventDefault();
    target.matches("input") ? (target.focus(), target.select()) : target.click();
  });

  // On a phone an open menu covers a part of the page: controls that it covers in part could be pressed by mistake.
  const narrow = window.matchMedia("(width < 48rem)");
  const shade = () => {
    const main = document.querySelector("main");
    if (main) main.inert = narrow.matches && document.querySelector("details.menu[open]") !== null;
  };
  document.addEventListener("toggle", (event) => event.target.matches?.("details.menu") && shade(), true);
  narrow.addEventListener("change", shade);

  // A dialog closes by a press beside it: not by the second hit of a double click that opened it, and not where somebody
  // marks text in it and lets go outside.
  const doubleClick = 500; // ms
  let clickedAt = -Infinity;
  let pressed = null;
  document.addEventListener("pointerdown", ({ target }) => (pressed = target), true);
  const isBeside = (target, since) => target === pressed && target.matches("dialog") && since > doubleClick;

  document.addEventListener("click", async (event) => {
    const sinceLast = performance.now() - clickedAt;
    clickedAt = performance.now();
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (!menu.contains(event.target)) menu.open = false;
    }
    const copy = event.target.closest("[data-copy]");
    if (copy) {
      const done = await portal.copy(copy.dataset.copy);
      copy.classList.toggle("copied", done);
      say(done ? "copied" : "notCopied");
      setTimeout(() => copy.classList.remove("copied"), 1500);
    }
    // Closed first: where a dialog leads to another, the focus returns to what opened the first.
    if (event.target.closest("[data-close]") || isBeside(event.target, sinceLast)) {
      event.target.closest("dialog")?.close();
    }
    const opener = event.target.closest("[data-dialog]");
    const dialog = opener && document.getElementById(opener.dataset.dialog);
    if (dialog) {
      event.preventDefault();
      dialog.showModal();
    }
  });

  // Whether the clipboard has the text now.
  portal.copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Over plain HTTP there is no clipboard interface; a hidden field still copies.
      const field = Object.assign(document.createElement("textarea"), { value: text, className: "visually-hidden" });
      document.body.append(field);
      field.select();
      const done = document.execCommand("copy");
      field.remove();
      return done;
    }
  };

  document.addEventListener("submit", (event) => {
    const button = event.submitter;
    if (event.defaultPrevented || !button || event.target.method === "dialog") return;
    // After the form's data has been collected, so that a second click cannot send it twice.
    setTimeout(() => {
      button.disabled = true;
      button.classList.add("is-busy");
    });
  });
  document.addEventListener("DOMContentLoaded", () => document.querySelector("[aria-invalid=true]")?.focus());
  // A reload of what is shown once would send its form again: another token, another secret. It is to ask for the page.
  document.addEventListener("DOMContentLoaded", () => {
    const page = document.querySelector("[data-shown-once]")?.dataset.shownOnce;
    if (page) history.replaceState(null, "", page);
  });
  addEventListener("pageshow", () => {
    for (const button of document.querySelectorAll("button.is-busy")) {
      button.disabled = false;
      button.classList.remove("is-busy");
    }
  });

  // A server does not see what stands behind # in the address: the sign-in form takes it along.
  document.addEventListener("DOMContentLoaded", () => {
    const next = document.querySelector("form[data-goes-on] [name=next]");
    if (next?.value && !next.value.includes("#")) next.value += location.hash;
  });

  // A whole page where a part was asked for is the sign-in page: the login has expired.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.xhr.status !== 200 || !/^\s*<!doctype/i.test(event.detail.serverResponse)) return;
    event.detail.shouldSwap = false;
    location.reload();
  });

  // A session that is no longer there for this person, whose share has ended: the page says so.
  document.addEventListener("htmx:responseError", ({ detail: { elt, xhr } }) => {
    if (xhr.status === 404 && elt.id === "session-head") location.reload();
  });

  // What the network dropped is asked again, by parts that only look: a machine that changes its network, such as to
  // another Wi-Fi, drops what is on its way, and the next news may be long in coming. After four times the portal is
  // away, and the events say when it is back.
  const drops = new WeakMap();
  document.addEventListener("htmx:sendError", ({ detail: { elt } }) => {
    const looks = /\b(look-again|row-changed|look)\b/.exec(elt.getAttribute("hx-trigger"))?.[0];
    const number = (drops.get(elt) ?? 0) + 1;
    if (!looks || number > 4) return;
    drops.set(elt, number);
    setTimeout(() => elt.isConnected && htmx.trigger(elt, looks), 500 * 2 ** number * (0.5 + Math.random() / 2));
  });
  document.addEventListener("htmx:afterRequest", ({ detail }) => {
    if (detail.xhr.status) drops.delete(detail.elt);
  });

  // Looked at just before a part is renewed: the event that tells of an opening may come after that. What has come with
  // a part and is not opened again yet says nothing: another part may be renewed in between.
  const open = new Set();
  const settled = new WeakSet();
  const kept = () => document.querySelectorAll("details[data-keep][id]");
  document.addEventListener("htmx:beforeSwap", () => {
    for (const one of kept()) if (settled.has(one)) one.open ? open.add(one.id) : open.delete(one.id);
  });
  document.addEventListener("htmx:load", () => {
    for (const one of kept()) {
      if (!settled.has(one) && open.has(one.id)) one.open = true;
      settled.add(one);
    }
  });
})();

// @ts-check
// Fields for code: they grow with what is in them, and Tab indents. Escape lets the next Tab leave the field.
(() => {
  const INDENT = "    ";
  const grows = CSS.supports("field-sizing", "content");
  const fit = (field) => {
    if (grows || !field.offsetParent) return;
    field.style.height = "auto";
    field.style.height = `${field.scrollHeight + 2}px`;
  };
  let leaves = null;
  document.addEventListener("keydown", (event) => {
    const field = event.target.closest?.("textarea[data-code]");
    if (!field) return;
    if (event.key === "Escape") leaves = field;
    else if (event.key === "Tab" && !event.shiftKey && !event.altKey && !event.ctrlKey && !event.metaKey && leaves !== field) {
      event.preventDefault();
      // So that it can be undone.
      if (!document.execCommand("insertText", false, INDENT)) field.setRangeText(INDENT, field.selectionStart, field.selectionEnd, "end");
    } else if (event.key !== "Shift") leaves = null;
  });
  document.addEventListener("focusout", () => (leaves = null));
  document.addEventListener("input", ({ target }) => target.matches?.("textarea[data-code]") && fit(target));
  document.addEventListener("DOMContentLoaded", () => {
    for (const field of document.querySelectorAll("textarea[data-code]")) {
      field.setAttribute("aria-describedby", `${field.getAttribute("aria-describedby") ?? ""} code-keys`.trim());
      fit(field);
    }
  });
})();

// @ts-check
// A document that was refused: the line that is wrong is selected and scrolled to.
document.addEventListener("DOMContentLoaded", () => {
  const field = document.querySelector("textarea[data-line]");
  if (!field) return;
  const lines = field.value.split("\n");
  const at = Math.min(Number(field.dataset.line), lines.length) - 1;
  const begin = lines.slice(0, at).reduce((sum, line) => sum + line.length + 1, 0);
  field.focus({ preventScroll: true });
  field.setSelectionRange(begin, begin + lines[at].length);
  field.scrollTop = Math.max(0, (at - 4) * parseFloat(getComputedStyle(field).lineHeight));
  field.closest(".field").scrollIntoView({ block: "nearest" });
});

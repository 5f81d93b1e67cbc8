// @ts-check
// The order of the columns: their arrows and Alt with the arrow keys move them before they are saved, and so does dragging.
// Without scripts an arrow saves at once.
(() => {
  const list = document.getElementById("column-order");
  if (!list) return;
  const announce = document.getElementById("announce");
  const say = (line) => {
    const lines = [...list.children];
    const words = { name: line.querySelector("[data-name]").textContent, place: lines.indexOf(line) + 1, number: lines.length };
    announce.textContent = list.dataset.moved.replace(/{(\w+)}/g, (_, key) => words[key]);
  };
  const move = (line, isEarlier, focused) => {
    if (isEarlier) line.previousElementSibling?.before(line);
    else line.nextElementSibling?.after(line);
    focused.focus();
    say(line);
  };

  list.addEventListener("click", (event) => {
    const button = event.target.closest("button[name]");
    if (!button) return;
    event.preventDefault();
    move(button.closest("li"), button.name === "earlier", button);
  });
  list.addEventListener("keydown", (event) => {
    if (!event.altKey || !["ArrowUp", "ArrowDown"].includes(event.key)) return;
    event.preventDefault();
    move(event.target.closest("li"), event.key === "ArrowUp", event.target);
  });

  let dragged = null;
  let behind = null; // the line before which it stood
  for (const line of list.querySelectorAll(":scope > li")) line.draggable = true;
  list.addEventListener("dragstart", (event) => {
    dragged = event.target.closest("li");
    dragged.classList.add("is-dragged");
    behind = dragged.nextElementSibling;
    event.dataTransfer.effectAllowed = "move";
    event.dataTransfer.setData("text/plain", ""); // Firefox drags nothing without data
  });
  list.addEventListener("dragover", (event) => {
    const over = dragged && event.target.closest("li");
    if (!over) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "move";
    const { top, height } = over.getBoundingClientRect();
    if (over !== dragged) event.clientY < top + height / 2 ? over.before(dragged) : over.after(dragged);
  });
  list.addEventListener("drop", (event) => event.preventDefault());
  list.addEventListener("dragend", (event) => {
    if (!dragged) return;
    dragged.classList.remove("is-dragged");
    if (event.dataTransfer.dropEffect === "none") list.insertBefore(dragged, behind); // Esc, or let go elsewhere
    say(dragged);
    dragged = behind = null;
  });
})();

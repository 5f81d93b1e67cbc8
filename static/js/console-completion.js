// @ts-check
// Completion in the console's editor: a list below the code, moved through with the arrow keys.
window.portal = window.portal || {};
// `ask` brings completions of the code at a cursor; `say` tells a sentence.
portal.consoleCompletion = (codeBox, matchesBox, words, ask, say) => {
  let completion = null;
  const hide = () => {
    matchesBox.hidden = true;
    completion = null;
  };
  const mark = (at) => {
    const options = Array.from(matchesBox.children);
    completion.at = (at + options.length) % options.length;
    options.forEach((option, index) => option.setAttribute("aria-selected", index === completion.at));
    options[completion.at].scrollIntoView({ block: "nearest" });
  };
  const insert = (text) => {
    codeBox.setRangeText(text, completion.start, completion.end, "end");
    hide();
    codeBox.dispatchEvent(new Event("input"));
  };
  const option = (text) => {
    const made = document.createElement("li");
    made.setAttribute("role", "option");
    made.textContent = text;
    made.addEventListener("mousedown", (event) => (event.preventDefault(), insert(text)));
    return made;
  };
  const complete = async () => {
    const [code, cursor] = [codeBox.value, codeBox.selectionStart];
    const characters = Array.from(code.slice(0, cursor)).length; // the interpreter counts characters, not halves of them
    /** @type {Answer} */
    const found = await ask(code, characters).catch(() => ({ matches: [] }));
    if (codeBox.value !== code) return;
    if (!found.matches?.length) return say(found.status === "busy" ? words.busy : words.noMatches);
    completion = { start: Array.from(code).slice(0, found.cursor_start).join("").length, end: cursor, at: 0 };
    matchesBox.replaceChildren(...found.matches.slice(0, 50).map(option));
    matchesBox.hidden = false;
    found.matches.length === 1 ? insert(found.matches[0]) : mark(0);
  };
  const choose = (key) => {
    if (key === "Escape") hide();
    else if (key === "ArrowDown" || key === "ArrowUp") mark(completion.at + (key === "ArrowDown" ? 1 : -1));
    else insert(matchesBox.children[completion.at].textContent);
  };
  codeBox.addEventListener("keydown", (event) => {
    if (event.key === " " && event.ctrlKey) complete();
    else if (!matchesBox.hidden && !event.ctrlKey && !event.shiftKey && ["ArrowDown", "ArrowUp", "Escape", "Enter", "Tab"].includes(event.key)) choose(event.key);
    else return;
    event.preventDefault();
  });
  return hide;
};

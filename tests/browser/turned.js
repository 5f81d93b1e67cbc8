// Finds texts in which somebody turns the direction of what stands beside them. A name is the argument; it runs the
// other way from its first letter on, so that only its end may follow it, or it is within isolates.
(name) => {
  const isolates = /[\u2066-\u2068]|\u2069/g;
  const unkept = (text) => {
    let depth = 0, kept = "", from = 0;
    for (const { 0: sign, index } of text.matchAll(isolates)) {
      if (!depth) kept += text.slice(from, index);
      depth = Math.max(0, depth + (sign === "\u2069" ? -1 : 1));
      from = index + 1;
    }
    return depth ? kept : kept + text.slice(from);
  };
  const turns = (text) => unkept(text).includes("\u202e");
  const goesOn = (text) => turns(text) && !unkept(text).trim().endsWith(name);
  const standsAlone = (one) => {
    const { unicodeBidi, display } = getComputedStyle(one);
    return /isolate|plaintext/.test(unicodeBidi) || display !== "inline";
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { data, parentElement } = texts.currentNode;
    if (!turns(data) || parentElement.closest("option, textarea, script, template")) continue;
    let around = parentElement;
    while (!standsAlone(around)) around = around.parentElement;
    const isOnly = around.localName === "bdi" || around.textContent.trim() === data.trim();
    if (!isOnly || goesOn(data)) found.push(around.outerHTML.slice(0, 300));
  }
  for (const one of document.querySelectorAll("option")) if (goesOn(one.text)) found.push(one.outerHTML);
  for (const one of document.querySelectorAll("[title], [aria-label], [aria-description], [alt], [placeholder], [data-label]"))
    for (const attribute of ["title", "aria-label", "aria-description", "alt", "placeholder", "data-label"])
      if (goesOn(one.getAttribute(attribute) ?? "")) found.push(`${attribute}="${one.getAttribute(attribute)}"`);
  if (goesOn(document.title)) found.push(document.title);
  return found;
}

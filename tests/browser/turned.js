// Finds texts in which somebody turns the direction of what stands beside them.
() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const standsAlone = (one) => {
    const { unicodeBidi, display } = getComputedStyle(one);
    return /isolate|plaintext/.test(unicodeBidi) || display !== "inline";
  };
  const found = [];
  while (texts.nextNode()) {
    const { data, parentElement } = texts.currentNode;
    if (!data.includes("\u202e") || parentElement.closest("option, textarea, script, template")) continue;
    let around = parentElement;
    while (!standsAlone(around)) around = around.parentElement;
    if (around.localName !== "bdi" && around.textContent.trim() !== data.trim()) found.push(around.outerHTML.slice(0, 200));
  }
  return found;
}

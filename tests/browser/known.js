// Finds what of the head and the menus of a page has been looked at on a page before, to be left out from now on: the
// same markup in the same place, under the same style sheets. Returns the signs of the rest, once it is found in order.
(seen) => {
  const sign = (text) => {
    let one = 1, other = 2;
    for (let at = 0; at < text.length; at++) {
      one = Math.imul(one ^ text.charCodeAt(at), 0x85ebca6b) ^ (one >>> 15);
      other = Math.imul(other ^ text.charCodeAt(at), 0xc2b2ae35) ^ (other >>> 13);
    }
    return `${(one >>> 0).toString(36)}.${(other >>> 0).toString(36)}.${text.length}`;
  };
  const tag = (one) => one.cloneNode(false).outerHTML;
  const sheets = [...document.querySelectorAll("link[rel=stylesheet], style")].map((one) => one.outerHTML).join();
  // A name that is given elsewhere is there on one page and missing on another.
  const ids = new Set([...document.querySelectorAll("[id]")].map((one) => one.id));
  const leadsTo = (html) => [...html.matchAll(/="#?([\w-]+)"/g)].map(([, id]) => Number(ids.has(id))).join("");
  const before = new Set(seen), known = [], fresh = [];
  const walk = (part, place) => {
    const html = part.outerHTML, mark = sign(`${place} ${html} ${leadsTo(html)}`);
    const isKnown = before.has(mark) && !part.matches(":focus-within, :popover-open");
    if (isKnown) known.push(part);
    else {
      fresh.push(mark);
      for (const child of part.children) walk(child, place + tag(part));
    }
  };
  for (const part of document.querySelectorAll("body > header, nav:not(header nav)")) {
    let place = "";
    for (let around = part.parentElement; around; around = around.parentElement) place += tag(around);
    walk(part, sheets + place);
  }
  window.looked = { known };
  return fresh;
}

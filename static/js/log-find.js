// @ts-check
// Finding words in the lines of a log, whatever is in sight; it goes on with lines that come later.
window.portal = window.portal || {};
(() => {
  const most = 10000;

  portal.logFinder = (lines) => {
    let hits = [];
    let byLine = new Map();
    let looked = 0;
    let place = -1;
    const finder = {
      words: "",
      version: 0,
      onChange: () => {},
      get total() { return hits.length; },
      get number() { return place + 1; },
      get current() { return hits[place]; },
      get isCapped() { return hits.length >= most; },
      hitsOf: (line) => byLine.get(line) || [],
      clear: () => {
        [hits, byLine, looked, place] = [[], new Map(), lines.first, -1];
        finder.version += 1;
      },
      look: (words) => {
        if (words === finder.words) return;
        finder.words = words;
        finder.clear();
        finder.more();
        finder.onChange();
      },
      // Looks at lines that came since; the last one may still grow.
      more: () => {
        if (!finder.words || finder.isCapped) return;
        const before = hits.length;
        const wanted = finder.words.toLowerCase();
        const end = lines.end - (lines.rest ? 1 : 0);
        for (looked = Math.max(looked, lines.first); looked < end && hits.length < most; looked += 1) {
          const text = portal.linePlain(lines.at(looked)).toLowerCase();
          for (let start = text.indexOf(wanted); start >= 0 && hits.length < most; start = text.indexOf(wanted, start + wanted.length)) {
            const hit = { line: looked, start, end: start + wanted.length };
            hits.push(hit);
            byLine.has(looked) ? byLine.get(looked).push(hit) : byLine.set(looked, [hit]);
          }
        }
        if (hits.length === before) return;
        finder.version += 1;
        finder.onChange();
      },
      // Returns the next hit, or the one before; the first time the one nearest to what is in sight.
      step: (step, line) => {
        if (!hits.length) return null;
        if (place < 0) {
          const next = hits.findIndex((hit) => hit.line >= line);
          place = step > 0 ? Math.max(0, next) : (next < 0 ? hits.length : next || hits.length) - 1;
        } else place = (place + step + hits.length) % hits.length;
        finder.version += 1;
        finder.onChange();
        return hits[place];
      },
    };
    return finder;
  };
})();

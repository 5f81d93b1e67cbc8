// @ts-check
// The output of a kernel: followed while it runs, kept after its end. Only the lines in sight are in the page, so that a
// long log stays light; the download always has everything. Texts come from the box's data attributes.
portal.beginLog = () => {
  const box = document.getElementById("log-box");
  if (!box) return;
  const part = (name) => document.getElementById(`log-${name}`);
  const [state, kernel, follow, download, view, space, rows] = ["state", "kernel", "follow", "download", "view", "space", "rows"].map(part);
  const [words, found, fresh] = ["words", "found", "fresh"].map(part);
  const notice = portal.noticeOf(box);
  const say = (name, numbers = {}) => Object.entries(numbers).reduce((text, [key, value]) => text.replace(`{${key}}`, value), box.dataset[name] || "");
  const mostWaiting = 16 * 2 ** 20;
  const freshFor = 2500;
  const lines = new portal.LogLines();
  const finder = portal.logFinder(lines);
  let socket = null;
  let queue = [];
  let queued = 0;
  let working = false;
  let settledAt = Infinity;
  let arrivals = [];
  let unread = 0;
  let height = 20;
  let drawn = "";
  let keptAt = null;

  // Drawing

  const atEnd = () => view.scrollTop + view.clientHeight >= view.scrollHeight - height;
  const isFresh = (number) => arrivals.some(({ from, to }) => number >= from && number < to);
  const span = (text, classes) => {
    const element = document.createElement("span");
    if (classes) element.className = classes;
    element.textContent = text;
    return element;
  };
  const marked = (pieces, hits, current) => {
    const nodes = [];
    let from = 0;
    for (const { text, classes } of pieces) {
      let at = 0;
      for (const hit of hits) {
        const [start, end] = [hit.start - from, hit.end - from];
        if (end <= at || start >= text.length) continue;
        if (start > at) nodes.push(span(text.slice(at, start), classes));
        const mark = document.createElement("mark");
        mark.classList.toggle("is-current", hit === current);
        mark.append(span(text.slice(Math.max(at, start), end), classes));
        nodes.push(mark);
        at = Math.min(text.length, end);
      }
      if (at < text.length) nodes.push(span(text.slice(at), classes));
      from += text.length;
    }
    return nodes;
  };
  const row = (number) => {
    const element = document.createElement("div");
    element.className = "log-line";
    element.dataset.number = number + 1;
    element.classList.toggle("is-fresh", isFresh(number));
    element.append(...marked(portal.linePieces(lines.at(number)), finder.hitsOf(number), finder.current));
    return element;
  };
  const draw = () => {
    const first = Math.max(0, Math.floor(view.scrollTop / height) - 20);
    const last = Math.min(lines.count, Math.ceil((view.scrollTop + view.clientHeight) / height) + 20);
    const now = `${lines.first + first} ${lines.first + last} ${lines.end} ${lines.rest.length} ${finder.version} ${arrivals.length}`;
    if (now === drawn) return;
    drawn = now;
    space.style.height = `${lines.count * height}px`;
    space.style.setProperty("--digits", Math.max(3, String(lines.end).length));
    rows.style.transform = `translateY(${first * height}px)`;
    rows.replaceChildren(...Array.from({ length: last - first }, (_, index) => row(lines.first + first + index)));
  };
  const toEnd = () => {
    space.style.height = `${lines.count * height}px`;
    view.scrollTop = view.scrollHeight;
  };
  const tellFresh = () => {
    fresh.hidden = follow.checked || !unread;
    fresh.textContent = say(unread === 1 ? "newLine" : "newLines", { number: unread.toLocaleString() });
  };

  // Reading: a slice at a time, so that a flood does not hold up the page

  const take = () => {
    const until = performance.now() + 8;
    const before = lines.end;
    while (queue.length && performance.now() < until) {
      const bytes = queue.shift();
      queued -= bytes.length;
      const gone = lines.add(bytes);
      if (gone && !follow.checked) view.scrollTop = Math.max(0, view.scrollTop - gone * height);
    }
    noteArrival(before);
    if (keptAt !== null && (lines.count * height > keptAt || !queue.length)) {
      space.style.height = `${lines.count * height}px`;
      view.scrollTop = keptAt;
      if (lines.count * height > keptAt + view.clientHeight) keptAt = null;
    } else if (follow.checked) toEnd();
    draw();
    finder.more();
    working = queue.length > 0;
    if (working) requestAnimationFrame(take);
  };
  const noteArrival = (before) => {
    if (performance.now() < settledAt || lines.end === before) {
      settledAt = settledAt === Infinity ? performance.now() + 1500 : settledAt;
      return;
    }
    const arrival = { from: before, to: lines.end };
    arrivals.push(arrival);
    unread += lines.end - before;
    if (follow.checked) unread = 0;
    tellFresh();
    setTimeout(() => {
      arrivals = arrivals.filter((each) => each !== arrival);
      drawn = "";
      draw();
    }, freshFor);
  };
  const receive = (bytes) => {
    queue.push(bytes);
    queued += bytes.length;
    if (queued > mostWaiting) {
      const skipped = queued;
      for (const each of queue) lines.skip(each);
      queue = [];
      queued = 0;
      lines.add(new TextEncoder().encode(`\x1b[7m ${say("skipped", { size: (skipped / 2 ** 20).toFixed(1) })} \x1b[0m\n`));
    }
    if (!working) {
      working = true;
      requestAnimationFrame(take);
    }
  };

  // The connection

  const ofApp = () => kernel.selectedOptions[0]?.dataset.name; // the choice's value is a query: of a kernel, maybe of its app
  const startAnew = () => {
    lines.clear();
    finder.clear();
    [queue, queued, arrivals, unread, settledAt, drawn] = [[], 0, [], 0, Infinity, ""];
    tellFresh();
    draw();
  };
  const connect = () => {
    state.textContent = say("loading");
    socket = portal.steadySocket(() => portal.address(`${box.dataset.address}?kernel=${kernel.value}`), {
      onOpen: () => {
        startAnew();
        notice("");
        state.textContent = say("live");
      },
      onBytes: receive,
      onMessage: (text) => {
        if (JSON.parse(text).type === "truncated") notice(say("truncated"));
      },
      onAway: (_, now) => {
        state.textContent = say("reconnecting");
        notice(say("interrupted"), say("reconnect"), now);
      },
      onEnd: (code, reason, isSignedOut) => {
        state.textContent = code === 4000 ? say("complete") : "";
        if (isSignedOut) notice(say("signedOut"), say("signIn"), () => portal.toSignIn(box));
        else if (code !== 4000) notice(reason || say("unreadable"), say("again"), () => socket.again());
        else requestAnimationFrame(() => lines.count || queued || notice(say(ofApp() ? "emptyApp" : "empty")));
      },
    });
  };
  const again = () => {
    keptAt = follow.checked ? null : view.scrollTop;
    socket?.close();
    connect();
  };

  portal.showLog = (status) => {
    if (socket) return draw();
    if (["PENDING", "SCHEDULED", "PULLING"].includes(status)) notice(say("notYet"));
    else if (status === "CANCELLED") notice(say("neverRan"));
    else {
      notice("");
      height = part("probe").getBoundingClientRect().height || height;
      connect();
    }
  };
  portal.chooseLog = (id) => {
    kernel.value = id;
    kernel.dispatchEvent(new Event("change"));
  };
  const nameDownload = () => {
    download.href = `${download.dataset.base}?kernel=${kernel.value}`;
    download.download = `${download.dataset.name}-${ofApp() || kernel.selectedOptions[0]?.textContent || "main1"}.txt`;
  };
  kernel.addEventListener("change", () => {
    nameDownload();
    if (!socket) return;
    keptAt = null;
    socket.close();
    connect();
  });
  part("refresh").addEventListener("click", () => socket && again());

  // Following and finding

  const followOrNot = (yes) => {
    follow.checked = yes;
    if (yes) unread = 0;
    tellFresh();
  };
  follow.addEventListener("change", () => {
    followOrNot(follow.checked);
    if (follow.checked) toEnd();
  });
  fresh.addEventListener("click", () => {
    followOrNot(true);
    toEnd();
    view.focus({ preventScroll: true });
  });
  view.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  for (const kind of ["wheel", "touchmove", "keyup", "pointerup"]) {
    view.addEventListener(kind, () => requestAnimationFrame(() => followOrNot(atEnd())), { passive: true });
  }
  const sizes = new ResizeObserver(() => {
    if (!view.clientHeight) return;
    drawn = "";
    if (follow.checked) toEnd();
    draw();
  });
  sizes.observe(view);

  finder.onChange = () => {
    const { number, total, isCapped } = finder;
    found.textContent = !finder.words ? "" : total ? say("found", { number: number.toLocaleString(), total: `${total.toLocaleString()}${isCapped ? "+" : ""}` }) : say("nothing");
    draw();
  };
  const go = (step) => {
    const hit = finder.step(step, lines.first + Math.floor(view.scrollTop / height));
    if (!hit) return;
    followOrNot(false);
    const top = (hit.line - lines.first) * height;
    if (top < view.scrollTop || top > view.scrollTop + view.clientHeight - 2 * height) view.scrollTop = Math.max(0, top - view.clientHeight / 3);
    drawn = "";
    draw();
    rows.querySelector("mark.is-current")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  };
  let typed = 0;
  words.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => finder.look(words.value), 250);
  });
  words.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !event.shiftKey) return;
    event.preventDefault();
    finder.look(words.value);
    go(-1);
  });
  part("find").addEventListener("submit", (event) => {
    event.preventDefault();
    finder.look(words.value);
    go(event.submitter?.name === "back" ? -1 : 1);
  });

  const wanted = new URLSearchParams(location.search).get("kernel");
  if (wanted && [...kernel.options].some((option) => option.value === wanted)) kernel.value = wanted;
  nameDownload();

  // The box is gone, with everything in it.
  portal.endLog = () => {
    sizes.disconnect();
    socket?.close();
    socket = null;
  };
};
portal.beginLog();

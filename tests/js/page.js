// Opens pages for tests: a document with scripts of static/js in it, which share one global scope as in a browser. Time stands
// still until a test moves it; what jsdom does not have is replaced by the little that the scripts use.
process.env.TZ = "UTC";
const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const { Script } = require("node:vm");
const { JSDOM, VirtualConsole } = require("jsdom");

const SCRIPTS = join(__dirname, "../../static/js");
const NOW = Date.UTC(2030, 2, 1, 12);
const compiled = new Map();

const scriptOf = (name) => {
  if (!compiled.has(name)) {
    const filename = join(SCRIPTS, `${name}.js`);
    compiled.set(name, new Script(readFileSync(filename, "utf8"), { filename }));
  }
  return compiled.get(name);
};

// Timers by hand: `pass(milliseconds)` runs what is due, in its order.
class Clock {
  constructor(window, page) {
    this.now = NOW;
    this.plans = new Map();
    this.number = 0;
    const plan = (every) => (act, delay = 0, ...given) => {
      this.plans.set((this.number += 1), { act, given, due: this.now + Math.max(0, delay), every: every && Math.max(1, delay) });
      return this.number;
    };
    const forget = (number) => this.plans.delete(number);
    Object.assign(window, { setTimeout: plan(false), setInterval: plan(true), clearTimeout: forget, clearInterval: forget });
    window.requestAnimationFrame = (act) => window.setTimeout(() => act(this.now - NOW), 16);
    page.run("Date").now = () => this.now;
    window.performance.now = () => this.now - NOW;
  }
  async pass(milliseconds) {
    const end = this.now + milliseconds;
    for (;;) {
      const [number, next] = [...this.plans].sort(([, one], [, other]) => one.due - other.due)[0] ?? [];
      if (!next || next.due > end) break;
      this.now = Math.max(this.now, next.due);
      if (next.every) next.due += next.every;
      else this.plans.delete(number);
      next.act(...next.given);
      await settled();
    }
    this.now = end;
    await settled();
  }
}

// A websocket whose other end is the test.
const socketsOf = (window) => {
  const sockets = [];
  window.WebSocket = class {
    static OPEN = 1;
    constructor(url) {
      Object.assign(this, { url, readyState: 0, sent: [] });
      sockets.push(this);
    }
    send(data) {
      this.sent.push(data);
    }
    close(code) {
      Object.assign(this, { readyState: 3, closed: code });
    }
    open() {
      this.readyState = 1;
      this.onopen();
    }
    say(data) {
      this.onmessage({ data });
    }
    hangUp(code, reason = "") {
      this.readyState = 3;
      return this.onclose({ code, reason });
    }
  };
  return sockets;
};

const settled = () => new Promise((resolve) => setImmediate(resolve));

const complete = (window, page) => {
  const { prototype } = window.HTMLDialogElement;
  Object.assign(prototype, {
    showModal() {
      this.open = true;
    },
    close(value) {
      if (!this.open) return;
      this.open = false;
      if (value !== undefined) this.returnValue = value;
      this.dispatchEvent(new window.Event("close"));
    },
  });
  window.Element.prototype.scrollIntoView = () => {};
  window.scrollTo = () => {};
  // The document tells later by itself that it is read; here a test says when.
  window.addEventListener("DOMContentLoaded", (event) => event.isTrusted && event.stopImmediatePropagation(), true);
  window.CSS = { escape: (text) => text.replace(/[^\w-]|^\d/g, (letter) => `\\${letter.charCodeAt(0).toString(16)} `), supports: () => true };
  window.matchMedia = () => ({ matches: false, addEventListener: () => {} });
  window.ResizeObserver = class {
    observe() {}
    disconnect() {}
  };
  window.BroadcastChannel = class {
    postMessage(message) {
      page.told.push(message);
    }
    addEventListener() {}
  };
  Object.assign(window, { Blob, File, Response, Headers, TextEncoder, TextDecoder });
  window.fetch = async (address, options = {}) => {
    page.fetched.push({ address: String(address), ...options });
    return page.answer(String(address), options);
  };
  window.htmx = {
    trigger: (target, kind) => page.triggered.push(`${typeof target === "string" ? target : `#${target.id}`} ${kind}`),
    swap: (target, text) => {
      target.innerHTML = text;
    },
    ajax: (verb, path) => page.triggered.push(`${verb} ${path}`),
  };
};

// Opens a page with this body and these scripts. `before(page)` prepares what they find: an answer to `fetch`, or what is
// remembered. What they ask for and tell is in `fetched`, `triggered` and `told`.
const open = (html, scripts, { address = "/", before = () => {}, isReady = true, language = "en" } = {}) => {
  const console = new VirtualConsole();
  console.on("jsdomError", (error) => {
    if (!/Not implemented/.test(error.message)) throw error.cause ?? error;
  });
  const options = { url: `http://portal.test${address}`, runScripts: "outside-only", pretendToBeVisual: true, virtualConsole: console };
  const dom = new JSDOM(`<!doctype html><html lang="${language}"><body>${html}</body></html>`, options);
  const { window } = dom;
  const { document } = window;
  const find = (selector) => {
    const found = document.querySelector(selector);
    if (!found) throw new Error(`nothing on the page is ${selector}`);
    return found;
  };
  const heard = (target, event) => target.dispatchEvent(event);
  const page = {
    window, document, find,
    fetched: [], triggered: [], told: [],
    answer: () => new Response("{}"),
    all: (selector) => [...document.querySelectorAll(selector)],
    texts: (selector) => page.all(selector).map((one) => one.textContent.trim()),
    shown: (selector) => page.all(selector).filter((one) => !one.closest("[hidden]")),
    load: (...names) => names.forEach((name) => scriptOf(name).runInContext(dom.getInternalVMContext())),
    run: (code) => new Script(code).runInContext(dom.getInternalVMContext()),
    tell: (target, kind, detail) => {
      const element = typeof target === "string" ? find(target) : target;
      const event = new window.CustomEvent(kind, { bubbles: true, cancelable: true, detail });
      heard(element, event);
      return event;
    },
    click: (selector) => find(selector).click(),
    // As somebody who types: the value is there, and then the browser tells of it.
    type: (selector, text) => {
      find(selector).value = text;
      page.tell(selector, "input");
    },
    choose: (selector, text) => {
      page.type(selector, text);
      page.tell(selector, "change");
    },
    press: (selector, key, more = {}) => {
      const event = new window.KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more });
      heard(find(selector), event);
      return event;
    },
    get focused() {
      return document.activeElement;
    },
    get search() {
      return window.location.search;
    },
  };
  complete(window, page);
  page.sockets = socketsOf(window);
  const clock = new Clock(window, page);
  page.clock = clock;
  page.pass = (milliseconds) => clock.pass(milliseconds);
  before(page);
  page.load(...scripts);
  if (isReady) page.tell(document, "DOMContentLoaded");
  return page;
};

// The same value of this realm, for comparison.
const plain = (value) => JSON.parse(JSON.stringify(value));

module.exports = { open, settled, plain, NOW };

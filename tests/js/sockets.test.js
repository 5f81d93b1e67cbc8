// Websockets that come back by themselves, and what terminals remember and record.
const { describe, test } = require("node:test");
const assert = require("node:assert/strict");
const { open, plain } = require("./page");

const steady = (status = 200) => {
  const page = open('<div id="box" data-sign-in-at="/login/"><p class="screen-notice" hidden></p></div>', ["events", "steady-socket"], {
    isReady: false, address: "/sessions/s1/?kernel=2#terminal", before: ({ run }) => {
      run("Math").random = () => 0.5;
    },
  });
  page.told = [];
  page.answer = () => new Response("", { status });
  const { portal } = page.window;
  page.socket = portal.steadySocket(() => portal.address("/ws/sessions/s1/terminal/"), {
    onOpen: () => page.told.push("open"),
    onBytes: (bytes) => page.told.push([...bytes]),
    onMessage: (text) => page.told.push(text),
    onAway: (wait, now) => {
      page.told.push(wait);
      page.now = now;
    },
    onEnd: (...why) => page.told.push(why),
  });
  page.last = () => page.sockets.at(-1);
  return page;
};

describe("a steady socket", () => {
  test("passes on what comes, and sends while it is open", () => {
    const page = steady();
    assert.equal(page.last().url, "ws://portal.test/ws/sessions/s1/terminal/");
    assert.equal(page.socket.send("early"), false);
    page.last().open();
    page.last().say("text");
    page.last().say(Uint8Array.of(1, 2).buffer);
    page.socket.send("late");
    assert.deepEqual([page.told, page.last().sent], [["open", "text", [1, 2]], ["late"]]);
  });
  test("comes back, each time later, up to twenty seconds, and at once when somebody asks", async () => {
    const page = steady();
    for (let tries = 0; tries < 7; tries += 1) {
      page.last().open();
      await page.last().hangUp(1006);
      const wait = page.told.at(-1);
      await page.pass(wait - 1);
      assert.equal(page.sockets.length, tries + 1);
      await page.pass(1);
      assert.equal(page.sockets.length, tries + 2);
    }
    assert.deepEqual(page.told.filter((one) => typeof one === "number"), [600, 1200, 2400, 4800, 9600, 15000, 15000]);
    page.last().open();
    page.last().say("it works");
    await page.last().hangUp(1006);
    assert.equal(page.told.at(-1), 600, "what works begins anew");
    page.now();
    assert.equal(page.sockets.length, 9);
  });
  test("ends where the portal ended it for a reason", async () => {
    const page = steady();
    page.last().open();
    await page.last().hangUp(4000, "The shell ended.");
    await page.pass(60000);
    assert.deepEqual([page.told.at(-1), page.sockets.length], [[4000, "The shell ended.", false], 1]);
  });
  test("a refused handshake is asked about, for a script is told nothing of it", async () => {
    for (const [status, end] of [[401, [4003, "", true]], [403, [4003, "", false]], [404, [4003, "", false]]]) {
      const page = steady(status);
      await page.last().hangUp(1006);
      assert.deepEqual([page.told, page.fetched[0].address], [[end], "/api/v1/sessions/s1/"]);
      page.socket.again();
      assert.equal(page.sockets.length, 2);
    }
    const away = steady(502);
    await away.last().hangUp(1006);
    assert.deepEqual(away.told, [600], "a portal that is away is no refusal");
    const refused = steady(401);
    refused.last().open();
    await refused.last().hangUp(4003);
    assert.deepEqual(refused.told, ["open", [4003, "", true]]);
  });
  test("one that was closed says nothing any more", async () => {
    const page = steady();
    page.last().open();
    const first = page.last();
    page.socket.close();
    await first.hangUp(1006);
    assert.deepEqual([page.told, first.closed], [["open"], 1000]);
    const other = steady();
    const old = other.last();
    other.socket.again();
    old.say("from before");
    await old.hangUp(1006);
    assert.deepEqual(other.told, []);
  });
  test("a notice has one button, when there is something to do", () => {
    const page = steady();
    const tell = page.window.portal.noticeOf(page.find("#box"));
    let pressed = 0;
    tell("Away.", "Reconnect", () => (pressed += 1));
    page.click(".screen-notice button");
    assert.deepEqual([page.find(".screen-notice").textContent, page.find(".screen-notice").hidden, pressed], ["Away.Reconnect", false, 1]);
    tell("Over.");
    assert.equal(page.find(".screen-notice").textContent, "Over.");
    tell("");
    assert.equal(page.find(".screen-notice").hidden, true);
  });
});

describe("news of the portal", () => {
  const begin = () => {
    const page = open('<p id="live-mark" hidden data-live="Live" data-away="Away" data-signed-out="Signed out"></p>', ["events"], { before: ({ run }) => {
      run("Math").random = () => 0.5;
    } });
    page.heard = [];
    for (const kind of ["look-again-at-all", "session-changed", "job-changed"]) page.document.addEventListener(kind, ({ detail }) => page.heard.push(detail?.id ? `${kind} ${detail.id}` : kind));
    page.mark = () => page.find("#live-mark").textContent;
    return page;
  };
  test("an open socket means look again, and each message its event", () => {
    const page = begin();
    assert.equal(page.sockets[0].url, "ws://portal.test/ws/events/");
    page.sockets[0].open();
    for (const message of ['{"type":"session","id":"s1"}', '{"type":"job","id":"j1"}', '{"type":"of a newer portal"}', "no JSON"]) page.sockets[0].say(message);
    assert.deepEqual([page.heard, page.mark()], [["look-again-at-all", "session-changed s1", "job-changed j1"], "Live"]);
  });
  test("while it is away the page looks every fifteen seconds", async () => {
    const page = begin();
    page.sockets[0].open();
    page.heard.length = 0;
    await page.sockets[0].hangUp(1006);
    assert.deepEqual([page.mark(), page.find("#live-mark").className], ["Away", "is-away"]);
    await page.pass(15000);
    assert.deepEqual(page.heard, ["look-again-at-all"]);
    page.sockets.at(-1).open();
    await page.pass(30000);
    assert.equal(page.heard.length, 2, "once it is back there is no need");
  });
  test("who is signed out is told, and not asked again", async () => {
    const page = begin();
    page.sockets[0].open();
    await page.sockets[0].hangUp(4003);
    await page.pass(60000);
    assert.deepEqual([page.mark(), page.sockets.length], ["Signed out", 1]);
    const refused = begin();
    refused.answer = () => new Response("", { status: 401 });
    await refused.sockets[0].hangUp(1006);
    assert.deepEqual([refused.mark(), refused.fetched[0].address], ["Signed out", "/api/v1/me/"]);
  });
});

describe("what a screen remembers", () => {
  test("outlives the page, and where storage is blocked it is as usual", () => {
    const page = open("", ["screen"]);
    const { remember, remembered } = page.window.portal;
    assert.equal(remembered("screen-font", 14), 14);
    remember("screen-font", 18);
    assert.equal(remembered("screen-font", 14), 18);
    page.window.localStorage.setItem("screen-font", "no JSON");
    assert.equal(remembered("screen-font", 14), 14);
    const blocked = open("", ["screen"], {
      before: ({ window }) => Object.defineProperty(window, "localStorage", { get: () => { throw new Error("blocked"); } }),
    });
    blocked.window.portal.remember("screen-font", 18);
    assert.equal(blocked.window.portal.remembered("screen-font", 14), 14);
  });
});

describe("copying from a terminal", () => {
  const begin = () => {
    const page = open('<div id="place"><p>text</p></div>', ["terminal"]);
    page.copies = [];
    let osc = null;
    page.marked = "";
    let hear = null;
    const terminal = {
      hasSelection: () => page.marked !== "", getSelection: () => page.marked, clearSelection: () => (page.marked = ""),
      attachCustomKeyEventHandler: (act) => (hear = act), parser: { registerOscHandler: (_, act) => (osc = act) },
    };
    const acts = { copy: (text) => page.copies.push(text), find: () => page.copies.push("found"), leave: () => page.copies.push("left") };
    page.window.portal.bindTerminal(terminal, page.find("#place"), acts);
    page.drag = () => { page.mouse("p", "mousedown"); page.mouse("p", "mouseup"); };
    // Whether the program gets the key.
    page.key = (key, more = {}) =>
      hear(new page.window.KeyboardEvent("keydown", { key, code: key.length === 1 ? `Key${key.toUpperCase()}` : `${key}Left`, ...more }));
    page.ctrl = (key, more = {}) => page.key("Control", { ctrlKey: true }) && page.key(key, { ctrlKey: true, ...more });
    page.mouse = (selector, kind, button = 0) => page.find(selector).dispatchEvent(new page.window.MouseEvent(kind, { bubbles: true, button }));
    page.says = (text) => osc(`c;${Buffer.from(text).toString("base64")}`);
    page.osc = (data) => osc(data);
    return page;
  };
  test("Ctrl-C copies what is marked and interrupts where nothing is; other keys are the terminal's", () => {
    const { terminalKey } = begin().window.portal;
    const does = (code, isMarked, more = {}) =>
      terminalKey({ type: "keydown", code, ctrlKey: true, shiftKey: false, altKey: false, metaKey: false, ...more }, isMarked);
    assert.deepEqual([does("KeyC", true), does("KeyC", false), does("KeyC", true, { shiftKey: true })], ["copy", "send", "copy"]);
    assert.deepEqual(["KeyF", "KeyX", "KeyV", "KeyQ"].map((code) => does(code, true, { shiftKey: true })), ["find", "leave", "paste", "send"]);
    assert.deepEqual([does("KeyF", false), does("KeyC", true, { ctrlKey: false }), does("KeyC", true, { altKey: true })], ["send", "send", "send"]);
    assert.equal(does("KeyC", true, { type: "keyup" }), "send");
  });
  test("what was marked is copied once the button is let go, wherever that is", () => {
    const page = begin();
    page.mouse("p", "mousedown");
    page.marked = "one two";
    page.mouse("body", "mouseup");
    page.mouse("body", "mouseup");
    page.mouse("p", "mousedown", 2);
    page.mouse("p", "mouseup", 2);
    assert.deepEqual(page.copies, ["one two"]);
  });
  test("a program fills the clipboard once, after a press of the mouse, and reads it never", async () => {
    const page = begin();
    page.says("nobody pressed");
    page.drag();
    page.osc("c;?");
    page.osc("c;not base64!");
    page.says("é and 글");
    page.says("again");
    page.drag();
    await page.pass(5000);
    page.says("too late");
    page.drag();
    page.says("x".repeat(2 ** 20));
    assert.deepEqual(page.copies, ["é and 글"]);
  });
  test("Ctrl-C just after a drag in tmux copies once more, and the next one interrupts", async () => {
    const page = begin();
    page.drag();
    page.says("of tmux");
    assert.deepEqual([page.ctrl("c"), page.copies], [false, ["of tmux", "of tmux"]]);
    assert.deepEqual([page.ctrl("c"), page.copies.length], [true, 2]);
    const other = [() => page.key("l"), () => page.mouse("p", "mousedown", 2), () => page.pass(3000)];
    for (const act of other) {
      page.drag();
      page.says("left behind");
      await act();
      assert.equal(page.ctrl("c"), true, "it is not meant as a copy");
    }
    page.marked = "marked";
    assert.deepEqual([page.ctrl("c"), page.copies.at(-1), page.marked], [false, "marked", ""]);
    assert.deepEqual([page.ctrl("f", { shiftKey: true }), page.ctrl("x", { shiftKey: true }), page.copies.slice(-2)], [false, false, ["found", "left"]]);
  });
});

describe("recordings", () => {
  const begin = () => {
    const page = open('<button id="record" data-recording="Stop and save" data-name="mine" data-full="It is full."><span>Record</span></button>', ["recording"], {
      before: (made) => {
        made.saved = [];
        made.window.URL.createObjectURL = (blob) => (made.saved.push(blob), "blob:1");
        made.window.URL.revokeObjectURL = () => {};
        made.window.HTMLAnchorElement.prototype.click = function () {
          made.name = this.download;
        };
      },
    });
    page.notices = [];
    page.recorder = page.window.portal.recorderOf(page.find("#record"), (text) => page.notices.push(text));
    page.lines = async () => (await page.saved.at(-1).text()).trim().split("\n").map((line) => JSON.parse(line));
    return page;
  };
  test("have what was printed and when, with characters whole and changes of the size", async () => {
    const page = begin();
    const bytes = new TextEncoder().encode("é\r\n");
    page.recorder.take(bytes);
    page.recorder.toggle({ cols: 80, rows: 24 });
    assert.deepEqual([page.find("span").textContent, page.find("#record").getAttribute("aria-pressed")], ["Stop and save", "true"]);
    await page.pass(500);
    page.recorder.take(bytes.subarray(0, 1));
    await page.pass(1000);
    page.recorder.take(bytes.subarray(1));
    page.recorder.resize({ cols: 100, rows: 30 });
    page.recorder.toggle();
    assert.deepEqual([page.find("span").textContent, page.find("#record").getAttribute("aria-pressed")], ["Record", "false"]);
    const [head, ...events] = await page.lines();
    assert.deepEqual([head.version, head.term], [3, { cols: 80, rows: 24 }]);
    assert.deepEqual(events, [[0.5, "o", ""], [1, "o", "é\r\n"], [0, "r", "100x30"]]);
    assert.match(page.name, /^mine-\d{4}-\d\d-\d\dT\d{6}\.cast$/);
  });
  test("end by themselves at twenty mebibytes", async () => {
    const page = begin();
    page.recorder.toggle({ cols: 80, rows: 24 });
    for (let number = 0; number < 21; number += 1) page.recorder.take(new Uint8Array(2 ** 20).fill(97));
    assert.deepEqual([page.notices, page.saved.length, page.find("span").textContent], [["It is full."], 1, "Record"]);
  });
  test("are read, and what is none is refused", () => {
    const read = (...lines) => plain(begin().window.portal.readRecording(lines.join("\n")));
    assert.deepEqual(read('{"version": 2, "width": 80, "height": 24}', '[0.5, "o", "x"]', ""), { cols: 80, rows: 24, events: [[0.5, "o", "x"]] });
    const two = read('{"version": 2, "width": 80, "height": 24}', '[0.5, "o", "x"]', '[2, "o", "y"]');
    assert.deepEqual(two.events, [[0.5, "o", "x"], [1.5, "o", "y"]]);
    const three = read('{"version": 3, "term": {"cols": 80, "rows": 24}}', "# a comment", '[0.5, "o", "x"]', '[1.5, "x", "0"]');
    assert.deepEqual(three, { cols: 80, rows: 24, events: [[0.5, "o", "x"], [1.5, "x", "0"]] });
    for (const lines of [['{"version": 1}'], ["no JSON"], ['{"version": 2, "width": 1e9, "height": 4}'], ['{"version": 2, "width": 80, "height": 24}', '["0", "o", "x"]'], ['{"version": 2, "width": 80, "height": 24}', "{}"], [""]]) {
      assert.equal(read(...lines), null, lines.join());
    }
  });
});


// The console: output of runs, notebooks, completion, cells, and the orders to the session.
const { describe, test } = require("node:test");
const assert = require("node:assert/strict");
const { open, plain, settled } = require("./page");

const WORDS = {
  html: "Output as a page", image: "Image", gap: "{size} were not kept.", gapItems: "Some output was not kept.", notShown: "{size} of earlier output are not shown.",
  runScripts: "Run scripts", outputOrigin: "http://output.test", busy: "Busy", noMatches: "No completion.",
};
const outputs = (words = WORDS) => {
  const page = open('<div id="out"></div><div id="other"></div>', ["log-lines", "console-output", "console-notebook"]);
  const displays = new Map();
  page.output = new page.window.portal.ConsoleOutput(page.find("#out"), words, displays);
  page.other = new page.window.portal.ConsoleOutput(page.find("#other"), words, displays);
  page.add = async (...items) => {
    for (const item of items) page.output.add(item);
    await page.pass(16);
    return page.find("#out");
  };
  page.print = (...texts) => page.add(...texts.map((text) => ({ type: "stdout", text })));
  return page;
};

describe("text of a run", () => {
  test("goes on where it was, and each kind for itself", async () => {
    const page = outputs();
    await page.print("one\ntw", "o\n");
    await page.add({ type: "stderr", text: "oh\n" }, { type: "stdout", text: "three" });
    assert.deepEqual(page.all("#out pre").map((one) => [one.className, one.textContent]), [["console-stdout", "one\ntwo\n"], ["console-stderr", "oh\n"], ["console-stdout", "three"]]);
  });
  test("progress bars and colours are drawn as they end", async () => {
    const page = outputs();
    await page.print("\r0 %", "\r1 %");
    assert.equal(page.find("pre").textContent, "1 %");
    await page.print("\r4 %", "\r\nnext \x1b[31mred\x1b[0m\n");
    assert.equal(page.find("pre").textContent, "4 %\nnext red\n");
    assert.equal(page.find(".ink-red").textContent, "red");
    assert.equal(page.output.items[0].text, "4 %\nnext \x1b[31mred\x1b[0m\n", "the notebook has the same");
  });
  test("a line that never ends goes on in pieces", async () => {
    const page = outputs();
    for (let number = 0; number < 60; number += 1) await page.print("y".repeat(1000));
    await page.print("\n");
    assert.equal(page.find("pre").textContent, `${"y".repeat(60000)}\n`);
    assert.equal(page.all(".console-long").length, 2);
  });
  test("of much the end is shown, what is hidden is told, and the notebook has all", async () => {
    const page = outputs();
    const lines = Array.from({ length: 100000 }, (_, number) => `line ${number} xxxxxxxx\n`);
    for (let at = 0; at < lines.length; at += 10000) await page.print(lines.slice(at, at + 10000).join(""));
    const shown = page.find("pre").textContent;
    assert.ok(shown.length < 1_010_000 && shown.endsWith("line 99999 xxxxxxxx\n"));
    assert.equal(page.find(".console-gap").textContent, `${Math.ceil((lines.join("").length - shown.length) / 1024)} KiB of earlier output are not shown.`);
    assert.ok(page.all("#out *").length < 2000);
    assert.equal(page.output.items[0].text, lines.join(""));
  });
});

describe("other output", () => {
  test("pictures, results, errors and gaps", async () => {
    const page = outputs();
    await page.add(
      { type: "media", mime: "image/png", data: "iVBO" }, { type: "media", mime: "image/svg+xml", data: "<svg>é</svg>", text: "a plot" },
      { type: "media", mime: "text/plain", data: "42" }, { type: "media", mime: "application/pdf", data: "<b>" },
      { type: "error", traceback: "\x1b[31mKeyError\x1b[0m: 1" }, { type: "error", name: "E", value: "<i>" },
      { type: "gap", bytes: 3 * 2 ** 20 }, { type: "gap", bytes: 10 }, { type: "gap" }, { type: "log", text: "said" },
    );
    assert.deepEqual(page.all("img").map((one) => [one.alt, one.getAttribute("src")]), [
      ["Image", "data:image/png;base64,iVBO"], ["a plot", `data:image/svg+xml;base64,${Buffer.from("<svg>é</svg>").toString("base64")}`],
    ]);
    assert.deepEqual(page.texts(".console-result"), ["42", "<b>"]);
    assert.deepEqual(page.texts(".console-error"), ["KeyError: 1", "E: <i>"]);
    assert.deepEqual(page.texts(".console-gap"), ["3.0 MiB were not kept.", "1 KiB were not kept.", "Some output was not kept."]);
    assert.deepEqual(page.texts(".console-log"), ["said"]);
  });
  test("a display is drawn anew wherever it is, and output may be cleared now or with the next", async () => {
    const page = outputs();
    page.other.add({ type: "media", mime: "text/plain", data: "elsewhere", display: "d1" });
    await page.add({ type: "media", mime: "text/plain", data: "1", display: "d1" }, { type: "media", mime: "text/plain", data: "2", display: "d1", updates: true });
    assert.deepEqual(page.texts("pre"), ["2", "2"]);
    assert.equal(page.output.items[0].data, "2");
    await page.add({ type: "clear", wait: true });
    assert.deepEqual(page.texts("#out pre"), ["2"]);
    await page.add({ type: "stdout", text: "new" });
    assert.deepEqual(page.texts("#out pre"), ["new"]);
    await page.add({ type: "clear" });
    assert.deepEqual([page.texts("#out pre"), page.output.items.length], [[], 0]);
  });
  test("a page of its own can do nothing, until somebody runs its scripts in another origin", async () => {
    const page = outputs();
    await page.add({ type: "html", html: '<style>p{}</style><p onclick="steal()">hello</p><script>steal()</script><tr>' });
    const frame = page.find("iframe");
    assert.equal(frame.getAttribute("sandbox"), "");
    assert.match(frame.srcdoc, /default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:/);
    assert.match(frame.srcdoc, /<p>hello<\/p>/);
    assert.doesNotMatch(frame.srcdoc, /steal|<script/);
    page.click("#out button");
    const live = page.find("iframe");
    assert.deepEqual([live.getAttribute("sandbox"), live.src, page.all("#out button").length], ["allow-scripts", "http://output.test/", 0]);
    await page.add({ type: "html", html: "<p>no scripts</p>" });
    assert.equal(page.all("#out button").length, 0);
    const without = outputs({ ...WORDS, outputOrigin: "" });
    await without.add({ type: "html", html: "<script>1</script>" });
    assert.equal(without.all("#out button").length, 0, "there is nowhere to run them");
  });
});

test("a notebook has each cell with what it printed, and names what was not kept", () => {
  const page = outputs();
  const items = [
    { type: "stdout", text: "a\nb" }, { type: "error", name: "E", value: "v", traceback: "one\ntwo" }, { type: "html", html: "<p>x</p>" },
    { type: "media", mime: "text/plain", data: "42" }, { type: "media", mime: "image/png", data: "iVBO" }, { type: "gap", bytes: 2 ** 21 },
  ];
  const notebook = plain(page.window.portal.notebookOf([{ id: "i".repeat(70), code: "x = 1\nx", items }], "python3", WORDS));
  assert.deepEqual([notebook.nbformat, notebook.nbformat_minor, notebook.metadata.kernelspec.name, notebook.metadata.language_info.name], [4, 5, "python3", "python"]);
  const [cell] = notebook.cells;
  assert.deepEqual([cell.id.length, cell.execution_count, cell.source], [64, 1, ["x = 1\n", "x"]]);
  assert.deepEqual(cell.outputs, [
    { output_type: "stream", name: "stdout", text: ["a\n", "b"] },
    { output_type: "error", ename: "E", evalue: "v", traceback: ["one", "two"] },
    { output_type: "display_data", data: { "text/html": ["<p>x</p>"], "text/plain": [""] }, metadata: {} },
    { output_type: "execute_result", execution_count: 1, data: { "text/plain": ["42"] }, metadata: {} },
    { output_type: "display_data", data: { "image/png": "iVBO" }, metadata: {} },
    { output_type: "stream", name: "stderr", text: ["2.0 MiB were not kept.\n"] },
  ]);
});

describe("completion", () => {
  const begin = (answer) => {
    const page = open('<textarea id="code"></textarea><ul id="matches" hidden></ul>', ["console-completion"]);
    page.asked = [];
    page.said = [];
    const ask = async (...question) => {
      page.asked.push(question);
      return answer();
    };
    page.hide = page.window.portal.consoleCompletion(page.find("#code"), page.find("#matches"), WORDS, ask, (text) => page.said.push(text));
    page.complete = async (code, cursor = code.length) => {
      page.find("#code").value = code;
      page.find("#code").setSelectionRange(cursor, cursor);
      page.press("#code", " ", { ctrlKey: true });
      await settled();
    };
    page.code = () => page.find("#code").value;
    return page;
  };
  const two = () => ({ matches: ["x.bit_count", "x.bit_length"], cursor_start: 0 });

  test("the only one is taken at once", async () => {
    const page = begin(() => ({ matches: ["thermometer"], cursor_start: 4 }));
    await page.complete("a = thermo + 1", 10);
    assert.deepEqual(page.asked, [["a = thermo + 1", 10]]);
    assert.deepEqual([page.code(), page.find("#code").selectionStart, page.find("#matches").hidden], ["a = thermometer + 1", 15, true]);
  });
  test("several are gone through with the arrows, round and round", async () => {
    const page = begin(two);
    const marked = () => page.find("[aria-selected=true]").textContent;
    await page.complete("x.bit_");
    assert.deepEqual([page.texts("#matches li"), marked()], [["x.bit_count", "x.bit_length"], "x.bit_count"]);
    for (const [key, now] of [["ArrowDown", "x.bit_length"], ["ArrowDown", "x.bit_count"], ["ArrowUp", "x.bit_length"]]) {
      assert.equal(page.press("#code", key).defaultPrevented, true);
      assert.equal(marked(), now);
    }
    assert.equal(page.press("#code", "Enter", { shiftKey: true }).defaultPrevented, false, "which runs the code");
    page.press("#code", "Tab");
    assert.deepEqual([page.code(), page.find("#matches").hidden], ["x.bit_length", true]);
    assert.equal(page.press("#code", "ArrowDown").defaultPrevented, false, "without a list the arrow is the editor's");
  });
  test("Escape closes it, and a press chooses", async () => {
    const page = begin(two);
    await page.complete("x.bit_");
    page.press("#code", "Escape");
    assert.deepEqual([page.find("#matches").hidden, page.code()], [true, "x.bit_"]);
    await page.complete("x.bit_");
    page.tell("#matches li:last-child", "mousedown");
    assert.equal(page.code(), "x.bit_length");
  });
  test("characters are counted, not halves of them", async () => {
    const page = begin(() => ({ matches: ["🙂name"], cursor_start: 1 }));
    await page.complete("🙂🙂na");
    assert.deepEqual(page.asked[0][1], 4);
    assert.equal(page.code(), "🙂🙂name");
  });
  test("an answer for other code is late, and none is told with its reason", async () => {
    const late = begin(two);
    late.find("#code").value = "x";
    late.press("#code", " ", { ctrlKey: true });
    late.find("#code").value = "xy";
    await settled();
    assert.equal(late.find("#matches").hidden, true);
    for (const [answer, said] of [[() => ({ matches: [] }), "No completion."], [() => ({ status: "busy" }), "Busy"], [() => Promise.reject(new Error("away")), "No completion."]]) {
      const page = begin(answer);
      await page.complete("x");
      assert.deepEqual(page.said, [said]);
    }
  });
});

const CONSOLE = `<section id="console" data-address="/ws/sessions/s1/runs/" data-name="mine" data-runs="/api/runs/" data-sign-in-at="/login/" data-sending="Not sent yet" data-not-run="Not run: {reason}"
  data-lost="Lost: {reason}" data-cancelled="Cancelled: {reason}" data-queued="Queued" data-running="Running…" data-waiting_input="Waiting for input" data-finished="Finished" data-failed="Failed, exit code {code}" data-interrupted="Interrupted"
  data-timeout="Interrupted at its time limit" data-connecting="Connecting…" data-connected="Connected" data-reconnecting="Reconnecting…" data-reconnect="Reconnect" data-away="Away." data-closed="Closed" data-signed-out="You are signed out." data-sign-in="Sign in"
  data-refused="You may not use this console." data-ended="The session has ended." data-too-large="The code is too large." data-stubborn="It does not stop." data-retry="Retry" data-cleared="Restarted.">
  <input type="hidden" name="csrfmiddlewaretoken" value="token">
  <p id="console-notice" class="screen-notice" hidden></p><p id="console-state"></p><select id="console-context"></select><button data-tool="interrupt"></button><button data-tool="restart"></button><button data-tool="delete"></button><button id="console-delete-open"></button>
  <p id="console-empty"></p><div id="console-earlier" hidden><button>Show earlier code</button></div><div id="console-cells"></div>
  <form id="console-editor"><textarea id="console-code"></textarea><ul id="console-matches" hidden></ul></form>
  <form id="console-new-form"><input id="console-new-name"><select id="console-new-language"><option value=""></option></select></form></section>
  <template id="console-cell"><article class="console-cell"><span class="console-cell-state"></span><button data-again></button><pre class="console-source"></pre><p class="console-cut" hidden><button></button></p><div class="console-output"></div>
    <form class="console-ask" hidden><label></label><input></form></article></template>`;
const SCRIPTS = ["log-lines", "events", "steady-socket", "console-output", "console-notebook", "console-cells", "console-completion", "console-orders", "console"];
const begin = async ({ runs = [], kept, isOpen = true } = {}) => {
  const page = open(CONSOLE, SCRIPTS, {
    isReady: false, address: "/sessions/s1/console/",
    before: ({ window }) => kept && window.sessionStorage.setItem("console /ws/sessions/s1/runs/", kept),
  });
  page.socket = () => page.sockets.at(-1);
  page.orders = (type) => page.sockets.flatMap(({ sent }) => sent.map((one) => JSON.parse(one))).filter((order) => !type || order.type === type);
  page.hear = async (message) => {
    page.socket().say(JSON.stringify(message));
    await settled();
  };
  page.reply = (type, answer) => page.hear({ type: "answer", id: page.orders(type).at(-1).id, ...answer });
  page.connect = async () => {
    page.socket().open();
    await page.hear({ type: "connection", is_up: true });
    await page.hear({ type: "ready" });
    await page.reply("runs", { runs, contexts: [], before: 0 });
  };
  page.execute = (code) => {
    page.find("#console-code").value = code;
    page.press("#console-code", "Enter", { shiftKey: true });
  };
  page.states = () => page.texts(".console-cell-state");
  page.code = () => page.find("#console-code").value;
  page.kept = () => JSON.parse(page.window.sessionStorage.getItem("console /ws/sessions/s1/runs/"));
  if (isOpen) await page.connect();
  return page;
};

describe("the console", () => {
  test("a run has its code, state, output and questions in one cell", async () => {
    const page = await begin();
    assert.equal(page.find("#console-state").textContent, "Connected");
    page.execute("input('Name? ')");
    assert.deepEqual([page.states(), page.code()], [["Not sent yet"], ""]);
    const { run_id } = page.orders("run")[0];
    await page.reply("run", {});
    const states = [
      [{ state: "QUEUED" }, "Queued"], [{ state: "RUNNING" }, "Running…"], [{ state: "CLEANING" }, "CLEANING"], [{ state: "LOST", reason: "it went" }, "Lost: it went"],
      [{ state: "FINISHED", exit_code: 0 }, "Finished"], [{ state: "FINISHED", exit_code: 3 }, "Failed, exit code 3"],
      [{ state: "FINISHED", reason: "interrupted", exit_code: 130 }, "Interrupted"], [{ state: "FINISHED", reason: "exec-timeout" }, "Interrupted at its time limit"],
    ];
    for (const [said, text] of states) {
      await page.hear({ type: "run", run_id, context: "main", number: 1, ...said });
      assert.deepEqual(page.states(), [text]);
    }
    assert.equal(page.find(".console-cell").dataset.failed, "true", "a run without an exit code did not end well");
    await page.hear({ type: "run", run_id, context: "main", state: "WAITING_INPUT", prompt: "Key: ", password: true });
    const field = page.find(".console-ask input");
    assert.deepEqual([field.type, page.find(".console-ask label").textContent, page.focused === field, page.find(".console-ask label").htmlFor === field.id], ["password", "Key: ", true, true]);
    field.value = "s3cret";
    page.tell(".console-ask", "submit");
    assert.deepEqual([page.orders("input")[0].text, field.value], ["s3cret", ""]);
  });
  test("runs are sent one after the other, as they were written", async () => {
    const page = await begin();
    page.execute("first");
    page.execute("second");
    assert.deepEqual(page.orders("run").map(({ code }) => code), ["first"]);
    await page.reply("run", {});
    assert.deepEqual(page.orders("run").map(({ code }) => code), ["first", "second"]);
    await page.reply("run", { error: { code: "busy", is_passing: true } });
    await page.pass(2000);
    assert.deepEqual(page.orders("run").map(({ code }) => code), ["first", "second", "second"]);
    const ids = page.orders("run").map(({ run_id }) => run_id);
    assert.equal(ids[1], ids[2], "it is the same run, and runs once");
    await page.reply("run", {});
    assert.deepEqual(page.kept().unsent, []);
  });
  test("what was not taken is sent again after a break, and outlives a reload", async () => {
    const page = await begin();
    page.execute("lost on its way");
    page.type("#console-code", "a draft");
    await page.socket().hangUp(1011);
    assert.equal(page.find("#console-state").textContent, "Reconnecting…");
    assert.equal(page.find("#console-notice").textContent, "Away.Reconnect");
    page.click("#console-notice button");
    await page.connect();
    const sent = page.orders("run");
    assert.deepEqual([sent.length, sent[0].run_id === sent[1].run_id], [2, true]);
    assert.equal(page.find("#console-notice").hidden, true);
    const again = await begin({ kept: page.window.sessionStorage.getItem("console /ws/sessions/s1/runs/"), isOpen: false });
    assert.deepEqual([again.states(), again.code()], [["Not sent yet"], "a draft"]);
    await again.connect();
    assert.equal(again.orders("run")[0].run_id, sent[0].run_id);
    assert.equal(again.all(".console-cell").length, 1);
  });
  test("code that is refused comes back, and is not sent again", async () => {
    const page = await begin();
    page.execute("refused");
    await page.reply("run", { error: { code: "invalid", message: "A name has letters." } });
    assert.deepEqual([page.states(), page.code()], [["Not run: A name has letters."], "refused"]);
    const again = await begin({ kept: page.window.sessionStorage.getItem("console /ws/sessions/s1/runs/") });
    assert.deepEqual([again.states(), again.orders("run")], [["Not run: A name has letters."], []]);
    again.click("[data-again]");
    await settled();
    assert.deepEqual([again.all(".console-cell").length, again.code(), again.kept().unsent], [0, "refused", []]);
  });
  test("code that is too long for a message goes by HTTP, and too much stays where it is", async () => {
    const page = await begin();
    page.execute("x".repeat(200001));
    await settled();
    assert.deepEqual([page.orders("run"), page.fetched.map(({ address, method }) => [address, method])], [[], [["/api/runs/", "POST"]]]);
    assert.equal(page.fetched[0].headers["X-CSRFToken"], "token");
    page.execute("é".repeat(2 ** 19 + 1));
    assert.deepEqual([page.find("#console-notice").textContent, page.code().length], ["The code is too large.", 2 ** 19 + 1]);
  });
  test("runs stand in their order, and each context shows its own", async () => {
    const run = (run_id, number, context = "main", code = run_id) => ({ type: "run", run_id, number, context, code, code_length: code.length, language: "python3", state: "FINISHED", exit_code: 0 });
    const page = await begin({ runs: [run("b", 2), run("d", 4, "second")] });
    await page.hear(run("c", 3));
    await page.hear(run("a", 1));
    assert.deepEqual(page.shown(".console-source").map((one) => one.textContent), ["a", "b", "c"]);
    assert.deepEqual(page.texts("#console-context option"), ["main · python3", "second · python3"]);
    page.choose("#console-context", "second");
    assert.deepEqual(page.shown(".console-source").map((one) => one.textContent), ["d"]);
    page.find("#console-new-name").value = "third";
    page.tell("#console-new-form", "submit");
    assert.deepEqual([page.shown(".console-cell").length, page.find("#console-empty").hidden, page.focused.id], [0, false, "console-code"]);
    assert.equal(page.find("#console-delete-open").disabled, false);
    page.choose("#console-context", "main");
    assert.equal(page.find("#console-delete-open").disabled, true);
  });
  test("output is attached where it was, and the same piece twice counts once", async () => {
    const page = await begin({ runs: [{ run_id: "a", number: 1, context: "main", state: "RUNNING", code: "x", code_length: 1 }] });
    assert.deepEqual(page.orders("attach")[0].after, { a: 0 });
    const piece = { type: "run", run_id: "a", context: "main", state: "RUNNING", items: [{ type: "stdout", text: "tick\n" }], offset: 5 };
    await page.hear(piece);
    await page.hear(piece);
    await page.pass(16);
    assert.equal(page.find(".console-stdout").textContent, "tick\n");
    await page.socket().hangUp(1006);
    page.click("#console-notice button");
    await page.connect();
    assert.deepEqual(page.orders("attach")[1].after, { a: 5 });
  });
  test("only the beginning of long code is there until it is asked for", async () => {
    const page = await begin({ runs: [{ run_id: "a", number: 1, context: "main", state: "FINISHED", exit_code: 0, code: "begin", code_length: 9 }] });
    assert.equal(page.find(".console-cut").hidden, false);
    page.click("[data-again]");
    await page.reply("code", { code: "beginning" });
    assert.deepEqual([page.code(), page.find(".console-cut").hidden], ["beginning", true]);
  });
  test("what runs can be interrupted, and what does not stop is told after ten seconds", async () => {
    const page = await begin();
    page.execute("while 1: pass");
    const { run_id } = page.orders("run")[0];
    assert.equal(page.find("[data-tool=interrupt]").disabled, true);
    await page.hear({ type: "run", run_id, number: 1, context: "main", state: "RUNNING" });
    assert.equal(page.find("[data-tool=interrupt]").disabled, false);
    page.click("[data-tool=interrupt]");
    assert.equal(page.orders("interrupt")[0].run_id, run_id);
    await page.hear({ type: "run", run_id, number: 1, context: "main", state: "INTERRUPTING" });
    await page.pass(10000);
    assert.equal(page.find("#console-notice").textContent, "It does not stop.");
  });
  test("an end is named with the way back", async () => {
    const ends = [[4000, "gone", 200, "gone"], [4000, "", 200, "The session has ended."], [4003, "", 401, "You are signed out.Sign in"], [4003, "", 403, "You may not use this console.Reconnect"]];
    for (const [code, reason, status, said] of ends) {
      const page = await begin();
      page.answer = () => new Response("", { status });
      await page.socket().hangUp(code, reason);
      assert.deepEqual([page.find("#console-state").textContent, page.find("#console-notice").textContent], ["Closed", said]);
    }
  });
});

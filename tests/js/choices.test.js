// Parts of forms: rows that come and go, tags, times, files, and fields that follow others.
const { describe, test } = require("node:test");
const assert = require("node:assert/strict");
const { open, settled } = require("./page");

describe("ports", () => {
  const html = `<form><label for="id_preopen_ports">Ports to open</label>
    <div id="ports" data-least="1024" data-largest="65535" data-reserved="2001 2002" data-most="4" data-edit="Edit port {port}"
      data-remove="Remove port {port}" data-not-a-port="{port} is not a port." data-out-of-range="Port {port} is out of range."
      data-of-platform="Port {port} is the platform's." data-twice="Port {port} is named twice." data-too-many="Port {port} is too many."></div>
    <input id="id_preopen_ports" name="preopen_ports" value="">`;
  const begin = (value = "") => open(html.replace('value=""', `value="${value}"`), ["ports"]);
  const enter = (page, text) => {
    page.type("#ports-entry", text);
    return page.press("#ports-entry", "Enter");
  };
  const sent = (page) => page.find("#id_preopen_ports").value;

  test("several come at once, and the field that is sent has them all", () => {
    const page = begin();
    page.type("#ports-entry", "8080, 9000 9001");
    assert.equal(page.find("#ports-entry").value, "9001", "the last one may still be typed");
    assert.equal(sent(page), "8080, 9000");
    assert.equal(page.press("#ports-entry", "Enter").defaultPrevented, true, "and does not send the form");
    assert.equal(sent(page), "8080, 9000, 9001");
    assert.deepEqual(page.all("[data-action=edit]").map((one) => one.getAttribute("aria-label")), ["Edit port 8080", "Edit port 9000", "Edit port 9001"]);
    assert.equal(page.press("#ports-entry", "Enter").defaultPrevented, false, "an empty field has nothing to take");
  });
  test("each wrong one says what is wrong, in the list and beside it", () => {
    const page = begin("9000");
    const reasons = {
      web: "web is not a port.", 123456: "123456 is not a port.", 80: "Port 80 is out of range.", 70000: "Port 70000 is out of range.",
      2002: "Port 2002 is the platform's.", 9000: "Port 9000 is named twice.", "09000": "Port 09000 is named twice.",
    };
    for (const [port, reason] of Object.entries(reasons)) {
      enter(page, port);
      assert.deepEqual(page.texts("#ports-faults div"), [reason]);
      assert.equal(page.find("li.is-wrong").title, reason);
      assert.equal(page.find("li.is-wrong [data-action=edit]").getAttribute("aria-label"), `Edit port ${port}: ${reason}`);
      assert.equal(page.find("#ports-entry").getAttribute("aria-invalid"), "true");
      page.click("li.is-wrong [data-action=remove]");
      assert.deepEqual(page.texts("#ports-faults div"), []);
      assert.equal(page.find("#ports-entry").hasAttribute("aria-invalid"), false);
    }
    enter(page, "8001 8002 8003 8004");
    assert.deepEqual(page.texts("#ports-faults div"), ["Port 8004 is too many."]);
  });
  test("a tag is edited by a click or Backspace, and removed with its keys", () => {
    const page = begin("8080, 9000");
    page.press("#ports-entry", "Backspace");
    assert.deepEqual([sent(page), page.find("#ports-entry").value, page.focused.id], ["8080", "9000", "ports-entry"]);
    page.click("[data-action=edit]");
    assert.deepEqual([sent(page), page.find("#ports-entry").value], ["9000", "8080"], "what was being typed is kept");
    page.press("[data-action=remove]", "Delete");
    assert.deepEqual([sent(page), page.focused.id], ["", "ports-entry"]);
  });
  test("what is typed from right to left stays apart from the sentence", () => {
    const page = begin();
    enter(page, "\u2067مرحبا");
    assert.deepEqual(page.texts("#ports-faults div"), ["\u2068مرحبا\u2069 is not a port."]);
  });
  test("the label and what is wrong lead to the field in which one types", () => {
    const page = begin();
    assert.equal(page.find("label").htmlFor, "ports-entry");
    assert.equal(page.find("#id_preopen_ports").dataset.standIn, "ports-entry");
    assert.equal(page.find("#id_preopen_ports").hidden, true);
  });
});

describe("roles", () => {
  const role = (name = "", mem = "") => `<fieldset data-role><legend>Role 1</legend><label for="role-0-name">Name</label>
    <input id="role-0-name" name="roles.name" value="${name}"><label for="role-0-mem">Memory</label>
    <input id="role-0-mem" name="roles.mem" value="${mem}"><button type="button" data-remove>Remove role</button></fieldset>`;
  const begin = (...roles) => open(`<fieldset id="roles">${roles.join("")}<button type="button" data-add>Add role</button></fieldset>`, ["roles"]);

  test("the empty row of a page without scripts goes, and comes with the button", () => {
    const page = begin(role());
    assert.equal(page.all("[data-role]").length, 0);
    page.click("[data-add]");
    assert.equal(page.focused.id, "role-0-name");
    page.click("[data-add]");
    assert.deepEqual(page.texts("legend"), ["Role 1", "Role 2"]);
    assert.deepEqual(page.all("[name='roles.mem']").map((one) => one.id), ["role-0-mem", "role-1-mem"]);
    assert.deepEqual(page.all("label").map((one) => one.htmlFor), ["role-0-name", "role-0-mem", "role-1-name", "role-1-mem"]);
  });
  test("a row that is removed leaves the others with their numbers, and the form is told", () => {
    const page = begin(role("worker", "1g"), role("second", "2g"));
    let told = 0;
    page.find("#roles").addEventListener("input", () => (told += 1));
    page.click("[data-remove]");
    assert.deepEqual(page.texts("legend"), ["Role 1"]);
    assert.equal(page.find("#role-0-name").value, "second");
    assert.equal(told, 1);
    assert.equal(page.focused, page.find("[data-add]"));
    page.click("[data-add]");
    assert.equal(page.find("#role-1-mem").value, "", "a new row is empty");
  });
  test("there are sixteen at most", () => {
    const page = begin(role("one"));
    for (let number = 1; number < 16; number += 1) page.click("#roles > [data-add]");
    assert.equal(page.find("#roles > [data-add]").disabled, true);
    page.click("[data-remove]");
    assert.equal(page.find("#roles > [data-add]").disabled, false);
  });
});

describe("values of an array", () => {
  const html = (text, more = "") => `<div id="matrix" data-most="1000"><label for="id_matrix">Values</label>
    <textarea id="id_matrix" name="matrix" placeholder="lr = 0.1, 0.01\nseed = 1, 2" ${more}>${text}</textarea>
    <template><div class="variable" data-row><input data-name aria-label="Name of the value"><input data-values><button type="button" data-remove></button></div></template>
    <button type="button" data-add></button>
    <p data-count data-one="NUMBER element" data-many="NUMBER elements" data-too-many="NUMBER elements, MOST at most" hidden></p></div>`;
  const row = (page, at) => page.all("[data-row]")[at].querySelectorAll("input");
  const put = (page, at, part, text) => {
    row(page, at)[part].focus();
    row(page, at)[part].value = text;
    page.tell(row(page, at)[part], "input");
  };

  test("rows stand for the lines of text, which is what is sent", () => {
    const page = open(html("lr = 0.1, 0.01\nseed=1, 2, 3\n\n"), ["matrix"]);
    assert.deepEqual(page.all("[data-row] input").map((one) => one.value), ["lr", "0.1, 0.01", "seed", "1, 2, 3"]);
    assert.deepEqual(page.all("[data-row] input").map((one) => one.placeholder), ["lr", "0.1, 0.01", "seed", "1, 2"]);
    assert.equal(page.find("[data-count]").textContent, "6 elements");
    put(page, 1, 1, "7");
    assert.equal(page.find("#id_matrix").value, "lr = 0.1, 0.01\nseed = 7");
    assert.equal(page.find("[data-count]").textContent, "2 elements");
    page.click("[data-remove]");
    assert.equal(page.find("#id_matrix").value, "seed = 7");
    assert.equal(page.find("[data-count]").textContent, "1 element");
    assert.equal(page.find("[data-row] input").getAttribute("form"), "", "rows are not sent");
  });
  test("a row that is still being typed says nothing until it is left", async () => {
    const page = open(html(""), ["matrix"]);
    page.click("[data-add]");
    assert.equal(page.focused, row(page, 0)[0]);
    put(page, 0, 0, "lr");
    assert.equal(page.find("#id_matrix").value, "");
    page.find("[data-add]").focus();
    await page.pass(0);
    assert.equal(page.find("#id_matrix").value, "lr = ");
    assert.equal(page.find("[data-count]").hidden, true);
  });
  test("too many are told with what is allowed", () => {
    const page = open(html(`a = ${"1,".repeat(100)}\nb = ${"1,".repeat(20)}`), ["matrix"]);
    assert.equal(page.find("[data-count]").textContent, "2,000 elements, 1,000 at most");
    assert.equal(page.find("[data-count]").classList.contains("state-bad"), true);
  });
  test("a text that rows cannot show stays a text, and one that is locked has no button", () => {
    assert.equal(open(html("no sign of equality"), ["matrix"]).find("#id_matrix").hidden, false);
    const locked = open(html("lr = 1", "readonly"), ["matrix"]);
    assert.equal(locked.find("[data-add]").hidden, true);
    assert.equal(row(locked, 0)[0].readOnly, true);
  });
});

describe("variables and environments", () => {
  const variable = (number, name = "") => `<div data-variable><input aria-label="Name of variable ${number}" value="${name}">
    <input aria-label="Value of variable ${number}"><button type="button" data-remove aria-label="Remove variable ${number}"></button></div>`;
  const option = (name, text, version, more = "") => `<option value="${name}" data-name="${name}" data-text="${text}" data-badges='["${version}"]' ${more}>${text}</option>`;
  const html = `<div id="variables">${variable(1)}${variable(2)}${variable(3)}<button type="button" data-add></button></div>
    <div id="environment-choice"><fieldset><div id="environment-pick"></div>
      <input id="environment-filter"><p id="environment-count" data-found="{number} found"></p>
      <div id="environment-cards"><label data-words="pytorch torch cuda"><input type="radio" name="env" value="torch"></label>
        <label data-words="tensorflow cuda"><input type="radio" name="env" value="tf"></label></div>
      <div id="version-field"><label for="version">Version</label><select id="version"></select><span class="badges" id="version-badges"></span></div><p id="version-obstacle"></p>
      <select id="id_image" name="image"><optgroup data-key="torch">${option("torch-1", "1", "cuda")}</optgroup>
        <optgroup data-key="tf">${option("tf-1", "1", "py3", "disabled data-obstacle='too old'")}${option("tf-2", "2", "py3")}</optgroup></select></fieldset></div>
    <input name="manual_image">`;
  const begin = () => open(html, ["environment"]);

  test("of the empty rows for those without scripts one is left, and others come and go with their numbers", () => {
    const page = begin();
    assert.equal(page.all("[data-variable]").length, 1);
    page.click("#variables [data-add]");
    page.click("#variables [data-add]");
    assert.equal(page.focused.getAttribute("aria-label"), "Name of variable 3");
    page.all("[data-variable] input").forEach((one, at) => (one.value = `value ${at}`));
    page.all("[data-remove]")[1].click();
    assert.deepEqual(page.all("[data-variable] input").map((one) => [one.getAttribute("aria-label"), one.value]), [
      ["Name of variable 1", "value 0"], ["Value of variable 1", "value 1"], ["Name of variable 2", "value 4"], ["Value of variable 2", "value 5"],
    ]);
    assert.equal(page.focused.getAttribute("aria-label"), "Remove variable 2", "the next one has the keyboard");
    page.all("[data-remove]")[1].click();
    assert.equal(page.focused, page.find("#variables [data-add]"));
    page.click("[data-remove]");
    assert.deepEqual(page.all("[data-variable] input").map((one) => one.value), ["", ""], "the last one leaves an empty one");
  });
  test("a card chooses the first version that can be used, and its versions are offered", () => {
    const page = begin();
    assert.equal(page.find("[value=torch]").checked, true);
    assert.equal(page.find("#version-field").hidden, true, "there is one version");
    assert.deepEqual(page.texts(".badge"), ["torch-1", "cuda"]);
    page.find("[value=tf]").checked = true;
    page.tell("[value=tf]", "change");
    assert.equal(page.find("#id_image").value, "tf-2");
    assert.deepEqual(page.texts("#version option"), ["1 (too old)", "2"]);
    assert.equal(page.find("#version").value, "tf-2");
    assert.equal(page.find("#version-field").hidden, false);
  });
  test("every word of a search must be there; Enter takes the only one that is left", () => {
    const page = begin();
    page.type("#environment-filter", "CUDA");
    assert.equal(page.find("#environment-count").textContent, "2 found");
    page.press("#environment-filter", "Enter");
    assert.equal(page.find("#id_image").value, "torch-1", "two are left");
    page.type("#environment-filter", "tensor cuda");
    assert.equal(page.find("#environment-count").textContent, "1 found");
    assert.equal(page.shown("#environment-cards label").length, 1);
    assert.equal(page.press("#environment-filter", "Enter").defaultPrevented, true);
    assert.equal(page.find("#id_image").value, "tf-2");
    page.type("#environment-filter", "");
    assert.equal(page.find("#environment-count").textContent, "");
  });
  test("a renewed list keeps what was sought, and a name that is typed takes the place of all", () => {
    const page = begin();
    page.type("#environment-filter", "torch");
    page.tell("#environment-choice", "htmx:beforeSwap");
    page.find("#environment-filter").value = "";
    page.tell("#environment-choice", "htmx:afterSwap");
    assert.deepEqual([page.find("#environment-filter").value, page.find("#environment-count").textContent], ["torch", "1 found"]);
    page.type("[name=manual_image]", "registry/of:mine");
    assert.equal(page.find("fieldset").disabled, true);
    page.type("[name=manual_image]", " ");
    assert.equal(page.find("fieldset").disabled, false);
  });
});

describe("times of a batch session", () => {
  const units = [["s", "second"], ["m", "minute"], ["h", "hour"], ["d", "day"], ["w", "week"]];
  const html = (starts = "", timeout = "") => `<div id="batch-times" data-past="The start time is in the past.">
    <div data-wish="starts_at"><input type="checkbox" id="starts"><div class="field"><input type="datetime-local" id="id_starts_at" value="${starts}"></div><p data-echo></p></div>
    <div data-wish="batch_timeout"><input type="checkbox" id="ends"><div class="field"><label for="id_batch_timeout">Timeout</label><input id="id_batch_timeout" value="${timeout}">
      <span class="timeout-parts" hidden><input type="number" id="number"><select id="unit">${units.map(([value, unit]) => `<option value="${value}" data-unit="${unit}">${unit}s</option>`).join("")}</select></span></div><p data-echo></p></div></div>`;
  const tick = (page, selector, isOn) => {
    page.find(selector).checked = isOn;
    page.tell(selector, "change");
  };
  const echo = (page, name) => page.find(`[data-wish=${name}] [data-echo]`).textContent;

  test("a tick fills the start in some minutes ahead, and counts down in words", async () => {
    const page = open(html(), ["batch"]);
    assert.equal(page.find("[data-wish=starts_at] .field").hidden, true);
    tick(page, "#starts", true);
    assert.equal(page.find("#id_starts_at").value, "2030-03-01T12:02");
    assert.equal(echo(page, "starts_at"), "in 2 minutes");
    await page.pass(61000);
    assert.equal(echo(page, "starts_at"), "in 59 seconds");
    page.type("#id_starts_at", "2030-03-04T12:00");
    assert.equal(echo(page, "starts_at"), "in 2 days");
    page.type("#id_starts_at", "2030-03-01T11:00");
    assert.equal(echo(page, "starts_at"), "The start time is in the past.");
    assert.equal(page.find("[data-echo]").classList.contains("state-bad"), true);
    tick(page, "#starts", false);
    assert.deepEqual([page.find("#id_starts_at").value, echo(page, "starts_at")], ["", ""]);
  });
  test("days are counted in every language, where some have words for the next ones", () => {
    const page = open(html("2030-03-03T12:00"), ["batch"], { language: "de" });
    assert.equal(echo(page, "starts_at"), "in 2 Tagen");
  });
  test("a timeout has a number and a unit, and is said in words", () => {
    const page = open(html(), ["batch"]);
    tick(page, "#ends", true);
    assert.deepEqual([page.find("#number").value, page.find("#unit").value, echo(page, "batch_timeout")], ["1", "h", "1 hour"]);
    page.choose("#unit", "m");
    page.type("#number", "90");
    assert.deepEqual([page.find("#id_batch_timeout").value, echo(page, "batch_timeout")], ["90m", "1 hour 30 minutes"]);
    page.type("#number", "");
    assert.deepEqual([page.find("#id_batch_timeout").value, page.find("#ends").checked], ["", true], "a mistake that the portal tells");
    page.type("#number", "0");
    assert.equal(page.find("#id_batch_timeout").value, "0m");
    assert.equal(page.find("label").htmlFor, "number");
  });
  test("what is there is read in its largest unit, and what is no such time stays a text", () => {
    const page = open(html("2031-01-01T00:00", "1h 30m"), ["batch"]);
    assert.deepEqual([page.find("#starts").checked, page.find("#ends").checked], [true, true]);
    assert.deepEqual([page.find("#number").value, page.find("#unit").value], ["90", "m"]);
    assert.equal(open(html("", "0s"), ["batch"]).find("#unit").value, "s");
    assert.equal(open(html("", "two days"), ["batch"]).find("#id_batch_timeout").hidden, false);
  });
});

describe("files that a session brings", () => {
  const row = '<li data-file><input name="files.path"><textarea name="files.content"></textarea><input name="files.bytes"><span data-size></span><button type="button" data-remove aria-label="Remove file 1"></button></li>';
  const html = `<form id="launch"><textarea name="startup_command"></textarea>
    <fieldset id="files" data-bytes="10" data-longest="20" data-commands='{"sh": "bash {}", "py": "python {}"}' data-too-large="{name} is too large." data-not-text="{name} is no text.">
    <ul id="file-rows"></ul><template id="file-row">${row}</template><input type="file" id="id_files"><div id="files-told"></div></fieldset><div id="launch-review"></div><div id="outlook"></div></form>`;
  const take = async (page, ...files) => {
    const made = files.map(([name, bytes]) => new page.window.File([bytes], name));
    Object.defineProperty(page.find("#id_files"), "files", { value: made, configurable: true });
    Object.defineProperty(page.find("#id_files"), "value", { value: "", writable: true, configurable: true });
    page.tell("#id_files", "change");
    for (let turn = 0; turn < 20; turn += 1) await settled();
  };
  const paths = (page) => page.all("[name='files.path']").map((one) => one.value);

  test("a text becomes a row, whose name suggests the command", async () => {
    const page = open(html, ["launch-files"]);
    await take(page, ["my run.sh", "echo 1\r\n"]);
    assert.deepEqual(paths(page), ["my_run.sh"]);
    assert.equal(page.find("[name='files.content']").value, "echo 1\n");
    assert.equal(page.find("[name=startup_command]").value, "bash my_run.sh");
    assert.equal(page.find("[data-size]").textContent, "7\u00a0B");
    await take(page, ["b.py", "x"]);
    assert.equal(page.find("[name=startup_command]").value, "bash my_run.sh", "what is there stays");
    assert.deepEqual(page.all("[data-remove]").map((one) => one.getAttribute("aria-label")), ["Remove file 1", "Remove file 2"]);
    await take(page, ["b.py", "new"]);
    assert.deepEqual(page.all("[name='files.content']").map((one) => one.value), ["echo 1\n", "new"], "a name again is another text");
  });
  test("what is no text or too large is named and left out", async () => {
    const page = open(html, ["launch-files"]);
    await take(page, ["picture.png", Uint8Array.of(0x89, 0xff)], ["zero", "a\0b"], ["long.txt", "x".repeat(11)], ["ok.txt", ""]);
    assert.deepEqual(page.texts("#files-told div"), ["picture.png is no text.", "zero is no text.", "long.txt is too large."]);
    assert.deepEqual(paths(page), ["ok.txt"]);
  });
  test("names are those that a shell reads without quotes", async () => {
    const page = open(html, ["launch-files"]);
    await take(page, ["..hidden", ""], ["käse (1).txt", ""], ["---", ""], [`${"n".repeat(30)}.txt`, ""]);
    assert.deepEqual(paths(page), ["hidden", "k_se_1_.txt", "file.txt", `${"n".repeat(16)}.txt`]);
  });
  test("only the review gets the texts, and a text that is typed is measured", async () => {
    const page = open(html, ["launch-files"]);
    await take(page, ["a.txt", "x"]);
    const asked = (selector) => {
      const parameters = { upload: 1, "files.content": "x", "files.bytes": 1 };
      page.tell(selector, "htmx:configRequest", { parameters });
      return Object.keys(parameters);
    };
    assert.deepEqual(asked("#outlook"), ["files.bytes"]);
    assert.deepEqual(asked("#launch-review"), ["files.content", "files.bytes"]);
    page.type("[name='files.content']", "é".repeat(600));
    assert.deepEqual([page.find("[name='files.bytes']").value, page.find("[data-size]").textContent], ["1200", "1.2\u00a0KiB"]);
    page.click("[data-remove]");
    assert.deepEqual(paths(page), []);
    assert.equal(page.focused.id, "id_files");
  });
});

describe("fields for code", () => {
  const begin = () => open('<textarea data-code id="code">ab</textarea><input id="next">', ["launch-editor"], {
    before: ({ document }) => {
      document.execCommand = () => false;
    },
  });
  test("Tab indents, and after Escape it leaves", () => {
    const page = begin();
    page.find("#code").setSelectionRange(1, 1);
    assert.equal(page.press("#code", "Tab").defaultPrevented, true);
    assert.equal(page.find("#code").value, "a    b");
    for (const more of [{ shiftKey: true }, { ctrlKey: true }, { altKey: true }]) assert.equal(page.press("#code", "Tab", more).defaultPrevented, false);
    page.press("#code", "Escape");
    page.press("#code", "Shift");
    assert.equal(page.press("#code", "Tab").defaultPrevented, false);
    page.press("#code", "x");
    assert.equal(page.press("#code", "Tab").defaultPrevented, true, "who types on wants to indent again");
    assert.equal(page.find("#code").getAttribute("aria-describedby"), "code-keys");
  });
});

describe("parameters and documents", () => {
  test("a field is hidden unless all answers are as it needs", () => {
    const html = `<form><select name="kind"><option>a</option><option>b</option></select><input name="deep" value="no">
      <div class="field"><input id="of-b" data-show-if='{"kind": "b", "deep": "yes"}'></div></form>`;
    const page = open(html, ["parameters"]);
    assert.equal(page.shown("#of-b").length, 0);
    page.type("[name=kind]", "b");
    assert.equal(page.shown("#of-b").length, 0);
    page.type("[name=deep]", "yes");
    assert.equal(page.shown("#of-b").length, 1);
    page.type("[name=kind]", "a");
    assert.equal(page.shown("#of-b").length, 0);
  });
  test("the line that is wrong is selected", () => {
    const at = (line) => {
      const page = open(`<div class="field"><textarea data-line="${line}">one\ntwo: 2\n\nfour</textarea></div>`, ["document-line"]);
      const { selectionStart, selectionEnd, value } = page.focused;
      return value.slice(selectionStart, selectionEnd);
    };
    assert.deepEqual([1, 2, 3, 4, 9].map(at), ["one", "two: 2", "", "four", "four"]);
  });
});


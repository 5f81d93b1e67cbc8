// The launch form: its address, what is wrong with it, its steps, folders, locks, and the app that opens.
const { describe, test } = require("node:test");
const assert = require("node:assert/strict");
const { open, plain } = require("./page");

const role = (name, mem, more = "") => `<input name="roles.name" value="${name}"><input name="roles.count" value="1"><input name="roles.image"><input name="roles.cpu">
  <input name="roles.mem" value="${mem}"><input name="roles.slots"><textarea name="roles.command"></textarea><textarea name="roles.more">${more}</textarea>`;
const LEFT_OUT = ["csrfmiddlewaretoken", "request_key", "time_zone", "owner", "files.bytes", "files.content", "environ.name", "environ.value", "roles.name", "roles.count", "roles.image", "roles.cpu", "roles.mem", "roles.slots", "roles.command", "roles.more"];
const form = (fields, usual = {}) => `<div id="from-link">filled from a link</div><form id="launch" data-usual='${JSON.stringify(usual)}' data-left-out='${JSON.stringify(LEFT_OUT)}' data-secret-names="token|password" data-secret-values="^(ghp_|sk-)"
  data-locked="[]"><input type="hidden" name="time_zone"><input type="hidden" name="csrfmiddlewaretoken" value="x">${fields}</form>`;
const addressOf = (page) => page.run('new LaunchAddress(document.getElementById("launch"), document.getElementById("from-link"))');
const queryOf = (page) => plain([...addressOf(page).query()]);
const begin = (fields, { usual, address = "/sessions/new/", ...more } = {}) => open(form(fields, usual), ["launch-address"], { address, ...more });

describe("the form in the address", () => {
  test("has what differs from the usual, and nothing else", () => {
    const page = begin('<input name="name" value="mine"><input name="count" value="1"><select name="image"><option>torch</option></select><input type="checkbox" name="depends_when" value="all" checked>', { usual: { count: ["1"], image: ["tensor"] } });
    assert.deepEqual(queryOf(page), [["image", "torch"], ["name", "mine"]], "and not when to wait for no session");
    assert.equal(addressOf(page).of(3), "/sessions/new/?image=torch&name=mine&step=3");
    page.find("[name=name]").disabled = true;
    page.find("[name=count]").value = "";
    assert.deepEqual(queryOf(page), [["count", ""], ["image", "torch"]], "what is emptied is told, too");
  });
  test("goes on with a start that is no date", () => {
    const page = begin('<input name="name" value="a"><input name="starts_at">');
    for (const [typed, told] of [["2030-03-02T10:00", "2030-03-02T10:00:00.000Z"], ["202706-06-01T10:00", "202706-06-01T10:00"], ["9999-12-31T23:59", "9999-12-31T23:59:00.000Z"], ["0001-01-01T00:00", "0001-01-01T00:00:00.000Z"], ["1e400", "1e400"]]) {
      page.find("[name=starts_at]").value = typed;
      assert.deepEqual(queryOf(page), [["name", "a"], ["starts_at", told]]);
    }
  });
  test("has no secret and nothing that is only sent", () => {
    const page = begin('<input name="request_key" value="k"><input name="files.content" value="text"><input name="owner" value="a@b.c"><textarea name="startup_command">sk-123</textarea>');
    assert.deepEqual(queryOf(page), []);
    page.find("[name=startup_command]").value = "python train.py";
    assert.deepEqual(queryOf(page), [["startup_command", "python train.py"]]);
  });
  test("names a variable whose value looks secret, without the value", () => {
    const rows = [["MY_TOKEN", "s3cret"], ["PLAIN", "1"], ["OTHER", "ghp_abc"], ["", ""]];
    const page = begin(rows.map(([name, value]) => `<input name="environ.name" value="${name}"><input name="environ.value" value="${value}">`).join(""));
    assert.deepEqual(queryOf(page), [
      ["environ.name", "MY_TOKEN"], ["environ.value", ""], ["environ.name", "PLAIN"], ["environ.value", "1"], ["environ.name", "OTHER"], ["environ.value", ""],
    ]);
    const emptied = begin('<input name="environ.name"><input name="environ.value">', { usual: { "environ.name": ["A"], "environ.value": ["1"] } });
    assert.deepEqual(queryOf(emptied), [["environ.name", ""]]);
  });
  test("has roles with their empty cells, and no role without its secret", () => {
    const page = begin(`<div id="roles">${role("worker", "")}${role("second", "256m")}${role("", "").replace('value="1"', "")}</div>`);
    const query = new URLSearchParams(queryOf(page));
    assert.deepEqual(query.getAll("roles.name"), ["worker", "second"]);
    assert.deepEqual(query.getAll("roles.mem"), ["", "256m"]);
    assert.deepEqual(query.getAll("roles.command"), ["", ""]);
    for (const [more, has] of [["environ: {LR: 1}", true], ["environ: {API_TOKEN: s3cret}", false]]) {
      page.find("[name='roles.more']").value = more;
      assert.equal(new URLSearchParams(queryOf(page)).has("roles.name"), has, more);
    }
  });
  test("a preset stands for its amounts", () => {
    const fields = '<input type="radio" name="preset" value="small" checked><input name="cpu" value="2"><input name="mem" value="1"><input name="slot.cuda.device" value="1"><input name="name" value="a">';
    const page = begin(fields);
    assert.deepEqual(queryOf(page), [["preset", "small"], ["name", "a"]]);
    page.find("[name=preset]").value = "";
    assert.deepEqual(queryOf(page).map(([name]) => name), ["cpu", "mem", "slot.cuda.device", "name"]);
  });
  test("leaves out the longest when servers would cut it off", () => {
    const page = begin('<textarea name="startup_command"></textarea><textarea name="matrix"></textarea><input name="name" value="kept">');
    page.find("[name=startup_command]").value = "x".repeat(2900);
    assert.equal(queryOf(page).length, 2);
    page.find("[name=startup_command]").value = "x".repeat(3000);
    page.find("[name=matrix]").value = "y".repeat(1000);
    assert.deepEqual(queryOf(page).map(([name]) => name), ["matrix", "name"]);
  });
  test("keeps what it began with, and moments in every time zone", () => {
    const page = begin('<input type="datetime-local" name="starts_at" data-moment="2090-03-01T12:00:00+01:00">', { address: "/sessions/new/?like=7&p.lr=0.5&other=1&from=" });
    assert.equal(page.find("[name=starts_at]").value, "2090-03-01T11:00");
    assert.equal(page.find("[name=time_zone]").value, "UTC");
    assert.deepEqual(queryOf(page), [["like", "7"], ["p.lr", "0.5"], ["starts_at", "2090-03-01T11:00:00.000Z"]]);
    assert.equal(page.run('LaunchAddress.local("never")'), "");
  });
  test("who has filled the form in this window is not told that a link did", () => {
    const page = begin('<input name="name" value="mine">');
    const address = addressOf(page);
    assert.equal(page.all("#from-link").length, 1);
    page.find("#from-link").remove();
    address.push(2);
    assert.equal(page.search, "?name=mine&step=2");
    const marks = page.window.sessionStorage.getItem("launch-addresses");
    const again = begin('<input name="name" value="mine">', { address: "/sessions/new/?name=mine&step=4", before: ({ window }) => window.sessionStorage.setItem("launch-addresses", marks) });
    addressOf(again);
    assert.equal(again.all("#from-link").length, 0);
    const other = begin('<input name="name" value="other">', { address: "/sessions/new/?name=other", before: ({ window }) => window.sessionStorage.setItem("launch-addresses", marks) });
    addressOf(other);
    assert.equal(other.all("#from-link").length, 1);
  });
});

const FAULTY = form(`<div class="step" data-part="1"><div class="field"><label for="id_name">Name</label><input class="form-control" id="id_name" name="name" aria-describedby="name_help"></div>
    <div class="field"><textarea class="form-control" id="id_startup_command" name="startup_command"></textarea></div>
    <div class="field"><input id="id_preopen_ports" name="preopen_ports" hidden data-stand-in="ports-entry"><input class="form-control" id="ports-entry"></div></div>
  <div class="step"><div class="field" id="variables"><div class="variable"><input name="environ.name"><input name="environ.value"></div><div class="variable"><input name="environ.name"><input name="environ.value"></div></div>
    <details><div class="field"><input id="id_omp" name="omp"></div></details></div><template id="told"></template>`);
const faulty = () => {
  const page = open(FAULTY, ["launch-address", "launch-faults"]);
  page.window.heard = [];
  page.run('faults = new Faults(document.getElementById("launch"), (steps) => heard.push([...steps]))');
  page.take = (list, all = false) => {
    page.find("#told").innerHTML = list.map(({ name, row, part, step = 1, text }) => `<div data-fault="${name}"${row === undefined ? "" : ` data-row="${row}"`}${part ? ` data-part="${part}"` : ""} data-step="${step}">${text}</div>`).join("");
    page.run(`faults.take(document.getElementById("told"), ${all})`);
  };
  page.leave = (selector) => page.find(selector).dispatchEvent(new page.window.FocusEvent("focusout", { bubbles: true }));
  page.steps = () => plain(page.window.heard.at(-1));
  return page;
};
const BAD_NAME = { name: "name", text: "Begin with a letter." };
const NO_COMMAND = { name: "startup_command", text: "It needs a command." };

describe("what is wrong stands at its field", () => {
  test("with its text, its mark, and the description of the field", () => {
    const page = faulty();
    page.find("#id_name").value = "-abc";
    page.take([BAD_NAME]);
    const name = page.find("#id_name");
    assert.equal(page.find("#id_name_error").textContent, "Begin with a letter.");
    assert.equal(name.getAttribute("aria-invalid"), "true");
    assert.equal(name.getAttribute("aria-describedby"), "name_help id_name_error");
    assert.equal(name.classList.contains("is-invalid"), true);
    assert.deepEqual(page.steps(), ["1"]);
    page.take([]);
    assert.equal(page.all(".invalid-feedback, [aria-invalid], .is-invalid").length, 0);
    assert.equal(name.getAttribute("aria-describedby"), "name_help");
    assert.deepEqual(page.steps(), []);
  });
  test("not while somebody types there, and a second after the last key", async () => {
    const page = faulty();
    page.type("#id_name", "-a");
    page.take([BAD_NAME]);
    assert.equal(page.all(".invalid-feedback").length, 0);
    await page.pass(900);
    page.type("#id_name", "-ab");
    await page.pass(900);
    assert.equal(page.all(".invalid-feedback").length, 0);
    await page.pass(100);
    assert.equal(page.all("#id_name_error").length, 1);
    page.type("#id_name", "-abc");
    page.take([BAD_NAME]);
    assert.equal(page.all("#id_name_error").length, 1, "what is said already stays said while it is typed at");
  });
  test("what another type brings is not said to be empty before somebody was there, even after all was told", () => {
    const page = faulty();
    const batch = page.window.document.createElement("div");
    batch.className = "batch-only";
    const command = page.find("#id_startup_command").closest(".field");
    command.replaceWith(batch);
    batch.append(command);
    page.find(".step").insertAdjacentHTML("afterbegin", '<input type="radio" name="session_type" value="batch" data-program>');
    page.run('faults.pass(document.querySelector(".step"))');
    page.take([], true);
    page.find("[name=session_type]").dispatchEvent(new page.window.Event("change", { bubbles: true }));
    page.take([NO_COMMAND]);
    assert.equal(page.all(".invalid-feedback").length, 0);
    assert.deepEqual(page.steps(), []);
    page.leave("#id_startup_command");
    assert.equal(page.find("#id_startup_command_error").textContent, "It needs a command.");
  });
  test("what is only empty is not said before somebody was there or all is told", () => {
    for (const told of [(page) => page.leave("#id_startup_command"), (page) => page.take([NO_COMMAND], true), (page) => page.run('faults.pass(document.querySelector(".step"))')]) {
      const page = faulty();
      page.take([NO_COMMAND]);
      assert.equal(page.all(".invalid-feedback").length, 0);
      assert.deepEqual(page.steps(), []);
      told(page);
      assert.equal(page.find("#id_startup_command_error").textContent, "It needs a command.");
      assert.deepEqual(page.steps(), ["1"]);
    }
  });
  test("of a row at the row, and at the field that stands in for another", () => {
    const page = faulty();
    page.all("[name='environ.name']")[1].value = "1A";
    page.take([{ name: "environ", row: 1, step: 2, text: "no name" }, { name: "preopen_ports", text: "no port" }], true);
    assert.equal(page.find("#id_environ_1_error").parentElement, page.all(".variable")[1]);
    assert.equal(page.all("[name='environ.name']")[1].getAttribute("aria-describedby"), "id_environ_1_error");
    assert.equal(page.find("#ports-entry").getAttribute("aria-invalid"), "true");
    assert.deepEqual(page.steps(), ["2", "1"]);
  });
  test("one does not come under a pressed pointer, which would lose its click", async () => {
    const page = faulty();
    page.take([NO_COMMAND]);
    const pointer = (kind) => page.window.dispatchEvent(Object.assign(new page.window.Event(kind), { button: 0 }));
    pointer("pointerdown");
    page.leave("#id_startup_command");
    assert.equal(page.all(".invalid-feedback").length, 0);
    pointer("pointerup");
    assert.equal(page.all(".invalid-feedback").length, 0, "the click comes after this event");
    await page.pass(0);
    assert.equal(page.all(".invalid-feedback").length, 1);
  });
  test("a link leads to the part that is missing", () => {
    const page = faulty();
    const lead = (fault) => {
      page.run(`faults.lead(${JSON.stringify(fault)})`);
      return page.focused;
    };
    assert.equal(lead({ name: "name" }).id, "id_name");
    assert.equal(lead({ name: "preopen_ports" }).id, "ports-entry");
    page.find("[name='environ.name']").value = "TOKEN";
    assert.equal(lead({ name: "environ", row: "0" }), page.find("[name='environ.value']"));
    assert.equal(lead({ name: "environ", row: "1" }), page.all("[name='environ.name']")[1]);
    assert.equal(lead({ name: "omp" }).id, "id_omp");
    assert.equal(page.find("details").open, true);
  });
});

const STEPS = [1, 2, 3].map((number) => `<section class="step"><h2 id="step-${number}-title" tabindex="-1">Step ${number}</h2><div class="field"><input id="id_field${number}" name="field${number}"></div></section>`).join("");
const LAUNCHER = `<nav class="step-list">${[1, 2, 3].map((number) => `<a data-go="${number}"><span class="step-mark" id="step-mark-${number}" hidden></span></a>`).join("")}</nav>
  ${form(`${STEPS}<div data-mount="data"><input type="checkbox" name="mounts" value="1"><select><option data-writes>rw</option><option>ro</option></select></div>
    <button type="button" data-go="previous" id="previous"></button><button type="button" data-go="next" id="next"></button><button type="button" data-go="3" data-to="field1" id="led"></button>
    <button name="go" value="next" id="enter"></button><button name="go" value="launch" id="launch-now"></button><button name="go" value="launch" id="confirmed" data-confirmed></button>`).replace("data-locked", 'data-step="1" data-locked')}
  <div id="launch-outlook"></div><button id="outlook-more" aria-expanded="false"></button><div id="launch-review"></div>
  <dialog id="no-folder"><p data-when="none">none</p><p data-when="read-only">read-only</p><input type="checkbox" id="no-folder-again"></dialog>`;
const launcher = (options) => {
  const page = open(LAUNCHER, ["launch-address", "launch-faults", "launch"], { address: "/sessions/new/", ...options });
  page.step = () => page.find("#launch").dataset.step;
  page.current = () => page.all("[aria-current=step]").map((one) => one.dataset.go);
  page.submit = (selector) => {
    const event = new page.window.SubmitEvent("submit", { submitter: page.find(selector), bubbles: true, cancelable: true });
    page.find("#launch").dispatchEvent(event);
    return event.defaultPrevented ? "asked" : "sent";
  };
  page.outlook = (faults) => {
    page.find("#launch-outlook").innerHTML = `<template id="outlook-faults">${faults}</template>`;
    page.tell("#launch-outlook", "htmx:afterRequest", { successful: true });
  };
  page.reviewed = (faults = "") => {
    page.find("#launch-review").innerHTML = `<div class="review"></div><template id="launch-faults">${faults}</template>`;
    page.tell("#launch-review", "htmx:afterSwap");
  };
  return page;
};

describe("the steps of the launcher", () => {
  test("are gone through in any order, each with an address and the keyboard at its title", () => {
    const page = launcher();
    assert.deepEqual([page.step(), page.current()], ["1", ["1"]]);
    page.click("#next");
    assert.deepEqual([page.step(), page.current(), page.focused.id, page.search], ["2", ["2"], "step-2-title", "?step=2"]);
    page.click("#previous");
    page.click("#previous");
    assert.equal(page.step(), "1", "before the first there is none");
    page.click(".step-list [data-go='3']");
    assert.equal(page.step(), "3");
    page.click("#next");
    assert.equal(page.step(), "3", "behind the last there is none");
    assert.equal(page.find(".step-list [data-go='2']").getAttribute("href"), "/sessions/new/?step=2");
    page.type("#id_field1", "kept");
    page.click(".step-list [data-go='1']");
    assert.equal(page.search, "?field1=kept&step=1");
  });
  test("a click with a key is the browser's", () => {
    const page = launcher();
    const event = new page.window.MouseEvent("click", { bubbles: true, cancelable: true, ctrlKey: true });
    page.find("#next").dispatchEvent(event);
    assert.deepEqual([page.step(), event.defaultPrevented], ["1", false]);
  });
  test("what is typed is in the address half a second later", async () => {
    const page = launcher();
    page.type("#id_field2", "typed");
    await page.pass(400);
    assert.equal(page.search, "");
    await page.pass(100);
    assert.equal(page.search, "?field2=typed&step=1");
  });
  test("a fault marks its step, and the review can be launched only without any", async () => {
    const page = launcher();
    page.type("#id_field1", "x");
    await page.pass(1000);
    page.outlook('<div data-fault="field1" data-step="1">wrong</div>');
    assert.equal(page.find("#step-mark-1").hidden, false);
    assert.equal(page.find("#launch-now").disabled, false, "on other steps it leads to the review");
    assert.equal(page.find("#launch-now").getAttribute("aria-describedby"), "launch-obstacle");
    assert.equal(page.submit("#launch-now"), "asked");
    assert.equal(page.step(), "3");
    assert.equal(page.find("#launch-now").disabled, true, "until it is known that nothing is wrong");
    assert.ok(page.triggered.includes("#launch-review look"));
    page.reviewed('<div data-fault="field1" data-step="1">wrong</div>');
    assert.equal(page.find("#launch-now").disabled, true);
    page.reviewed();
    assert.deepEqual([page.find("#launch-now").disabled, page.find("#step-mark-1").hidden], [false, true]);
    page.find("#launch-now").disabled = true;
    page.tell("#launch-review", "htmx:sendError");
    assert.equal(page.find("#launch-now").disabled, false, "the launch itself will say what is wrong");
    page.click("#led");
    assert.equal(page.focused.id, "id_field1", "a link leads to the field");
  });
  test("Enter goes on and launches nothing", () => {
    const page = launcher();
    assert.equal(page.submit("#enter"), "asked");
    assert.equal(page.step(), "2");
    page.click("#next");
    assert.equal(page.submit("#enter"), "asked");
    assert.equal(page.step(), "3");
  });
  test("a launch with which nothing would be kept is asked about, unless somebody wants no more of it", () => {
    const page = launcher();
    assert.equal(page.submit("#launch-now"), "asked");
    assert.deepEqual([page.find("#no-folder").open, page.shown("#no-folder p").map((one) => one.textContent)], [true, ["none"]]);
    page.find("[name=mounts]").checked = true;
    page.find("[data-mount] select").value = "ro";
    assert.equal(page.submit("#launch-now"), "asked");
    assert.deepEqual(page.shown("#no-folder p").map((one) => one.textContent), ["read-only"]);
    page.find("[data-mount] select").value = "rw";
    assert.equal(page.submit("#launch-now"), "sent", "something is kept");
    page.find("[name=mounts]").checked = false;
    page.find("#no-folder-again").checked = true;
    assert.equal(page.submit("#confirmed"), "sent");
    assert.equal(page.submit("#launch-now"), "sent", "it is asked no more");
  });
  test("a part that wants to be seen brings its step", () => {
    const page = launcher();
    page.tell("#launch", "launch:show", page.find("#id_field2"));
    assert.equal(page.step(), "2");
  });
});

describe("folders of a launch", () => {
  const row = (name, isOn = false) => `<div data-mount="${name}"><input type="checkbox" name="mounts" value="${name}" ${isOn ? "checked" : ""}><input name="target"><input type="radio" name="start_in" value="${name}"></div>`;
  const begin = (more = "") => open(`<form id="launch"><input id="mounts-search" ${more}><div id="folder-choice"><div id="id_mounts"><input type="radio" name="start_in" value="" checked>${row("data")}${row("models")}${row("old", true)}</div></div>
    <button id="launch-now"></button></form><dialog id="new-folder"></dialog>`, ["launch-folders"]);
  const names = (page) => page.shown("[data-mount]").map((one) => one.dataset.mount);

  test("what is said about one ticks it", () => {
    const page = begin();
    page.type("[data-mount=data] [name=target]", "train");
    assert.equal(page.find("[value=data][name=mounts]").checked, true);
    page.type("[data-mount=models] [name=target]", "");
    assert.equal(page.find("[value=models][name=mounts]").checked, false);
  });
  test("a search hides the others, but none that is mounted", () => {
    const page = begin();
    page.type("#mounts-search", " MOD ");
    assert.deepEqual(names(page), ["models", "old"]);
    page.type("#mounts-search", "");
    assert.deepEqual(names(page), ["data", "models", "old"]);
    const asked = begin("data-at-the-portal");
    asked.type("#mounts-search", "mod");
    assert.equal(names(asked).length, 3, "of many the portal chooses");
  });
  test("one that is not mounted is no place to start in", () => {
    const page = begin();
    const [data, tick] = [page.find("[name=start_in][value=data]"), page.find("[name=mounts][value=data]")];
    [data.checked, tick.checked] = [true, true];
    page.tell(tick, "change");
    assert.equal(data.checked, true);
    tick.checked = false;
    page.tell(tick, "change");
    assert.equal(page.find("[name=start_in][value='']").checked, true);
  });
  test("a new one is shown, has the keyboard, and the form is told", () => {
    const page = begin();
    const told = [];
    for (const kind of ["launch:show", "change"]) page.find("#launch").addEventListener(kind, () => told.push(kind));
    page.find("#new-folder").showModal();
    page.tell(page.document, "folder-created");
    assert.deepEqual([page.find("#new-folder").open, page.focused.value, told], [false, "old", ["launch:show", "change"]]);
  });
});

describe("what a template locks", () => {
  test("texts can be read only, of choices the chosen one is sent, and rows can neither come nor go", () => {
    const html = `${form(`<div class="field"><label class="form-label">Name</label><input name="name"></div><select name="image"><option>a</option><option selected>b</option></select>
      <input type="radio" name="preset" value="1"><input type="radio" name="preset" value="2" checked><div class="amount"><input name="slot.cuda"><input type="range"></div>
      <div id="variables"><div data-variable><input name="environ.name" value="LR"><input name="environ.value"><button data-remove></button></div>
      <div data-variable><input name="environ.name" value="FREE"><input name="environ.value"><button data-remove></button></div><button data-add></button></div>`)
      .replace('data-locked="[]"', `data-locked='["name", "image", "preset", "slot.", "environ=LR"]'`)}<template id="locked-mark"><i class="locked-mark"></i></template>`;
    const page = open(html, ["launch-locked"]);
    assert.equal(page.find("[name=name]").readOnly, true);
    assert.equal(page.all(".form-label .locked-mark").length, 1);
    assert.deepEqual(page.all("option").map((one) => one.disabled), [true, false]);
    assert.deepEqual(page.all("[name=preset]").map((one) => one.disabled), [true, false]);
    assert.deepEqual([page.find("[name='slot.cuda']").readOnly, page.find("[type=range]").disabled], [true, true]);
    assert.deepEqual(page.all("[name='environ.value']").map((one) => one.readOnly), [true, false]);
    assert.deepEqual(page.all("[data-remove]").map((one) => one.hidden), [true, false]);
    page.tell(page.document, "htmx:afterSettle");
    assert.equal(page.all(".locked-mark").length, 1, "looked at again it has one mark");
  });
});

describe("the app that opens when the session runs", () => {
  const html = (refused = "") => `${form(`<input name="request_key" value="key-1"><input name="tab_opened"><input name="count" value="1"><input name="cluster_size" value="1"><input name="manual_image">
    <select name="image"><option data-opens="jupyterlab">lab</option><option>shell</option></select><input type="radio" name="session_type" value="interactive" data-worked-in checked><input type="radio" name="session_type" value="batch">
    <label id="open-app" data-href="/opening/KEY/"><input type="checkbox" value="jupyterlab"></label><button name="go" value="launch" id="launch-now"></button>`).replace("data-locked", `data-refused="${refused}" data-locked`)}`;
  const begin = (before = () => {}) => open(html(), ["launch-open"], { before });
  const isOffered = (page) => !page.find("#open-app").hidden;

  test("is offered where there is such an app and one session is worked in", () => {
    const page = begin();
    assert.deepEqual([isOffered(page), page.find("#open-app input").checked], [true, true]);
    for (const [selector, other] of [["[name=image]", "shell"], ["[name=count]", "2"], ["[name=manual_image]", "my:image"]]) {
      const before = page.find(selector).value;
      page.choose(selector, other);
      assert.equal(isOffered(page), false, selector);
      page.choose(selector, before);
      assert.equal(isOffered(page), true);
    }
    page.find("[value=batch]").checked = true;
    page.tell("[value=batch]", "change");
    assert.deepEqual([isOffered(page), page.find("#open-app input").disabled], [false, true]);
  });
  test("the tick is remembered", () => {
    const page = begin();
    page.find("#open-app input").checked = false;
    page.tell("#open-app input", "change");
    assert.equal(page.window.localStorage.getItem("launch-open-app"), "no");
    assert.equal(begin(({ window }) => window.localStorage.setItem("launch-open-app", "no")).find("#open-app input").checked, false);
  });
  test("the click that launches opens its tab, which knows nothing of this page", () => {
    const page = begin();
    const tab = { opener: page.window };
    page.window.open = (address) => Object.assign(tab, { address });
    const submit = (prevent) => {
      const event = new page.window.SubmitEvent("submit", { submitter: page.find("#launch-now"), cancelable: true });
      if (prevent) event.preventDefault();
      page.find("#launch").dispatchEvent(event);
    };
    submit(true);
    assert.equal(tab.address, undefined, "not when something is asked first");
    submit(false);
    assert.deepEqual([tab.address, tab.opener, page.find("[name=tab_opened]").value], ["/opening/key-1/", null, "yes"]);
  });
  test("a launch that is refused tells the tab", () => {
    assert.deepEqual(plain(open(html("yes"), ["launch-open"]).told), [{ refused: "key-1" }]);
  });
});

describe("the times of a batch session", () => {
  const units = ["s", "m", "h", "d", "w"].map((unit, at) => `<option value="${unit}" data-unit="${["second", "minute", "hour", "day", "week"][at]}">${unit}</option>`).join("");
  const times = (start, timeout) => `<div id="batch-times" data-past="It is past.">
    <div data-wish="starts_at"><input type="checkbox"><div class="field"><input id="id_starts_at" value="${start}"></div><p data-echo></p></div>
    <div data-wish="batch_timeout"><input type="checkbox"><label for="id_batch_timeout"></label><div class="field"><input id="id_batch_timeout" value="${timeout}">
      <span class="timeout-parts" hidden><input id="number"><select>${units}</select></span></div><p data-echo></p></div></div>`;
  const echoOf = (page) => page.find("[data-wish=starts_at] [data-echo]");
  test("are told in words, and a date that is none leaves the page at work", async () => {
    const page = open(times("2030-03-01T13:00", "90m"), ["batch"]);
    await page.clock.pass(0);
    assert.equal(echoOf(page).textContent, "in 60 minutes");
    assert.equal(page.find("#number").value, "90");
    for (const [typed, told, isBad] of [["202706-06-01T10:00", "", true], ["9999-12-31T23:59", "in 2,910,922 days", false], ["0001-01-01T00:00", "It is past.", true], ["-1", "It is past.", true], ["NaN", "", true], ["2030-03-01T15:30", "in 3 hours", false]]) {
      page.find("#id_starts_at").value = typed;
      await page.clock.pass(1000);
      assert.deepEqual([echoOf(page).textContent, echoOf(page).classList.contains("state-bad")], [told, isBad], typed);
    }
  });
  test("have an amount of any number of digits", async () => {
    const page = open(times("", `${"9".repeat(400)}s`), ["batch"]);
    await page.clock.pass(0);
    assert.equal(page.find("#number").value, "Infinity");
    assert.equal(echoOf(page).textContent, "");
  });
});

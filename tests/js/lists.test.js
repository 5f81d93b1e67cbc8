// Lists: the order of columns, rows that are chosen, recent launches, moments in words, and when a list is renewed.
const { describe, test } = require("node:test");
const assert = require("node:assert/strict");
const { open, settled } = require("./page");

describe("dialogs", () => {
  test("close by a press beside them, and not by the second hit of a double click or a mark that ends outside", async () => {
    const page = open('<button data-dialog="question">Ask</button><dialog id="question"><p>Sure?</p><button data-close>No</button></dialog>', ["page"]);
    const [dialog, button] = [page.find("dialog"), page.find("button")];
    const press = (target) => target.dispatchEvent(new page.window.Event("pointerdown", { bubbles: true }));
    const hit = (target) => (press(target), target.click());
    hit(button);
    await page.pass(200);
    hit(dialog);
    assert.equal(dialog.open, true, "a double click");
    await page.pass(501);
    press(page.find("p"));
    dialog.click();
    assert.equal(dialog.open, true, "pressed inside");
    await page.pass(501);
    hit(dialog);
    assert.equal(dialog.open, false);
    hit(button);
    page.click("[data-close]");
    assert.equal(dialog.open, false, "its button closes at once");
  });
});

describe("the panel of a session", () => {
  test("opens by a click on its row, and not by the second hit of a double click on a button there", async () => {
    const id = "11111111-2222-3333-4444-555555555555";
    const html = `<div id="session-list"><a href="/sessions/${id}/">mine</a></div><dialog id="session-box"><div id="session-box-body"></div></dialog>
      <dialog id="session-drawer"><a id="drawer-page"></a><div id="drawer-inside"><div id="drawer-body"></div></div></dialog>`;
    const page = open(html, ["session-boxes", "session-drawer"]);
    page.answer = () => new Response('<h2 data-title="mine">mine</h2>');
    page.window.portal.beginPanel = () => {};
    const hit = (detail) => {
      const event = new page.window.MouseEvent("click", { bubbles: true, cancelable: true, detail });
      page.find("#session-list a").dispatchEvent(event);
      return event.defaultPrevented;
    };
    assert.equal(hit(2), true, "the page of the session is not opened either");
    await page.pass(0);
    assert.deepEqual([page.fetched.length, page.find("#session-drawer").open, page.search], [0, false, ""]);
    hit(1);
    await page.pass(0);
    assert.deepEqual([page.fetched.length, page.find("#session-drawer").open, page.search], [1, true, `?session=${id}`]);
  });
});

describe("what comes before the scripts of a page", () => {
  const begin = () => {
    const page = open('<button type="button" id="one">One</button><button id="two">Two</button><a href="#there" data-box="x" id="row">Row</a><a href="#plain" id="plain">Plain</a><div id="zone"></div>', ["theme"], { isReady: false });
    page.done = [];
    return page;
  };
  const arrive = async (page) => {
    page.document.addEventListener("click", ({ target }) => page.done.push(target.id));
    page.find("#zone").addEventListener("drop", ({ dataTransfer }) => page.done.push(...dataTransfer.items.map((item) => item.webkitGetAsEntry() ?? item.getAsFile())));
    page.tell(page.document, "DOMContentLoaded");
    await page.pass(0);
  };
  test("the last press is done once they listen, and links lead on at once", async () => {
    const page = begin();
    page.click("#one");
    page.click("#row");
    const held = new page.window.MouseEvent("click", { bubbles: true, cancelable: true });
    page.find("#two").dispatchEvent(held);
    const free = new page.window.MouseEvent("click", { bubbles: true, cancelable: true });
    page.find("#plain").dispatchEvent(free);
    const other = new page.window.MouseEvent("click", { bubbles: true, cancelable: true, ctrlKey: true });
    page.find("#row").dispatchEvent(other);
    assert.deepEqual([held.defaultPrevented, free.defaultPrevented, other.defaultPrevented], [true, false, false]);
    await arrive(page);
    assert.deepEqual(page.done, ["two"]);
    page.click("#one");
    assert.deepEqual(page.done, ["two", "one"], "from then on it is done at once");
  });
  test("dropped files and directories wait, and the browser does not open them", async () => {
    const page = begin();
    const [entry, file] = [{ isDirectory: true }, { name: "a.txt" }];
    const items = [{ kind: "string" }, { kind: "file", webkitGetAsEntry: () => entry, getAsFile: () => null }, { kind: "file", webkitGetAsEntry: () => null, getAsFile: () => file }];
    const event = Object.assign(new page.window.Event("drop", { bubbles: true, cancelable: true }), { dataTransfer: { types: ["Files"], items, files: [file] } });
    page.find("#zone").dispatchEvent(event);
    items.length = 0;
    assert.equal(event.defaultPrevented, true);
    await arrive(page);
    assert.deepEqual(page.done, [entry, file]);
  });
});

describe("the order of columns", () => {
  const names = ["Name", "Type", "Priority", "Access key"];
  const html = `<p id="announce"></p><ol id="column-order" data-moved="{name}: place {place} of {number}">${names.map((name) => `<li id="${name.split(" ")[0]}"><label><input type="checkbox"><span data-name>${name}</span></label>
    <button name="earlier"><svg></svg></button><button name="later"></button></li>`).join("")}</ol>`;
  const begin = () => {
    const page = open(html, ["columns"]);
    page.order = () => page.texts("[data-name]");
    page.said = () => page.find("#announce").textContent;
    page.drag = (kind, target, { height = 0, effect = "move" } = {}) => {
      const event = new page.window.Event(kind, { bubbles: true, cancelable: true });
      Object.assign(event, { clientY: height, dataTransfer: { dropEffect: effect, setData: () => {} } });
      page.find(target).dispatchEvent(event);
      return event;
    };
    for (const line of page.all("li")) line.getBoundingClientRect = () => ({ top: 100, height: 20 });
    return page;
  };
  test("arrows move one by one, keep the keyboard and say the place", () => {
    const page = begin();
    page.click("#Access [name=earlier]");
    assert.deepEqual([page.order(), page.said()], [["Name", "Type", "Access key", "Priority"], "Access key: place 3 of 4"]);
    assert.equal(page.focused, page.find("#Access [name=earlier]"));
    for (let turn = 0; turn < 4; turn += 1) page.click("#Access [name=earlier]");
    assert.deepEqual([page.order()[0], page.said()], ["Access key", "Access key: place 1 of 4"]);
    page.click("#Priority [name=later]");
    assert.equal(page.order()[3], "Priority");
  });
  test("so does Alt with the arrow keys, and those alone do not", () => {
    const page = begin();
    page.find("#Type input").focus();
    assert.equal(page.press("#Type input", "ArrowDown").defaultPrevented, false);
    assert.equal(page.press("#Type input", "ArrowDown", { altKey: true }).defaultPrevented, true);
    assert.deepEqual([page.order(), page.said(), page.focused === page.find("#Type input")], [["Name", "Priority", "Type", "Access key"], "Type: place 3 of 4", true]);
    page.press("#Type input", "ArrowUp", { altKey: true });
    assert.deepEqual(page.order(), names);
  });
  test("a line is dragged over the upper or the lower half of another, and falls back when it is let go elsewhere", () => {
    const page = begin();
    page.drag("dragstart", "#Access");
    assert.equal(page.drag("dragover", "#Name", { height: 105 }).defaultPrevented, true);
    assert.deepEqual(page.order(), ["Access key", "Name", "Type", "Priority"]);
    page.drag("dragover", "#Name", { height: 115 });
    assert.deepEqual(page.order(), ["Name", "Access key", "Type", "Priority"]);
    page.drag("dragend", "#Access");
    assert.deepEqual([page.said(), page.find("#Access").className], ["Access key: place 2 of 4", ""]);
    page.drag("dragstart", "#Type");
    page.drag("dragover", "#Name", { height: 105 });
    page.drag("dragend", "#Type", { effect: "none" });
    assert.deepEqual(page.order(), ["Name", "Access key", "Type", "Priority"]);
    assert.equal(page.drag("dragover", "#Name").defaultPrevented, false, "something else is dragged");
  });
});

describe("rows that are chosen", () => {
  const row = (id, more = "") => `<tr><td class="cell-choose"><input type="checkbox" name="session" value="${id}"></td><td>${more}</td></tr>`;
  const html = (rows) => `<form id="chosen"><input name="back"><div class="chosen-bar" data-one="1 selected" data-many="%n selected" hidden><span data-chosen></span><p data-keeps></p><button type="button" data-choose-none></button></div></form>
    <table><thead><tr><th><input type="checkbox" data-choose-all></th></tr></thead><tbody>${rows}</tbody></table>`;
  const begin = () => {
    const page = open(html(row("a") + row("b", '<i class="idle-sign"></i>') + row("c")), ["choosing"], { address: "/?status=PENDING&sort=name" });
    page.tick = (selector, isOn = true) => {
      page.find(selector).checked = isOn;
      page.tell(selector, "change");
    };
    page.bar = () => (page.find(".chosen-bar").hidden ? "" : page.find("[data-chosen]").textContent);
    return page;
  };
  test("are counted, and those that an idle rule would end can be kept", () => {
    const page = begin();
    assert.equal(page.bar(), "");
    page.tick("[value=a]");
    assert.deepEqual([page.bar(), page.find("[data-keeps]").hidden, page.find("[data-choose-all]").indeterminate], ["1 selected", true, true]);
    page.tick("[value=b]");
    assert.deepEqual([page.bar(), page.find("[data-keeps]").hidden], ["2 selected", false]);
    page.tick("[data-choose-all]");
    assert.deepEqual([page.bar(), page.find("[data-choose-all]").checked], ["3 selected", true]);
    page.click("[data-choose-none]");
    assert.deepEqual([page.bar(), page.find("[data-choose-all]").checked], ["", false]);
  });
  test("stay so while rows are renewed, and what has left the list is not", () => {
    const page = begin();
    page.tick("[value=a]");
    page.tick("[value=b]");
    page.find("tbody").innerHTML = row("new") + row("b") + row("a");
    page.tell("tbody", "htmx:afterSettle");
    assert.deepEqual([page.bar(), page.all("tbody :checked").map((one) => one.value)], ["2 selected", ["b", "a"]]);
    page.find("tbody").innerHTML = row("new") + row("b");
    page.tell("tbody", "htmx:afterSettle");
    assert.equal(page.bar(), "1 selected");
  });
  test("one comes back to the list that is shown", () => {
    const page = begin();
    page.tell("#chosen", "submit");
    assert.equal(page.find("[name=back]").value, "/?status=PENDING&sort=name");
  });
});

describe("recent launches", () => {
  const entry = (name) => `<li><details class="recent-rename"><summary id="rename-${name}">Rename ${name}</summary><form id="form-${name}"><input name="name" value="${name}"></form></details><form id="pin-form-${name}"><button id="pin-${name}">Pin</button></form></li>`;
  test("one name is open at a time, ready to be typed over, and Escape closes it", () => {
    const page = open(`<ul id="recent-list">${entry("a")}${entry("b")}</ul>`, ["recent"]);
    const [first, second] = page.all("details");
    first.open = true;
    page.tell(first, "toggle");
    const name = first.querySelector("input");
    assert.deepEqual([name.selectionStart, name.selectionEnd], [0, 1]);
    second.open = true;
    page.tell(second, "toggle");
    assert.deepEqual([first.open, second.open], [false, true]);
    assert.equal(page.press("#form-b input", "Escape").defaultPrevented, true);
    assert.deepEqual([second.open, page.focused.id], [false, "rename-b"]);
    assert.equal(page.press("#form-b input", "Escape").defaultPrevented, false, "then it closes the box");
  });
  test("the keyboard stays where it was when the list is renewed, or goes to what is wrong", () => {
    const page = open(`<dialog open><button data-close></button><ul id="recent-list">${entry("a")}</ul></dialog>`, ["recent"]);
    const renew = (content) => {
      page.find("#recent-list").innerHTML = content;
      page.document.body.focus();
      page.tell("#recent-list", "htmx:afterSettle");
      return page.focused;
    };
    page.tell("#pin-form-a", "htmx:beforeRequest");
    assert.equal(renew(entry("a")).id, "pin-a");
    page.tell("#form-a", "htmx:beforeRequest");
    assert.equal(renew(`${entry("a").replace('name="name"', 'name="name" aria-invalid="true"')}`).name, "name");
    page.tell("#pin-form-a", "htmx:beforeRequest");
    assert.equal(renew(""), page.find("[data-close]"), "nothing is left");
  });
});

describe("moments in words", () => {
  const WORDS = '<div id="time-words" data-now="just now" data-due="any moment now" data-ago="%(time)s ago" data-in="in %(time)s" data-units="%(number)s d|%(number)s h|%(number)s min|%(number)s s"></div>';
  const at = (seconds) => new Date(Date.UTC(2030, 2, 1, 12) + seconds * 1000).toISOString();
  const said = (attribute, seconds, value = "") => open(`${WORDS}<time ${attribute}="${value}" datetime="${at(seconds)}"></time>`, ["times"]).find("time").textContent;

  test("what was is told roughly, what comes closely", () => {
    const expected = { "-5": "just now", 9: "just now", "-30": "30 s ago", "-150": "2 min ago", "-5400": "1 h ago", "-176400": "2 d ago", 30: "in 30 s", 150: "in 2 min", 5400: "in 1 h 30 min", 176400: "in 2 d 1 h", 172800: "in 2 d" };
    for (const [seconds, text] of Object.entries(expected)) assert.equal(said("data-ago", Number(seconds)), text);
    assert.equal(said("data-ago", 30, "due"), "in 30 s");
    assert.equal(said("data-ago", -30, "due"), "any moment now", "an end that is due is not over");
  });
  test("what lasts is counted, to its end or to now", async () => {
    assert.equal(said("data-elapsed", -3723), "1:02:03");
    assert.equal(said("data-elapsed", -90000), "1 d 1 h");
    assert.equal(said("data-elapsed", -100, at(-40)), "0:01:00");
    assert.equal(said("data-elapsed", 50), "0:00:00");
    const page = open(`${WORDS}<time data-elapsed datetime="${at(0)}"></time>`, ["times"]);
    await page.pass(61000);
    assert.equal(page.find("time").textContent, "0:01:01");
  });
  test("exact ones are as the browser's region writes them, and today's are short", () => {
    assert.match(said("data-exact", 3600), /^Mar 1, 2030, 1:00:00\sPM$/);
    assert.match(said("data-exact", 3600, "short"), /^1:00\sPM$/);
    assert.match(said("data-exact", -86400, "short"), /^Feb 28, 2030, 12:00\sPM$/);
    assert.match(open(`${WORDS}<time data-ago datetime="${at(0)}"></time>`, ["times"]).find("time").title, /^Mar 1, 2030, 12:00:00\sPM$/);
  });
});

describe("the list of sessions", () => {
  const rows = (number) => Array.from({ length: number }, (_, at) => `<p id="row-${at}" data-session="s${at}" data-version="1"><i id="use-s${at}"></i></p>`).join("");
  const html = (number) => `<div id="session-list">${rows(number)}<details class="list-menu" id="one"></details><details class="list-menu" id="two"></details></div><div id="resources"></div><div id="session-uses"></div>`;
  const begin = (number = 10) => open(html(number), ["sessions"], { address: "/?q=x" });
  const change = (page, id, more = {}) => page.tell(page.document, "session-changed", { id, version: 2, status: "RUNNING", ...more });

  test("rows are renewed that have changed, once for several news", async () => {
    const page = begin();
    change(page, "s1");
    change(page, "s1", { version: 3 });
    change(page, "s2", { version: 1 });
    await page.pass(150);
    assert.deepEqual(page.triggered, ["#row-1 row-changed"], "what is shown of s2 is as new");
    await page.pass(650);
    assert.deepEqual(page.triggered, ["#row-1 row-changed", "#resources look-again"]);
  });
  test("many changes, and sessions that are not in sight, renew it whole", async () => {
    for (const ids of [["s1", "appeared"], Array.from({ length: 9 }, (_, at) => `s${at}`)]) {
      const page = begin();
      for (const id of ids) change(page, id);
      await page.pass(150);
      assert.deepEqual(page.triggered, ["#session-list look-again"]);
    }
  });
  test("what has ended stays in sight for five seconds", async () => {
    const page = begin();
    change(page, "s1", { status: "TERMINATED" });
    await page.pass(4999);
    assert.equal(page.triggered.includes("#session-list look-again"), false);
    await page.pass(1);
    assert.equal(page.triggered.includes("#session-list look-again"), true);
  });
  test("it is renewed from its address, and asks for the use of those in sight", () => {
    const page = begin(2);
    const list = { elt: page.find("#session-list"), path: "/part/" };
    page.tell("#session-list", "htmx:configRequest", list);
    const uses = { elt: page.find("#session-uses"), path: "/uses/" };
    page.tell("#session-uses", "htmx:configRequest", uses);
    assert.deepEqual([list.path, uses.path], ["/?q=x", "/uses/?session=s0&session=s1"]);
  });
  test("one menu is open at a time", async () => {
    const page = begin();
    page.find("#one").open = page.find("#two").open = true;
    page.click("#two");
    assert.deepEqual([page.find("#one").open, page.find("#two").open], [false, true]);
    page.press("#row-1", "Escape");
    assert.equal(page.find("#two").open, false);
    await settled();
  });
  test("the queue waits until nobody is about to change it", async () => {
    const page = open('<div id="panel-list"><span class="cell-choose"><input type="checkbox" checked></span><button></button></div>', ["queue"], { address: "/queue/?q=1" });
    page.tell(page.document, "session-changed");
    await page.pass(1500);
    assert.deepEqual(page.triggered, []);
    page.find("input").checked = false;
    page.find("button").focus();
    page.tell(page.document, "session-changed");
    await page.pass(1500);
    assert.deepEqual(page.triggered, []);
    page.find("button").blur();
    page.tell(page.document, "session-changed");
    page.tell(page.document, "session-changed");
    await page.pass(1500);
    assert.deepEqual(page.triggered, ["GET /queue/?q=1"]);
  });
});

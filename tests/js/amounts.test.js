// The amounts of the launch form: number, unit, slider, notes, presets and what is free.
const { describe, test } = require("node:test");
const assert = require("node:assert/strict");
const { open } = require("./page");

const [MIB, GIB] = [2 ** 20, 2 ** 30];
const amount = (slot, { unit, facts = "", label = slot, value = "" } = {}) => `<div class="amount" data-amount="${slot}"><label>${label}</label>
  <input type="text" name="${slot === "cpu" || slot === "mem" || slot === "shm" ? slot : `slot.${slot}`}" id="${slot}" value="${value}">
  ${unit ? `<select name="${slot}_unit" id="${slot}-unit"><option value="m">MiB</option><option value="g" selected>GiB</option><option value="t">TiB</option></select>` : ""}
  ${slot === "shm" ? '<input type="checkbox" id="shm-automatic">' : ""}
  <div class="slider"><input type="range" min="0" id="${slot}-range"><span class="slide-mark is-minimum"></span><span class="slide-mark is-now"></span><span class="slide-mark is-maximum"></span></div>
  <div class="amount-facts" ${facts}>${["unreadable", "below", "above", "step", "queue", "tight"].map((when) => `<p data-when="${when}" hidden></p>`).join("")}${slot === "shm" ? "<span data-automatic></span>" : ""}</div></div>`;
const CORES = 'data-offered data-minimum="0.1" data-remaining="2" data-maximum="4" data-end="4" data-slide="1" data-step="0.001"';
const MEMORY = `data-offered data-minimum="${64 * MIB}" data-maximum="${4 * GIB}" data-end="${4 * GIB}" data-slide="${64 * MIB}"`;
const SHARED = `data-usual='[[${4 * GIB}, ${GIB}], [0, ${64 * MIB}]]'`;
const preset = (name, variants, more = "") => `<label class="preset ${more}"><input type="radio" name="preset" value="${name}" id="preset-${name || "custom"}">
  ${variants.map(([group, amounts]) => `<span data-group="${group}" data-amounts='${JSON.stringify(amounts)}'></span>`).join("")}</label>`;
const html = ({ gpus = 'data-offered data-maximum="2" data-slide="1" data-end="2"', more = "" } = {}) => `<form id="launch">
  <select name="resource_group"><option>default</option><option>gpus</option></select>
  <div id="presets">${preset("small", [["", { cpu: "1", mem: "512m" }]])}${preset("large", [["default", { cpu: "3", mem: "2g" }], ["gpus", { cpu: "4", mem: "4g", "cuda.device": "1" }]])}
    ${preset("of-gpus", [["gpus", { cpu: "2", "cuda.device": "2" }]])}${preset("", [])}</div>
  <div id="amounts">${amount("cpu", { facts: CORES, value: "1" })}${amount("mem", { unit: true, facts: MEMORY, value: "1" })}${amount("shm", { unit: true, facts: SHARED })}
    ${amount("cuda.device", { facts: gpus, label: "GPU" })}${more}<select id="accelerator-type" data-none="none"></select></div>
  <p id="memory-split"><span data-own></span><span data-shared></span></p>
  <input type="number" name="cluster_size" value="1"><input type="number" name="count" value="2" aria-describedby="about"><p id="count-of-cluster"></p>
  <select name="agents"></select><details class="roles"></details><p id="command-in"></p></form>
  <div id="launch-outlook"></div><template id="outlook-unknown">Not known now</template>`;
const begin = (options) => {
  const page = open(html(options), ["allocation"]);
  page.slide = (slot, to) => page.type(`[data-amount="${slot}"] [type=range]`, to);
  page.notes = (slot) => page.shown(`[data-amount="${slot}"] [data-when]`).map((one) => one.dataset.when);
  page.isWrong = (slot) => page.find(`[data-amount="${slot}"] input`).getAttribute("aria-invalid") === "true";
  page.pick = (name) => {
    page.find(`#preset-${name}`).checked = true;
    page.tell(`#preset-${name}`, "change");
  };
  page.group = (name) => page.choose("[name=resource_group]", name);
  page.chosen = () => page.find("[name=preset]:checked").value;
  page.range = (slot) => page.find(`[data-amount="${slot}"] [type=range]`);
  page.value = (slot) => page.find(`[data-amount="${slot}"] input`).value;
  return page;
};

describe("a number and its slider", () => {
  test("say the same, and typing means an amount of one's own", () => {
    const page = begin();
    page.pick("small");
    page.type("#cpu", "2");
    assert.equal(page.chosen(), "");
    assert.equal(page.range("cpu").value, "2");
    page.slide("cpu", "3");
    assert.equal(page.value("cpu"), "3");
    assert.equal(page.range("cpu").getAttribute("aria-valuetext"), "3");
    page.slide("cpu", "0");
    assert.equal(page.value("cpu"), "0.1", "it ends at the least that may be asked for");
    assert.equal(page.find("[data-amount=cpu] .slider").style.getPropertyValue("--at"), "0.025");
    assert.equal(page.find("[data-amount=cpu] .is-now").style.getPropertyValue("--at"), "0.5");
    assert.equal(page.find("[data-amount=mem] .is-now").hidden, true, "what is free is not known");
    assert.ok(page.triggered.includes("#presets amounts-typed"));
  });
  test("the notes name what is wrong, or that it waits", () => {
    const page = begin();
    const cases = { 1: [], 3: ["queue"], 5: ["above"], "0.05": ["below"], "0.1005": ["step"], many: ["unreadable"], "": ["below"], ".5": [] };
    for (const [text, notes] of Object.entries(cases)) {
      page.type("#cpu", text);
      assert.deepEqual(page.notes("cpu"), notes, text);
      assert.equal(page.isWrong("cpu"), notes.length > 0 && notes[0] !== "queue", text);
      assert.equal(page.find("#cpu").classList.contains("is-invalid"), page.isWrong("cpu"));
    }
  });
  test("what the portal has refused is news until it is changed", () => {
    const page = begin();
    page.find("[data-amount=cpu]").insertAdjacentHTML("beforeend", '<div class="invalid-feedback">refused</div>');
    page.tell("#launch", "launch:faults");
    assert.deepEqual(page.notes("cpu"), []);
    page.type("#cpu", "5");
    assert.equal(page.all(".invalid-feedback").length, 0);
    assert.deepEqual(page.notes("cpu"), ["above"]);
  });
});

describe("a size", () => {
  test("keeps its amount whatever its unit", () => {
    const page = begin();
    for (const [text, number, unit] of [["512m", "512", "m"], ["4g", "4", "g"], ["1.5 GiB", "1.5", "g"], ["2tb", "2", "t"], ["3", "3", "t"], ["1073741824", "1", "g"], ["much", "much", "g"]]) {
      page.choose("#mem", text);
      assert.deepEqual([page.value("mem"), page.find("#mem-unit").value], [number, unit], text);
    }
    assert.deepEqual(page.notes("mem"), ["unreadable"]);
  });
  test("a slider writes it in its largest unit", () => {
    const page = begin();
    page.slide("mem", "8");
    assert.deepEqual([page.value("mem"), page.find("#mem-unit").value], ["512", "m"]);
    assert.equal(page.range("mem").getAttribute("aria-valuetext"), "512 MiB");
    page.slide("mem", "24");
    assert.deepEqual([page.value("mem"), page.find("#mem-unit").value], ["1.5", "g"]);
    page.slide("mem", "1000");
    assert.deepEqual([page.value("mem"), page.find("#mem-unit").value], ["4", "g"], "it ends at the most");
  });
  test("shared memory is a part of it: by itself as much as comes with it, by hand what fits", () => {
    const page = begin();
    const split = () => [page.find("[data-own]").textContent, page.find("[data-shared]").textContent];
    page.choose("#mem", "512m");
    assert.deepEqual(split(), ["448 MiB", "64 MiB"]);
    assert.equal(page.find("[data-automatic]").textContent, "64 MiB");
    page.choose("#mem", "4g");
    assert.equal(page.find("[data-automatic]").textContent, "1 GiB");
    assert.deepEqual(split(), ["3 GiB", "1 GiB"]);
    page.choose("#mem", "100m");
    assert.deepEqual(split(), ["50 MiB", "50 MiB"], "half of it at most");
    page.choose("#mem", "512m");
    page.find("#shm-automatic").checked = false;
    page.tell("#shm-automatic", "input");
    assert.deepEqual([page.value("shm"), page.find("#shm-unit").value], ["64", "m"]);
    page.type("#shm", "512");
    assert.deepEqual([page.notes("shm"), page.isWrong("shm")], [["above"], true]);
    page.type("#shm", "300");
    assert.deepEqual([page.notes("shm"), page.isWrong("shm")], [["tight"], false]);
    page.type("#shm", "much");
    assert.deepEqual(page.notes("shm"), ["unreadable"]);
    page.find("#shm-automatic").checked = true;
    page.tell("#shm-automatic", "input");
    assert.equal(page.value("shm"), "");
    assert.deepEqual(page.notes("shm"), []);
  });
});

describe("presets and groups", () => {
  test("a preset fills all in as the chosen group has it", () => {
    const page = begin();
    page.pick("small");
    assert.deepEqual([page.value("cpu"), page.value("mem"), page.find("#mem-unit").value, page.range("cpu").value], ["1", "512", "m", "1"]);
    page.pick("large");
    assert.deepEqual([page.value("cpu"), page.value("mem")], ["3", "2"]);
    page.group("gpus");
    assert.deepEqual([page.value("cpu"), page.value("mem"), page.value("cuda.device")], ["4", "4", "1"]);
    assert.equal(page.chosen(), "large");
  });
  test("one that a group does not have goes away, and leaves an amount of one's own", () => {
    const page = begin();
    assert.equal(page.find("#preset-of-gpus").disabled, true);
    assert.equal(page.shown("#preset-of-gpus").length, 0);
    page.group("gpus");
    page.pick("of-gpus");
    page.group("default");
    assert.equal(page.chosen(), "");
    page.group("gpus");
    assert.equal(page.shown("#preset-of-gpus").length, 1);
  });
  test("an answer about the form as it was leaves the choice as it is now", () => {
    const page = begin();
    page.pick("small");
    page.tell("#presets", "htmx:beforeSwap", { target: page.find("#presets"), serverResponse: "new" });
    page.find("#preset-large").checked = true;
    page.tell("#presets", "htmx:afterSettle");
    assert.equal(page.chosen(), "small");
    const detail = { target: page.find("#presets"), serverResponse: "new", shouldSwap: true };
    page.tell("#presets", "htmx:beforeSwap", detail);
    assert.equal(detail.shouldSwap, false, "the same again changes nothing");
  });
});

describe("accelerators", () => {
  test("one kind needs no choice; with two there is one at a time", () => {
    assert.equal(begin().find("#accelerator-type").hidden, true);
    const page = begin({ more: amount("rocm.device", { facts: 'data-offered data-minimum="2" data-slide="1"', label: "ROCm" }) });
    assert.deepEqual(page.texts("#accelerator-type option"), ["none", "GPU", "ROCm"]);
    page.find("#accelerator-type").value = "rocm.device";
    page.tell("#accelerator-type", "change");
    assert.equal(page.value("rocm.device"), "2", "it begins with the least");
    assert.deepEqual(page.shown("[data-amount$='.device']").map((one) => one.dataset.amount), ["rocm.device"]);
    page.find("#accelerator-type").value = "cuda.device";
    page.tell("#accelerator-type", "change");
    assert.deepEqual([page.value("rocm.device"), page.value("cuda.device")], ["", "1"]);
  });
  test("what the group or the environment does not have any more is dropped, and the form asks anew", () => {
    const page = begin();
    page.type("[id='cuda.device']", "1");
    delete page.find("[data-amount='cuda.device'] .amount-facts").dataset.offered;
    page.triggered.length = 0;
    page.tell("#launch", "launch:faults");
    assert.equal(page.value("cuda.device"), "");
    assert.equal(page.shown("[data-amount='cuda.device']").length, 0);
    assert.ok(page.triggered.includes("#launch-outlook look-again"));
  });
  test("an environment that needs one leaves no way without", () => {
    const page = begin({ gpus: "data-offered data-required", more: amount("rocm.device", { facts: "data-offered" }) });
    assert.deepEqual(page.texts("#accelerator-type option"), ["GPU", "rocm.device"]);
    assert.equal(page.find("#accelerator-type").value, "cuda.device");
  });
});

describe("a cluster", () => {
  test("is one session on agents that it finds itself", () => {
    const page = begin();
    page.type("[name=cluster_size]", "2");
    assert.deepEqual([page.find("[name=count]").disabled, page.find("[name=agents]").disabled], [true, true]);
    assert.equal(page.find("[name=count]").getAttribute("aria-describedby"), "about count-of-cluster");
    assert.equal(page.shown("#count-of-cluster").length, 1);
    page.find("[name=count]").value = "";
    page.type("[name=cluster_size]", "1");
    assert.deepEqual([page.find("[name=count]").disabled, page.find("[name=agents]").disabled, page.find("[name=count]").value], [false, false, "1"]);
    assert.equal(page.find("[name=count]").getAttribute("aria-describedby"), "about");
  });
});

describe("a change with which it would start now", () => {
  const press = (page, changes) => {
    page.find("#launch-outlook").innerHTML = "<button data-fill>Use these amounts</button>";
    page.find("[data-fill]").dataset.fill = JSON.stringify(changes);
    page.click("[data-fill]");
  };
  test("is filled in, as an amount of one's own, and its field has the keyboard", () => {
    const page = begin();
    page.pick("large");
    let shown = null;
    page.find("#launch").addEventListener("launch:show", ({ detail }) => (shown = detail));
    press(page, { cpu: "1", mem: "512", mem_unit: "m" });
    assert.deepEqual([page.value("cpu"), page.value("mem"), page.find("#mem-unit").value], ["1", "512", "m"]);
    assert.deepEqual([page.chosen(), page.focused.id, shown.id], ["", "cpu", "cpu"]);
  });
  test("another group keeps the amounts, also where the preset means others there", () => {
    const page = begin();
    page.pick("large");
    press(page, { resource_group: "gpus" });
    assert.deepEqual([page.find("[name=resource_group]").value, page.value("cpu"), page.value("mem"), page.value("cuda.device")], ["gpus", "3", "2", ""]);
    assert.equal(page.chosen(), "");
    assert.equal(page.focused.name, "resource_group");
  });
});

describe("what would happen", () => {
  test("is not told from before when no answer comes, and not read out twice", () => {
    const page = begin();
    const swap = (serverResponse) => {
      const detail = { serverResponse, shouldSwap: true };
      page.tell("#launch-outlook", "htmx:beforeSwap", detail);
      return detail.shouldSwap;
    };
    assert.deepEqual([swap("Starts now"), swap("Starts now"), swap("Waits"), swap("Starts now")], [true, false, true, true]);
    page.tell("#launch-outlook", "htmx:sendError");
    assert.equal(page.find("#launch-outlook").textContent, "Not known now");
    assert.equal(swap("Starts now"), true);
  });
  test("is asked again every fifteen seconds, and when what it depends on changes", async () => {
    const page = begin();
    page.triggered.length = 0;
    await page.pass(15000);
    assert.deepEqual(page.triggered, ["#launch-outlook look-again", "#presets look-again"]);
    page.triggered.length = 0;
    page.tell("[name=agents]", "change");
    page.tell("[name=count]", "change");
    assert.deepEqual(page.triggered, ["#presets look-again"]);
  });
});

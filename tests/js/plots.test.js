// Plots: the column under the pointer or the arrow keys is told beneath, in all plots side by side.
const { describe, test } = require("node:test");
const assert = require("node:assert/strict");
const { open } = require("./page");

const svg = (name, words) =>
  `<figure><svg id="${name}" data-plot tabindex="0" viewBox="0 0 30 48">${words
    .map((word, place) => `<g><title>${word}</title><rect x="${place * 10}" width="9"></rect></g>`)
    .join("")}</svg></figure>`;
const two = `<div data-plots>${svg("cpu", ["12:00: 1", "12:01: 2", "12:02: 3"])}${svg("mem", ["12:00: 1 GiB", "12:01: 2 GiB"])}</div>`;

const opened = () => {
  const page = open(two, ["plots"]);
  for (const one of page.window.document.querySelectorAll("svg")) {
    one.getBoundingClientRect = () => ({ left: 100, width: 300 });
    Object.defineProperty(one, "viewBox", { value: { baseVal: { width: 30 } } });
  }
  const send = (type, more) => page.find("#cpu").dispatchEvent(Object.assign(new page.window.Event(type, { bubbles: true, cancelable: true }), more));
  const told = () => [...page.window.document.querySelectorAll(".plot-readout")].map((one) => one.textContent);
  return { page, send, told };
};

describe("the cursor of plots", () => {
  test("tells the column under the pointer in each plot, and nothing when it has left", () => {
    const { send, told } = opened();
    send("pointermove", { clientX: 250 });
    assert.deepEqual(told(), ["12:01: 2", "12:01: 2 GiB"]);
    send("pointermove", { clientX: 399 });
    assert.deepEqual(told(), ["12:02: 3", "12:01: 2 GiB"], "the last one that is there");
    send("pointerout", { relatedTarget: null });
    assert.deepEqual(told(), ["", ""]);
  });
  test("goes from column to column by the arrow keys, and stays at the ends", () => {
    const { send, told } = opened();
    const press = (key) => (send("keydown", { key }), told()[0]);
    assert.deepEqual(["ArrowLeft", "ArrowLeft", "Home", "ArrowLeft", "End"].map(press), ["12:02: 3", "12:01: 2", "12:00: 1", "12:00: 1", "12:02: 3"]);
    press("x");
    assert.equal(told()[0], "12:02: 3");
  });
});

// The lines of a log and the search in them.
const { describe, test } = require("node:test");
const assert = require("node:assert/strict");
const { open } = require("./page");

const page = open("", ["log-lines", "log-find"]);
const { portal } = page.window;
const bytes = (text) => new TextEncoder().encode(text);
const linesOf = (...texts) => {
  const lines = new portal.LogLines();
  for (const text of texts) lines.add(typeof text === "string" ? bytes(text) : text);
  return lines;
};
const piecesOf = (line) => Array.from(portal.linePieces(line), ({ text, classes }) => [text, classes]);

describe("lines of a log", () => {
  test("a line may come in pieces, and the last one has no end yet", () => {
    const lines = linesOf("one\ntw", "o\nthr");
    assert.equal(lines.count, 3);
    assert.deepEqual([0, 1, 2].map((number) => lines.at(number)), ["one", "two", "thr"]);
    lines.add(bytes("ee\n"));
    assert.equal(lines.count, 3);
    assert.equal(lines.at(2), "three");
  });
  test("a character may be cut in two, and bytes that are none are replaced", () => {
    const whole = bytes("é\n");
    assert.equal(linesOf(whole.subarray(0, 1), whole.subarray(1)).at(0), "é");
    assert.equal(linesOf(Uint8Array.of(0x6f, 0xff, 0x0a)).at(0), "o\ufffd");
  });
  test("what draws over its line leaves what it drew last", () => {
    assert.equal(linesOf("10 %\r20 %\r100 %\n").at(0), "100 %");
    assert.equal(linesOf("an end of Windows\r\n").at(0), "an end of Windows");
    assert.equal(linesOf("1 %\r2 %").at(0), "2 %");
  });
  test("a line that is too long is cut, and says so", () => {
    const cut = linesOf(`${"x".repeat(20001)}\n`).at(0);
    assert.equal(cut, `${"x".repeat(20000)} …`);
    assert.equal(linesOf(`${"x".repeat(20000)}\n`).at(0).length, 20000);
  });
  test("of half a million lines the oldest go, and the numbers stay right", () => {
    const lines = linesOf("a\n".repeat(500000));
    assert.equal(lines.first, 0);
    assert.equal(lines.add(bytes("b\n".repeat(50000))), 0, "a tenth more is kept for a while");
    assert.equal(lines.add(bytes("c\n")), 50001);
    assert.deepEqual([lines.first, lines.count, lines.end, lines.at(550000)], [50001, 500000, 550001, "c"]);
  });
  test("what is passed over counts its lines", () => {
    const lines = linesOf("one\ntwo\n");
    lines.skip(bytes("3\n4\n5"));
    lines.add(bytes("six\n"));
    assert.deepEqual([lines.first, lines.end, lines.at(4)], [4, 5, "six"]);
  });
});

describe("what a program sends stays text", () => {
  test("colours become classes, and end where they are reset", () => {
    assert.deepEqual(piecesOf("a \x1b[31mred\x1b[0m b"), [["a ", ""], ["red", "ink-red"], [" b", ""]]);
    assert.deepEqual(piecesOf("\x1b[1;92mok\x1b[22m, \x1b[39mplain"), [["ok", "ink-bright-green ink-bold"], [", ", "ink-bright-green"], ["plain", ""]]);
    assert.deepEqual(piecesOf("\x1b[3;4;7mall\x1b[23;24;27mnone"), [["all", "ink-italic ink-underlined ink-inverse"], ["none", ""]]);
  });
  test("of 256 colours the first sixteen are shown, finer ones are left out with their numbers", () => {
    assert.deepEqual(piecesOf("\x1b[38;5;9mx"), [["x", "ink-bright-red"]]);
    assert.deepEqual(piecesOf("\x1b[38;2;1;2;3;1mx"), [["x", "ink-bold"]]);
    assert.deepEqual(piecesOf("\x1b[48;5;1;4mx"), [["x", "ink-underlined"]]);
  });
  test("other commands are left out, and titles with their text", () => {
    assert.deepEqual(piecesOf("\x1b]0;title\x07a\x1b[2Kb\x1b(Bc"), [["a", ""], ["b", ""], ["c", ""]]);
    assert.equal(portal.linePlain("\x1b]0;title\x07a\x1b[31mb"), "ab");
  });
  test("what cannot be seen is named", () => {
    assert.equal(portal.linePlain("a\u202eb"), "a⟨U+202E⟩b");
    assert.deepEqual(piecesOf("\x00\ufeff"), [["⟨U+0000⟩⟨U+FEFF⟩", ""]]);
    assert.equal(portal.linePlain("a\tb <b>é 漢</b>"), "a\tb <b>é 漢</b>");
  });
});

describe("finding words", () => {
  test("whatever their case, all of a line, and in what comes later", () => {
    const lines = linesOf("Error error\nfine\nERR");
    const finder = portal.logFinder(lines);
    let changes = 0;
    finder.onChange = () => (changes += 1);
    finder.look("err");
    assert.deepEqual([finder.total, finder.number], [2, 0], "the last line may still grow");
    lines.add(bytes("OR\n"));
    finder.more();
    assert.equal(finder.total, 3);
    assert.deepEqual(Array.from(finder.hitsOf(0), ({ start, end }) => [start, end]), [[0, 3], [6, 9]]);
    assert.deepEqual(Array.from(finder.hitsOf(1)), []);
    const before = changes;
    finder.look("err");
    assert.equal(changes, before, "the same words again change nothing");
    finder.look("");
    assert.equal(finder.total, 0);
  });
  test("it begins with what is in sight, and goes round", () => {
    const lines = linesOf(Array.from({ length: 400 }, (_, at) => `${at} of a log\n`).join(""));
    const finder = portal.logFinder(lines);
    finder.look("77 OF A LOG");
    assert.equal(finder.total, 4);
    assert.equal(finder.step(-1, 400).line, 377, "before the end the last one");
    assert.equal(finder.number, 4);
    assert.equal(finder.step(1, 0).line, 77);
    assert.equal(finder.step(-1, 0).line, 377);
    finder.look("77 of");
    assert.equal(finder.step(1, 100).line, 177, "the first after what is in sight");
    finder.look("77 of ");
    assert.equal(finder.step(-1, 100).line, 77, "the last before it");
    finder.look("nowhere");
    assert.equal(finder.step(1, 0), null);
  });
  test("it looks through colours, and stops at ten thousand", () => {
    const finder = portal.logFinder(linesOf("w\x1b[31mor\x1b[0mds\n"));
    finder.look("words");
    assert.deepEqual([finder.total, finder.hitsOf(0)[0].end], [1, 5]);
    const many = portal.logFinder(linesOf("a".repeat(19999).concat("\n")));
    many.look("a");
    assert.deepEqual([many.total, many.isCapped], [10000, true]);
  });
});

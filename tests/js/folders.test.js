// The files of folders: archives, the way to the file server, uploads that go on, and previews.
const { describe, test } = require("node:test");
const assert = require("node:assert/strict");
const { open, plain, settled } = require("./page");

const textOf = async (blob) => Buffer.from(await blob.arrayBuffer());
const field = (bytes, at, length) => bytes.subarray(at, at + length).toString().replace(/\0.*$/s, "");

describe("archives", () => {
  // The members of a tar archive, as any reader of POSIX.1-2001 takes them.
  const membersOf = (bytes) => {
    const found = [];
    let path = null;
    for (let at = 0; at < bytes.length && bytes[at]; ) {
      const size = Number.parseInt(field(bytes, at + 124, 12), 8);
      const kind = field(bytes, at + 156, 1);
      const sum = bytes.subarray(at, at + 512).reduce((all, byte, place) => all + (place >= 148 && place < 156 ? 32 : byte), 0);
      assert.equal(Number.parseInt(field(bytes, at + 148, 8), 8), sum, "the sum of a header");
      assert.equal(field(bytes, at + 257, 6), "ustar");
      const content = bytes.subarray(at + 512, at + 512 + size).toString();
      if (kind === "x") {
        const [, length, name] = /^(\d+) path=(.*)\n$/s.exec(content);
        assert.equal(Number(length), Buffer.byteLength(content), "the length of a record counts itself");
        path = name;
      } else {
        found.push({ path: path ?? field(bytes, at, 100), kind, content, mode: field(bytes, at + 100, 8), mtime: Number.parseInt(field(bytes, at + 136, 12), 8) });
        path = null;
      }
      at += 512 + Math.ceil(size / 512) * 512;
    }
    return found;
  };
  const page = open("", ["folder-tar"]);
  const tar = async (entries) => membersOf(await textOf(page.window.tarOf(entries)));

  test("have files with their times, and empty directories", async () => {
    const made = await tar([{ path: "a/b.txt", file: new File(["hello"], "b.txt", { lastModified: 1e12 + 999 }) }, { path: "empty/" }, { path: "c", file: new File([""], "c") }]);
    assert.deepEqual(made.map(({ path, kind, content, mode }) => [path, kind, content, mode]), [["a/b.txt", "0", "hello", "0000644"], ["empty/", "5", "", "0000755"], ["c", "0", "", "0000644"]]);
    assert.equal(made[0].mtime, 1e9);
  });
  test("have long and foreign names whole, whatever their length", async () => {
    const names = ["käse/漢字.txt", "x".repeat(100), ...Array.from({ length: 30 }, (_, more) => `é${"y".repeat(70 + more)}`)];
    const made = await tar(names.map((path) => ({ path, file: new File(["1"], "n") })));
    assert.deepEqual(made.map(({ path }) => path), names);
  });
  test("end with two empty blocks, and every part is padded", async () => {
    const bytes = await textOf(page.window.tarOf([{ path: "a", file: new File(["x".repeat(513)], "a") }]));
    assert.equal(bytes.length, 512 + 1024 + 1024);
    assert.ok(bytes.subarray(-1024).every((byte) => byte === 0));
  });
});

describe("the way to the files of a folder", () => {
  const html = '<div data-enter="/enter/" data-no-access="No access." data-signed-out="Signed out."><input name="csrfmiddlewaretoken" value="csrf"></div>';
  const begin = (answers = {}) => {
    const page = open(html, ["folder-pass"]);
    let tokens = 0;
    page.answer = (address, options) => {
      if (address === "/enter/") return answers.enter?.() ?? Response.json({ url: "http://files.test/enter", code: "once" });
      if (address === "http://files.test/enter") return Response.json({ token: `token-${(tokens += 1)}` });
      return answers.files(address, options);
    };
    return page;
  };
  test("a code of the portal is exchanged for a token, once for all", async () => {
    const page = begin({ files: () => new Response("here") });
    const { ask } = page.window.folderFiles;
    const answers = await Promise.all([ask("GET", "/text?path=a"), ask("GET", "/text?path=b")]);
    assert.equal(await answers[0].text(), "here");
    assert.deepEqual(page.fetched.map(({ method, address }) => `${method} ${address}`), [
      "POST /enter/", "POST http://files.test/enter", "GET http://files.test/text?path=a", "GET http://files.test/text?path=b",
    ]);
    assert.equal(page.fetched[0].headers["X-CSRFToken"], "csrf");
    assert.equal(page.fetched[1].body.get("code"), "once");
    assert.equal(page.fetched[2].headers.Authorization, "Bearer token-1");
  });
  test("a token that has ended is renewed once", async () => {
    const page = begin({ files: (_, { headers }) => new Response("", { status: headers.Authorization === "Bearer token-2" ? 200 : 401 }) });
    assert.equal((await page.window.folderFiles.ask("GET", "/a")).status, 200);
    const never = begin({ files: () => new Response("", { status: 401 }) });
    assert.equal((await never.window.folderFiles.ask("GET", "/a")).status, 401);
    assert.equal(never.fetched.filter(({ address }) => address === "/enter/").length, 2);
  });
  test("a refusal is named, and what is away for a moment is as a broken connection", async () => {
    for (const [status, message] of [[403, "No access."], [404, "No access."], [400, "Signed out."], [503, "network"], [429, "network"]]) {
      const page = begin({ enter: () => new Response("", { status }) });
      await assert.rejects(page.window.folderFiles.ask("GET", "/a"), { message }, String(status));
    }
    const { isPassing } = begin().window.folderFiles;
    assert.deepEqual([0, 408, 423, 429, 502, 503, 504, 507, 500, 409].filter(isPassing), [0, 408, 423, 429, 502, 503, 504]);
  });
  test("work that takes long is followed to its end, and stopped when nobody wants it", async () => {
    const told = [{ state: "running", progress: { bytes: 1 } }, { state: "running", progress: { bytes: 2 } }, { state: "done", result: { path: "b" } }];
    const page = begin({ files: () => Response.json(told.shift()) });
    const { follow } = page.window.folderFiles;
    const bytes = [];
    const progress = (one) => bytes.push(one.bytes);
    const first = Response.json({ operation: 7, state: "running", progress: { bytes: 0 } }, { status: 202 });
    assert.deepEqual(plain(await follow(first, { progress })), { path: "b" });
    assert.deepEqual(bytes, [0, 1, 2]);
    assert.equal(page.fetched.at(-1).address, "http://files.test/operations/7");
    const stopped = begin({ files: (_, { method }) => Response.json({ state: method === "DELETE" ? "stopped" : "running" }) });
    const again = Response.json({ operation: 7, state: "running" }, { status: 202 });
    await assert.rejects(stopped.window.folderFiles.follow(again, { signal: AbortSignal.abort() }), { name: "AbortError" });
    const failed = begin({ files: () => Response.json({ state: "failed", error: { message: "disk full" } }) });
    await assert.rejects(failed.window.folderFiles.follow(Response.json({ operation: 7, state: "running" }, { status: 202 })), { message: "disk full" });
  });
  test("what is wrong is read from whichever answer", async () => {
    const { faultOf } = begin().window.folderFiles;
    assert.equal(await faultOf(Response.json({ message: "exists" })), "exists");
    assert.equal(await faultOf(Response.json({ detail: "forbidden" })), "forbidden");
    assert.equal(await faultOf(new Response("<html>", { status: 502 })), "502");
  });
});

const nameOf = (fault) => (fault.name === "AbortError" ? fault.name : fault.code || fault.name);

// A file server of tus: what has arrived, and what it does with the next requests.
const server = () => {
  const state = { there: 0, exists: true, creates: 0, sent: [], deleted: 0, next: [], settled: [], archives: [] };
  const answer = (status, headers = {}, body = "") => new Response(body || null, { status, headers });
  const ask = async (method, path, { headers = {}, body } = {}) => {
    if (method === "POST" && path === "/uploads") {
      state.creates += 1;
      state.metadata = headers["Upload-Metadata"];
      if (state.refuses) return Response.json(state.refuses, { status: 409 });
      return answer(201, { Location: "http://files.test/uploads/9" });
    }
    if (method === "HEAD") {
      if (state.taken) return answer(409);
      return state.exists ? answer(200, { "Upload-Offset": String(state.there) }) : answer(404);
    }
    if (method === "POST") {
      state.settled.push(JSON.parse(body));
      return answer(200, { "Upload-Offset": String(state.there) });
    }
    state.deleted += 1;
    return answer(204);
  };
  const send = async (method, path, { headers, body, progress, signal }) => {
    if (signal?.aborted) throw new DOMException("cancelled", "AbortError");
    const todo = state.next.shift();
    if (method === "PUT") {
      state.archives.push(path);
      if (todo === "cut") throw new state.TypeError("network");
      return { status: todo?.status ?? 200, responseText: JSON.stringify(todo?.said ?? { kept: [], refused: [] }) };
    }
    assert.equal(Number(headers["Upload-Offset"]), state.there, "it goes on where it stopped");
    const size = todo === "cut" ? 3 : body.size;
    state.sent.push(size);
    state.there += todo?.status ? 0 : size;
    progress(size);
    if (todo === "cut") throw new state.TypeError("network");
    if (todo?.status) return { status: todo.status, responseText: JSON.stringify(todo.said ?? {}), getResponseHeader: () => null };
    return { status: 204, responseText: "", getResponseHeader: () => String(state.there) };
  };
  const isPassing = (status) => status === 503;
  return Object.assign(state, { ask, send, isPassing });
};
const sending = (before = () => {}) => {
  const files = server();
  const page = open("", ["folder-tar", "folder-send"], {
    before: (made) => {
      made.window.folderFiles = files;
      made.run("Math").random = () => 0.5;
      files.TypeError = made.run("TypeError"); // a broken connection is one of the page
      before(made, files);
    },
  });
  page.files = files;
  page.file = new File(["0123456789"], "model.bin", { lastModified: 5 });
  page.log = [];
  page.controller = new page.window.AbortController();
  page.options = { signal: page.controller.signal, progress: (bytes) => page.log.push(bytes), paused: () => page.log.push("paused"), resumed: () => page.log.push("resumed") };
  page.remembered = () => page.window.localStorage.getItem("upload:f1:model.bin:10:5");
  page.send = (more = {}) => {
    page.done = page.window.folderSend.sendLarge("f1", "model.bin", page.file, { ...page.options, ...more }).then(() => "done", nameOf);
    return settled();
  };
  return page;
};
const KEY = "upload:f1:model.bin:10:5";

describe("a large upload", () => {
  test("is sent, and forgotten when it is there", async () => {
    const page = sending();
    await page.send();
    assert.equal(await page.done, "done");
    assert.deepEqual([page.files.sent, page.log.at(-1), page.remembered()], [[10], 10, null]);
    assert.equal(page.files.metadata, `path ${Buffer.from("model.bin").toString("base64")}`);
  });
  test("goes on after a break with what is missing, and waits longer each time", async () => {
    const page = sending();
    page.files.next.push("cut", "cut", { status: 503 });
    await page.send();
    assert.deepEqual([page.files.sent, page.log], [[3], [3, "paused"]]);
    assert.equal(page.remembered(), "/uploads/9", "after a reload it goes on, too");
    await page.pass(999);
    assert.equal(page.files.sent.length, 1);
    await page.pass(1);
    assert.deepEqual(page.files.sent, [3, 3]);
    await page.pass(1000);
    assert.deepEqual(page.files.sent, [3, 3, 4], "bytes arrived: patience began anew");
    await page.pass(1999);
    assert.equal(page.files.sent.length, 4, "the next is tried at once after a look");
    assert.equal(await page.done, "done");
  });
  test("of an earlier visit goes on where it stopped", async () => {
    const page = sending(({ window }, files) => {
      window.localStorage.setItem(KEY, "/uploads/9");
      files.there = 7;
    });
    await page.send();
    assert.equal(await page.done, "done");
    assert.deepEqual([page.files.sent, page.files.creates, page.log[0]], [[3], 0, "resumed"]);
  });
  test("that is gone begins anew", async () => {
    const page = sending(({ window }, files) => {
      window.localStorage.setItem(KEY, "/uploads/1");
      files.exists = false;
    });
    await page.send();
    assert.equal(await page.done, "done");
    assert.deepEqual([page.files.sent, page.files.creates], [[10], 1]);
  });
  test("whose name is taken keeps its bytes until that is settled", async () => {
    const page = sending();
    page.files.next.push({ status: 409, said: { code: "exists" } });
    await page.send();
    assert.equal(await page.done, "exists");
    assert.equal(page.remembered(), "/uploads/9");
    page.files.there = 10;
    await page.send({ answer: "both" });
    assert.equal(await page.done, "done");
    assert.deepEqual(page.files.settled, [{ overwrite: false, keep_both: true }]);
    assert.deepEqual([page.files.sent, page.files.creates], [[10], 1], "no byte is sent again");
  });
  test("that is cancelled or refused is let go of", async () => {
    const page = sending();
    page.files.next.push("cut");
    await page.send();
    page.controller.abort();
    assert.equal(await page.done, "AbortError");
    const refused = sending();
    refused.files.next.push({ status: 413, said: { code: "too-large" } });
    await refused.send();
    assert.equal(await refused.done, "too-large");
    assert.equal(refused.remembered(), null);
    const full = sending();
    full.files.next.push({ status: 507, said: { code: "quota" } });
    await full.send();
    assert.deepEqual([await full.done, full.remembered()], ["quota", "/uploads/9"]);
    full.window.folderSend.forgetLarge("f1", "model.bin", full.file);
    assert.deepEqual([full.remembered(), full.files.deleted], [null, 1]);
  });
});

describe("many small files", () => {
  const small = async (answer, next, entries = [{ path: "a", file: new File(["x"], "a") }]) => {
    const page = sending();
    page.files.next.push(...next);
    const done = page.window.folderSend.sendSmall(entries, { ...page.options, answer }).then((told) => plain(told), nameOf);
    await settled();
    await page.pass(2000);
    return [await done, page.files.archives];
  };
  test("go as one archive, which is sent again when the answer was lost", async () => {
    const kept = { kept: [{ path: "a", kind: "file" }], refused: [] };
    assert.deepEqual(await small(undefined, [{ said: kept }]), [kept, ["/archive?overwrite=never"]]);
    assert.deepEqual(await small("replace", ["cut"]), [{ kept: [], refused: [] }, Array(2).fill("/archive?overwrite=skip-equal")]);
    assert.deepEqual((await small("both", []))[1], ["/archive?overwrite=keep-both"]);
    assert.deepEqual(await small("both", [{ status: 403, said: { code: "forbidden" } }]), ["forbidden", ["/archive?overwrite=keep-both"]]);
  });
});

describe("previews", () => {
  const page = open("", ["folder-preview"], {
    before: ({ window }) => {
      window.URL.createObjectURL = (blob) => `blob:${blob.type}`;
    },
  });
  const words = { rows: "The first %n of %m rows.", output: "Output of cell %n" };
  const show = (path, text) => {
    page.document.body.replaceChildren(page.window.folderPreview(path, text, words) ?? "none");
    return page;
  };
  const hostile = "<img src=x onerror=alert(1)>";

  test("a notebook has its cells with numbers and output, and nothing in it becomes markup", () => {
    const outputs = [
      { output_type: "stream", name: "stdout", text: ["42\n"] }, { output_type: "display_data", data: { "image/png": btoa("png"), "text/html": hostile } },
      { output_type: "error", ename: "E", evalue: "x", traceback: ["\x1b[31mE\x1b[0m: x"] }, { output_type: "stream", name: "stderr", text: "warned" }, { output_type: "error", ename: "E", evalue: "y" },
    ];
    const cells = [{ cell_type: "markdown", source: ["# Training\n", hostile] }, { cell_type: "code", execution_count: 7, source: "print(40 + 2)", outputs }, { cell_type: "code", execution_count: null, source: [] }];
    show("train.ipynb", JSON.stringify({ cells }));
    assert.equal(page.find(".preview-prose").textContent, `# Training\n${hostile}`);
    assert.deepEqual(page.texts(".sub"), ["[7]", "[ ]"]);
    assert.equal(page.find(".preview-code").textContent, "print(40 + 2)");
    assert.deepEqual(page.texts(".preview-cell pre:not(.preview-code)"), ["42", "E: x", "warned", "E: y"]);
    assert.deepEqual(page.texts(".preview-bad"), ["E: x", "warned", "E: y"]);
    assert.deepEqual(page.all("img").map((one) => [one.src, one.alt]), [["blob:image/png", "Output of cell 2"]]);
  });
  test("a table has its first 500 rows, with fields in quotes", () => {
    const rows = Array.from({ length: 600 }, (_, number) => `${number},"a ""b"", ${number}"\r\n`).join("");
    show("runs.csv", `\ufeffrun,name\r\n${rows}`);
    assert.deepEqual(page.texts("th"), ["run", "name"]);
    assert.equal(page.all("tbody tr").length, 500);
    assert.deepEqual([...page.all("tbody tr")[3].children].map((one) => one.textContent), ["3", 'a "b", 3']);
    assert.equal(page.find(".pane-note").textContent, "The first 500 of 600 rows.");
    assert.equal(page.find("th").scope, "col");
  });
  test("separators are those of the file, and quotes hold ends of lines", () => {
    const cells = (path, text) => show(path, text).texts("td");
    assert.deepEqual(cells("a.tsv", 'h\ti\n1\t"2, x\n3"\n'), ["1", "2, x\n3"]);
    assert.deepEqual(cells("a.csv", "h;i\n1,5;2\n\n"), ["1,5", "2"]);
    assert.equal(show("a.csv", `${"h,".repeat(150)}\n${"1,".repeat(150)}`).all("td").length, 100);
  });
  test("what is not what its name says has none", () => {
    for (const [path, text] of [["a.ipynb", "no JSON"], ["a.ipynb", "{}"], ["a.csv", "one line"], ["a.txt", "a,b\n1,2"]]) {
      assert.equal(show(path, text).document.body.textContent, "none");
    }
  });
});

describe("files of a running session", () => {
  const begin = () => {
    const page = open('<div data-api="/api/sessions/s1/" data-not-text="It is no text."><input name="csrfmiddlewaretoken" value="csrf"></div>', ["home-files"]);
    page.ask = (...question) => page.window.folderFiles.ask(...question);
    return page;
  };
  test("what is asked of a folder's files is asked of the session", async () => {
    const page = begin();
    page.answer = () => new Response("text", { headers: { ETag: '"1"' } });
    const answer = await page.ask("GET", "/text?path=runs/a%20b.txt");
    assert.deepEqual([await answer.text(), answer.headers.get("ETag")], ["text", '"1"']);
    await page.ask("GET", "/search?path=&q=x");
    const image = await page.ask("GET", "/content?path=a.PNG&inline=1");
    assert.equal(image.headers.get("Content-Type"), "image/png");
    assert.equal((await page.ask("GET", "/content?path=a.svg")).headers.get("Content-Type"), "application/octet-stream");
    assert.deepEqual(page.fetched.map(({ address }) => address), ["/api/sessions/s1/files/runs/a%20b.txt", "/api/sessions/s1/search/?path=&q=x", "/api/sessions/s1/files/a.PNG", "/api/sessions/s1/files/a.svg"]);
  });
  test("bytes are no text, and a name that is taken is a condition not met", async () => {
    const page = begin();
    for (const bytes of [Uint8Array.of(0xff), Uint8Array.of(65, 0)]) {
      page.answer = () => new Response(bytes);
      const answer = await page.ask("GET", "/text?path=a");
      assert.deepEqual([answer.status, await answer.json()], [415, { message: "It is no text." }]);
    }
    page.answer = () => Response.json({ detail: "It exists." }, { status: 409 });
    const answer = await page.ask("PUT", "/text?path=a", { headers: { "If-None-Match": "*" }, body: "" });
    assert.deepEqual([answer.status, await answer.json(), page.fetched.at(-1).method], [412, { message: "It exists." }, "PUT"]);
  });

  // A request for each file: `answers` has a status, or none where the connection breaks.
  const uploads = (answers) => {
    const page = open("", ["home-send"], {
      before: ({ window }) => {
        window.folderFiles = { bytesAt: (path) => `/files/${path}`, csrf: () => "csrf" };
        window.XMLHttpRequest = class {
          upload = {};
          headers = {};
          open(_, address) {
            this.address = address;
          }
          setRequestHeader(name, value) {
            this.headers[name] = value;
          }
          send() {
            page.sent.push([this.address, this.headers["If-None-Match"] ?? ""]);
            const [status, code] = answers.shift() ?? [201];
            Object.assign(this, { status, responseText: JSON.stringify({ code, detail: code }) });
            setImmediate(() => (status ? this.onload() : this.onerror()));
          }
        };
      },
    });
    page.sent = [];
    page.small = (entries, answer) => page.window.folderSend.sendSmall(entries.map((path) => ({ path, file: new File(["x"], path) })), { answer, signal: new page.window.AbortController().signal });
    return page;
  };
  test("a lost answer is asked for again as such, and counts as this file", async () => {
    const page = uploads([[0], [503]]);
    const done = page.small(["a.txt"]);
    for (let turn = 0; turn < 4; turn += 1) {
      await settled();
      await page.pass(2000);
    }
    assert.deepEqual(plain(await done), { kept: [], refused: [] });
    assert.deepEqual(page.sent, [["/files/a.txt", "*"], ["/files/a.txt?resent=1", "*"], ["/files/a.txt?resent=1", "*"]]);
  });
  test("what is kept and what is refused are told apart", async () => {
    const page = uploads([[409, "exists"], [403, "forbidden"]]);
    assert.deepEqual(plain(await page.small(["a", "b", "c"])), { kept: [{ path: "a", kind: "file" }], refused: [{ path: "b", code: "forbidden" }] });
    const replaced = uploads([]);
    await replaced.small(["a"], "replace");
    assert.deepEqual(replaced.sent, [["/files/a", ""]]);
  });
  test("beside another it gets the first free number before its ending, within the length of a name", async () => {
    const taken = [409, "exists"];
    for (const [path, third] of [["d.e/a.tar", "d.e/a (3).tar"], ["Makefile", "Makefile (3)"], [`${"é".repeat(125)}.txt`, `${"é".repeat(123)} (3).txt`]]) {
      const page = uploads([taken, taken]);
      assert.deepEqual(plain(await page.small([path], "both")).kept, []);
      assert.equal(page.sent[2][0], `/files/${third}`);
    }
  });
});

"""What running code in a kernel must do, whatever the backend. Subclass ``GuestContract``; it asks for the fixtures
``backend`` and ``kernel`` (the id of a running interactive kernel)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from backendai.agent.backends.base import Backend, KernelGone
from backendai.agent.gateway.guest_links import GuestLinks
from tests.patience import patient

ECHO = """
import socket, threading
def serve():
    while True:
        client, _ = server.accept()
        client.sendall(b"hello ")
        while data := client.recv(65536):
            client.sendall(data)
        client.close()
family = socket.AF_INET6 if ":" in "{0}" else socket.AF_INET
server = socket.create_server(("{0}", 0), family=family)
threading.Thread(target=serve, daemon=True).start()
print(server.getsockname()[1])
"""
ECHO_ON_SOCKET = """
import os, socket, tempfile, threading
def serve():
    while True:
        client, _ = server.accept()
        client.sendall(b"hello " + client.recv(65536))
        client.close()
server = socket.socket(socket.AF_UNIX)
server.bind(tempfile.gettempdir() + "/app.sock")
server.listen()
threading.Thread(target=serve, daemon=True).start()
print(server.getsockname())
"""


class Asker:
    """Asks the guest of one kernel, over one set of links."""

    def __init__(self, backend: Backend, kernel: UUID) -> None:
        self.backend, self.links, self.kernel = backend, GuestLinks(backend.guests), kernel

    def play(self, walk: Callable[[], Awaitable[object]]) -> None:
        """Let the walk happen, and close the links in its event loop. Sockets that nobody closes would keep the guest
        until they are collected as garbage, and it would not dial to the links of the next test."""

        async def whole() -> None:
            try:
                await walk()
            finally:
                self.links.close()
                self.links = GuestLinks(self.backend.guests)

        asyncio.run(whole())

    async def completions(self, code: str) -> list[str]:
        """Return what completes the code, however long the interpreter is busy."""
        async with asyncio.timeout(patient(60)):
            while (found := await self.ask("complete", code=code))["status"] == "busy":
                await asyncio.sleep(0.1)
        assert found["status"] == "ok"
        return list(found["matches"])

    async def ask(self, op: str, **order: Any) -> dict[str, Any]:
        reader, writer = await self.links.open(self.kernel)
        writer.write(json.dumps({"op": op, **order}).encode() + b"\n")
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return json.loads(answer)

    async def echo(self, data: bytes, **order: Any) -> bytes:
        """Return what comes from a port of the kernel after this was sent."""
        reader, writer = await self.links.open(self.kernel)
        writer.write(json.dumps({"op": "dial", **order}).encode() + b"\n")
        assert await asyncio.wait_for(reader.readline(), patient(10)) == b"{}\n"
        writer.write(b"\n" + data)
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), patient(20))
        writer.close()
        return answer

    async def run(self, code: str, **order: Any) -> dict[str, Any]:
        """Return the run, with all items, when it has ended or asks for something."""
        told = await self.ask("run", code=code, **{"wait": 20, **order})
        while told["state"] not in ("FINISHED", "LOST", "CANCELLED", "WAITING_INPUT"):
            told = await self.ask("read", run_id=told["run_id"], after=told["end"], wait=20)
        return await self.whole(told["run_id"])

    async def whole(self, run_id: str) -> dict[str, Any]:
        """Return the run with all items."""
        told = await self.ask("read", run_id=run_id)
        items = told["items"]
        while told["offset"] < told["end"]:
            told = await self.ask("read", run_id=run_id, after=told["offset"])
            items += told["items"]
        return {**told, "items": items}

    async def until(self, run_id: str, *states: str) -> dict[str, Any]:
        async with asyncio.timeout(60):
            while (told := await self.ask("read", run_id=run_id))["state"] not in states:
                await asyncio.sleep(0.02)
        return told

    async def until_works(self, kernels: set[UUID]) -> None:
        async with asyncio.timeout(patient(20)):
            while self.links.working() != kernels:
                await asyncio.sleep(0.05)


def text_of(told: dict[str, Any], kind: str = "stdout") -> str:
    return "".join(item.get("text", "") for item in told["items"] if item["type"] == kind)


def result_of(told: dict[str, Any]) -> list[str]:
    return [item["data"] for item in told["items"] if item.get("mime") == "text/plain"]


class GuestContract:
    """``sleeps`` is code that takes longer than a test."""

    sleeps = "import time; time.sleep(600)"

    @pytest.fixture
    def asker(self, backend: Backend, kernel: UUID) -> Asker:
        return Asker(backend, kernel)

    def test_it_prints_and_tells_results_and_exit_codes(self, asker: Asker) -> None:
        async def walk() -> None:
            printed = await asker.run("print(6*7)")
            assert (printed["state"], printed["exit_code"], text_of(printed)) == ("FINISHED", 0, "42\n")
            assert result_of(await asker.run("1+1")) == ["2"]
            assert (await asker.run("exit(3)"))["exit_code"] == 3

        asker.play(walk)

    def test_the_same_run_id_is_the_same_run(self, asker: Asker) -> None:
        async def walk() -> None:
            first = await asker.run("print(1)", run_id="once")
            again = await asker.run("print(2)", run_id="once")
            assert text_of(first) == text_of(again) == "1\n"
            assert first["created_at"] == again["created_at"]

        asker.play(walk)

    def test_it_asks_and_takes_the_answer(self, asker: Asker) -> None:
        async def walk() -> None:
            told = await asker.run("input('name? ')")
            assert (told["state"], told["prompt"]) == ("WAITING_INPUT", "name? ")
            await asker.ask("input", run_id=told["run_id"], text="Bo")
            ended = await asker.until(told["run_id"], "FINISHED")
            assert (result_of(ended), text_of(ended)) == (["'Bo'"], "name? Bo\n")
            refused = await asker.ask("input", run_id=told["run_id"], text="Bo")
            assert refused["error"]["code"] == "no-question"

        asker.play(walk)

    def test_a_reader_waits_beside_a_question_until_it_is_answered(self, asker: Asker) -> None:
        async def walk() -> None:
            told = await asker.run("input('name? ')")
            known = {"run_id": told["run_id"], "after": told["end"], "state": "WAITING_INPUT"}
            assert (await asker.ask("read", **known, wait=0))["items"] == []
            waiting = asyncio.create_task(asker.ask("read", **known, wait=20))
            await asyncio.wait([waiting], timeout=0.3)
            assert not waiting.done()
            await asker.ask("input", run_id=told["run_id"], text="Bo")
            assert (await waiting)["state"] != "WAITING_INPUT" or result_of(await waiting)

        asker.play(walk)

    def test_code_is_told_whole_and_older_runs_page_by_page(self, asker: Asker) -> None:
        async def walk() -> None:
            code = "1\n" + "\n" * 100_000 + "2"
            await asker.run(code, run_id="long", context="other", language="")
            for number in range(5):
                await asker.run(str(number), run_id=f"n{number}")
            listed = await asker.ask("runs", limit=3)
            assert [run["run_id"] for run in listed["runs"]] == ["n2", "n3", "n4"]
            older = await asker.ask("runs", before=listed["before"])
            assert [run["run_id"] for run in older["runs"]][-3:] == ["long", "n0", "n1"]
            assert older["before"] is None
            first = older["runs"][-3]
            assert (len(first["code"]) < len(code), first["code_length"]) == (True, len(code))
            assert (await asker.ask("code", run_id="long"))["code"] == code

        asker.play(walk)

    def test_a_deleted_context_takes_its_runs_along_if_asked_to(self, asker: Asker) -> None:
        async def walk() -> None:
            assert (await asker.ask("languages"))["languages"]
            kept = await asker.run("1", context="kept")
            await asker.ask("delete-context", context="kept")
            assert (await asker.ask("read", run_id=kept["run_id"]))["state"] == "FINISHED"
            await asker.ask("delete-context", context="kept", runs=True)
            assert (await asker.ask("read", run_id=kept["run_id"]))["error"]["code"] == "no-such-run"
            assert (await asker.ask("delete-context", context="kept"))["error"]["code"] == "no-such-context"

        asker.play(walk)

    def test_it_interrupts_and_times_out_and_goes_on(self, asker: Asker) -> None:
        async def walk() -> None:
            await asker.run("1")
            told = await asker.ask("run", code=self.sleeps)
            await asker.until(told["run_id"], "RUNNING")
            await asyncio.sleep(0.2)
            assert (await asker.ask("interrupt", run_id=told["run_id"]))["state"] == "INTERRUPTING"
            ended = await asker.until(told["run_id"], "FINISHED")
            assert (ended["reason"], ended["exit_code"]) == ("interrupted", 130)
            late = await asker.run(self.sleeps, timeout=0.5)
            assert (late["state"], late["reason"]) == ("FINISHED", "exec-timeout")
            assert result_of(await asker.run("2+2")) == ["4"]

        asker.play(walk)

    def test_runs_wait_for_each_other_and_can_be_withdrawn(self, asker: Asker) -> None:
        async def walk() -> None:
            await asker.run("1")
            first = await asker.ask("run", code=self.sleeps)
            second = await asker.ask("run", code="print(2)")
            third = await asker.ask("run", code="print(3)")
            assert (second["state"], second["queue_position"], third["queue_position"]) == ("QUEUED", 1, 2)
            assert (await asker.ask("withdraw", run_id=second["run_id"]))["state"] == "CANCELLED"
            await asker.ask("restart")
            assert (await asker.until(first["run_id"], "LOST"))["reason"] == "restarted"
            assert (await asker.until(third["run_id"], "CANCELLED"))["reason"] == "restarted"
            assert result_of(await asker.run("2+2")) == ["4"]

        asker.play(walk)

    def test_readers_go_on_where_they_were(self, asker: Asker) -> None:
        async def walk() -> None:
            told = await asker.run("print(1)\nprint(2)")
            half = await asker.ask("read", run_id=told["run_id"], after=told["end"])
            assert (half["items"], half["offset"]) == ([], told["end"])
            asker.links.close()
            asker.links = GuestLinks(asker.backend.guests)  # as after a restart of the agent
            assert text_of(await asker.ask("read", run_id=told["run_id"], after=0)) == "1\n2\n"

        asker.play(walk)

    def test_it_follows_what_happens(self, asker: Asker) -> None:
        async def walk() -> None:
            reader, writer = await asker.links.open(asker.kernel)
            writer.write(b'{"op": "follow"}\n')
            await asyncio.sleep(0.1)
            ran = asyncio.create_task(asker.run("print(6*7)", run_id="seen"))
            states, text = [], ""
            async with asyncio.timeout(60):
                while "FINISHED" not in states:
                    if line := (await reader.readline()).strip():
                        told = json.loads(line)
                        states.append(told["state"])
                        text += text_of(told)
            await ran
            writer.close()
            assert text == "42\n"

        asker.play(walk)

    def test_what_runs_is_known_without_a_reader_but_not_what_waits_for_a_person(self, asker: Asker) -> None:
        async def walk() -> None:
            asks = await asker.run('input("?")')
            await asyncio.sleep(1.2)
            assert (asks["state"], asker.links.working()) == ("WAITING_INPUT", set())
            await asker.ask("input", run_id=asks["run_id"], text="x")
            run = await asker.ask("run", code=self.sleeps)
            await asker.until_works({asker.kernel})
            await asker.ask("interrupt", run_id=run["run_id"])
            await asker.until_works(set())

        asker.play(walk)

    def test_it_refuses_what_it_cannot_read(self, asker: Asker) -> None:
        async def walk() -> None:
            codes = [
                (await asker.ask("read", run_id="../../etc"))["error"]["code"],
                (await asker.ask("run", code="1", run_id="a/b"))["error"]["code"],
                (await asker.ask("run", code="1", mode="odd"))["error"]["code"],
                (await asker.ask("run", code="1" * (2**20 + 1)))["error"]["code"],
                (await asker.ask("nonsense"))["error"]["code"],
                (await asker.ask("run", code="1", timeout="soon"))["error"]["code"],
            ]
            assert codes == ["no-such-run", "bad-name", "bad-mode", "code-too-large", "bad-request", "bad-request"]

        asker.play(walk)

    def test_there_is_no_guest_in_a_kernel_that_is_gone(self, backend: Backend) -> None:
        async def walk() -> None:
            with pytest.raises(KernelGone):
                await GuestLinks(backend.guests).open(uuid4())

        asyncio.run(walk())


class ProgramContract(GuestContract):
    """What holds where the guest is a program in the kernel, with files and commands. Servers may listen at all of
    ``addresses``."""

    addresses: tuple[str, ...] = ("127.0.0.1", "0.0.0.0")

    def test_batch_builds_and_runs_commands(self, asker: Asker) -> None:
        async def walk() -> None:
            told = await asker.run("", mode="batch", options={"build": "echo made >x", "exec": "cat x; exit 3"})
            assert (told["state"], told["exit_code"], text_of(told)) == ("FINISHED", 3, "made\n")
            failed = await asker.run("echo no", mode="batch", options={"build": "false"})
            assert (failed["exit_code"], failed["reason"], text_of(failed)) == (127, "build-failed", "")
            wanted = {"mode": "batch", "options": {"clean": "true", "build": "echo b; exit 1", "exec": "echo e"}}
            parts = [await asker.ask("run", code="", run_id="parts", wait=20, takes=True, **wanted)]
            while (
                parts[-1]["state"] != "FINISHED" or parts[-1]["offset"] < parts[-1]["end"] or "ended_step" in parts[-1]
            ):
                parts.append(await asker.ask("take", run_id="parts", wait=20))
            steps = [(part.get("ended_step", {}).get("name"), text_of(part)) for part in parts]
            assert steps == [("clean", ""), ("build", "b\n"), (None, "")], parts
            assert [part["ended_step"]["exit_code"] for part in parts[:2]] == [0, 1]
            answered = await asker.ask("run", code="read line; echo got $line", mode="batch")
            await asker.until(answered["run_id"], "RUNNING")
            await asyncio.sleep(0.3)
            await asker.ask("input", run_id=answered["run_id"], text="this")
            assert text_of(await asker.until(answered["run_id"], "FINISHED")) == "got this\n"

        asker.play(walk)

    def test_servers_on_the_loopback_and_on_sockets_are_reached_from_inside(self, asker: Asker) -> None:
        async def walk() -> None:
            for address in self.addresses:
                port = int(text_of(await asker.run(ECHO.format(address))))
                assert await asker.echo(b"x" * 2**20, port=port) == b"hello " + b"x" * 2**20
            path = text_of(await asker.run(ECHO_ON_SOCKET)).strip()
            assert await asker.echo(b"here", port=9, socket=path) == b"hello here"
            nothing = await asker.ask("dial", port=9, socket="/nowhere")
            assert nothing["error"]["code"] == "app-not-listening"

        asker.play(walk)

    def test_an_interpreter_that_ends_is_told_and_what_waited_is_not_run(self, asker: Asker) -> None:
        async def walk() -> None:
            first = await asker.run("import os; input(); os._exit(7)")
            second = await asker.ask("run", code="print('never')")
            await asker.ask("input", run_id=first["run_id"], text="")
            assert (await asker.until(first["run_id"], "LOST"))["reason"] == "interpreter-ended"
            cancelled = await asker.until(second["run_id"], "CANCELLED")
            assert (cancelled["reason"], cancelled["items"]) == ("interpreter-lost", [])
            assert text_of(await asker.run("print('new')")) == "new\n"

        asker.play(walk)

    def test_output_of_programs_belongs_to_the_run(self, asker: Asker) -> None:
        async def walk() -> None:
            told = await asker.run("import os\nfor n in range(3): os.system(f'echo {n}; echo e{n} >&2')")
            assert (text_of(told), text_of(told, "stderr")) == ("0\n1\n2\n", "e0\ne1\ne2\n")

        asker.play(walk)

    def test_another_agent_hears_of_what_runs_without_a_question(self, asker: Asker) -> None:
        async def walk() -> None:
            run = await asker.ask("run", code=self.sleeps)
            asker.links.close()
            asker.links = GuestLinks(asker.backend.guests)
            await asker.links.take_up({asker.kernel, uuid4()})
            await asker.until_works({asker.kernel})
            await asker.ask("interrupt", run_id=run["run_id"])
            asker.links.close()

        asker.play(walk)

    def test_files_go_in_and_out_whole(self, asker: Asker) -> None:
        async def walk() -> None:
            content = bytes(range(256)) * 4096
            reader, writer = await asker.links.open(asker.kernel)
            writer.write(b'{"op": "put", "path": "new folder/data.bin"}\n')
            for start in range(0, len(content), 65536):
                piece = content[start : start + 65536]
                writer.write(len(piece).to_bytes(4, "big") + piece)
            writer.write(bytes(4))
            assert json.loads(await reader.readline())["size"] == len(content)
            reader, writer = await asker.links.open(asker.kernel)
            writer.write(b'{"op": "get", "path": "new folder/data.bin"}\n')
            assert json.loads(await reader.readline())["size"] == len(content)
            assert await reader.read() == content
            assert text_of(await asker.run("import os; print(os.stat('new folder/data.bin').st_uid == os.getuid())"))
            assert (await asker.ask("delete", path="new folder")) == {"deleted": 1}
            assert (await asker.ask("get", path="new folder"))["error"]["code"] == "no-such-file"

        asker.play(walk)

    def test_directories_are_listed_and_changed_by_the_session_user(self, asker: Asker) -> None:
        async def walk() -> None:
            made = await asker.ask("mkdir", path="browse")
            assert (made["name"], made["kind"]) == ("browse", "directory")
            await asker.run(
                "import os; print(os.stat('browse').st_uid == os.getuid()); open('browse/a.txt', 'w').write('7')"
            )
            listed = await asker.ask("list", path="browse", limit=10)
            assert [(one["name"], one["size"]) for one in listed["entries"]] == [("a.txt", 1)]
            assert (await asker.ask("rename", source="browse/a.txt", target="browse/b.txt"))["name"] == "b.txt"
            assert (await asker.ask("stat", path="browse/a.txt"))["error"]["code"] == "no-such-file"
            assert text_of(await asker.run("print(open('browse/b.txt').read())")) == "7\n"
            assert (await asker.ask("find", path="", q="B.TX"))["entries"][0]["path"] == "browse/b.txt"
            assert (await asker.ask("remove", paths=["browse"])) == {"deleted": 1}

        asker.play(walk)

    def test_a_cut_upload_leaves_nothing(self, asker: Asker) -> None:
        async def walk() -> None:
            reader, writer = await asker.links.open(asker.kernel)
            writer.write(b'{"op": "put", "path": "half"}\n' + (100).to_bytes(4, "big") + b"ten bytes.")
            writer.write_eof()
            assert json.loads(await reader.readline())["error"]["code"] == "upload-cut"
            listed = await asker.ask("get", path="")
            assert [entry["name"] for entry in listed["entries"] if "half" in entry["name"]] == []
            assert (await asker.ask("get", path="../x"))["error"]["code"] == "bad-path"

        asker.play(walk)

    def test_a_large_answer_in_any_alphabet_is_cut_and_the_variables_stay(self, asker: Asker) -> None:
        async def walk() -> None:
            await asker.run("kept = 7")
            told = await asker.run("'\uac00' * 12_000_000")
            assert (told["state"], told["exit_code"]) == ("FINISHED", 0), told
            [shown, gap] = told["items"]
            assert len(shown["data"].encode()) + 3 >= 2**20 and gap["bytes"] > 30_000_000
            page = await asker.run("class H:\n    def _repr_html_(self): return '\uac00' * 3_000_000\nH()")
            assert "was left out" in text_of(page, "log"), page
            assert result_of(await asker.run("kept")) == ["7"]

        asker.play(walk)

    def test_printed_letters_of_any_alphabet_are_read_in_answers_of_a_mebibyte(self, asker: Asker) -> None:
        async def walk() -> None:
            told = await asker.ask("run", code="print('\uac00' * 2_000_000)")
            text, after = "", 0
            while told["state"] not in ("FINISHED", "LOST") or after < told["end"]:
                told = await asker.ask("read", run_id=told["run_id"], after=after, wait=20)
                assert len(json.dumps(told)) < 4 * 2**20
                text, after = text + text_of(told), told["offset"]
            assert text == "\uac00" * 2_000_000 + "\n"

        asker.play(walk)

    def test_too_much_output_is_cut_in_the_middle_and_says_so(self, asker: Asker) -> None:
        async def walk() -> None:
            told = await asker.run("print('first'); import sys; sys.stdout.write('x' * 40_000_000); print('last')")
            gaps, text = [item for item in told["items"] if item["type"] == "gap"], text_of(told)
            assert [gap["reason"] for gap in gaps] == ["too-much-output"], told
            assert gaps[0]["bytes"] > 20_000_000
            assert text.startswith("first\n") and text.endswith("last\n") and len(text) < 17 * 2**20

        asker.play(walk)

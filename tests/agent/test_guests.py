"""Running code in simulated and native kernels: the contract."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from backendai.agent.backends.base import Backend
from backendai.agent.backends.native import start as process_start
from backendai.agent.backends.native.backend import IMAGE, NativeBackend
from backendai.agent.backends.native.sandbox import Isolation
from backendai.agent.backends.simulated.backend import SimulatedBackend, SimulatedDurations
from backendai.base.core.slots import Slots
from tests.agent.guest_contract import Asker, GuestContract, ProgramContract, result_of, text_of
from tests.agent.interpreters import ensure_jupyter_environments
from tests.agent.specs import make_spec
from tests.agent.test_process_backend import data, isolation  # noqa: F401
from tests.patience import patient


@pytest.fixture
def kernel(backend: Backend) -> Iterator[UUID]:
    slots = {"cpu": "1", "mem": str(2**30)}
    spec = make_spec(slots=slots, image=IMAGE if isinstance(backend, NativeBackend) else "simulated/python")
    backend.start(spec)
    yield spec.kernel_id
    backend.remove(spec.kernel_id)


class TestSimulated(GuestContract):
    sleeps = "sleep 60"

    @pytest.fixture
    def backend(self) -> Iterator[Backend]:
        capacity = Slots({"cpu": 4000, "mem": 2**40})
        backend = SimulatedBackend(deployment="test", capacity=capacity, pace=SimulatedDurations(time_scale=0))
        yield backend
        backend.close()


class TestNative(ProgramContract):
    addresses = ("127.0.0.1", "0.0.0.0", "::1", "::")

    @pytest.fixture
    def backend(self, data: Path, isolation: Isolation) -> Iterator[Backend]:  # noqa: F811
        assert process_start is not None
        backend = NativeBackend(data / "agent", deployment="test", agent="n1")
        yield backend
        backend.close()

    def test_ports_of_others_on_this_machine_are_not_opened(self, asker: Asker) -> None:
        async def walk() -> None:
            with socket.create_server(("127.0.0.1", 0)) as foreign:
                refused = await asker.ask("dial", port=foreign.getsockname()[1])
            assert refused["error"]["code"] == "app-not-listening"

        asker.play(walk)

    def test_a_forged_end_ends_nothing(self, asker: Asker) -> None:
        forge = (
            "import os\nfor fd in range(3, 64):\n"
            "    for said in ('{}', '{\"done\": true, \"exit_code\": {}}', '{\"done\": true}'):\n"
            "        try: os.write(fd, said.encode() + b'\\n')\n"
            "        except OSError: pass\n"
            "print('to the end')"
        )

        async def walk() -> None:
            told = await asker.run(forge)
            assert (told["state"], text_of(told)) == ("FINISHED", "to the end\n"), told
            assert result_of(await asker.run("2+2")) == ["4"]

        asker.play(walk)

    @pytest.mark.long
    def test_a_million_flushed_lines_arrive(self, asker: Asker) -> None:
        async def walk() -> None:
            told = await asker.ask("run", code="for n in range(1_000_000): print('line', n, flush=True)")
            text, after = [], 0
            while told["state"] not in ("FINISHED", "LOST") or after < told["end"]:
                told = await asker.ask("read", run_id=told["run_id"], after=after, wait=20)
                text.append(text_of(told))
                after = told["offset"]
            assert "".join(text) == "".join(f"line {n}\n" for n in range(1_000_000))

        asker.play(walk)


def test_a_new_interpreter_is_that_of_an_environment_that_was_built_after_the_guests_start(
    data: Path,  # noqa: F811
    isolation: Isolation,  # noqa: F811
) -> None:
    environments = data / "environments"
    backend = NativeBackend(data / "agent", deployment="test", agent="n1", environments=environments)
    spec = make_spec(slots={"cpu": "1", "mem": str(2**28)}, image=IMAGE)
    backend.start(spec)
    asker, code = Asker(backend, spec.kernel_id), "import os; print(os.environ.get('BUILT'))"

    async def walk() -> None:
        assert text_of(await asker.run(code)) == "None\n"
        programs = environments / "python" / "bin"
        programs.mkdir(parents=True)
        python = programs / "python3"
        python.write_text('#!/bin/sh\nexport BUILT=yes PATH="${PATH#*:}"\nexec python3 "$@"\n')
        python.chmod(0o755)
        await asker.ask("restart", context="main")
        assert text_of(await asker.run(code)) == "yes\n"

    try:
        asker.play(walk)
    finally:
        backend.remove(spec.kernel_id)
        backend.close()


def test_code_remote_shells_and_sftp_start_where_the_session_starts(
    data: Path,  # noqa: F811
    isolation: Isolation,  # noqa: F811
) -> None:
    backend = NativeBackend(data / "agent", deployment="test", agent="n1")
    spec = make_spec(slots={"cpu": "1", "mem": str(2**28)}, image=IMAGE, start_in="/usr")
    backend.start(spec)
    asker = Asker(backend, spec.kernel_id)

    async def walk() -> None:
        assert text_of(await asker.run("import os; print(os.getcwd())")) == "/usr\n"
        reader, writer = await asker.links.open(spec.kernel_id)
        writer.write(json.dumps({"op": "exec", "command": "pwd"}).encode() + b"\n")
        assert b"/usr\n" in await reader.readuntil(b"/usr\n")
        writer.close()
        reader, writer = await asker.links.open(spec.kernel_id)
        writer.write(b'{"op": "sftp"}\n')
        assert await reader.readline() == b"{}\n"
        for packet in (struct.pack(">BI", 1, 3), struct.pack(">BII1s", 16, 7, 1, b".")):  # INIT, REALPATH
            writer.write(struct.pack(">I", len(packet)) + packet)
            answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        assert b"/usr" in answer
        writer.close()

    try:
        asker.play(walk)
    finally:
        backend.remove(spec.kernel_id)
        backend.close()


@pytest.mark.ci
class TestJupyter(ProgramContract):
    """The same with kernels of Jupyter. All tests share one session, whose interpreter is started once."""

    @pytest.fixture(scope="class")
    def backend(self) -> Iterator[Backend]:
        folder = Path(tempfile.mkdtemp(prefix="jupyter-guests-", dir="/tmp"))
        folder.chmod(0o755)
        environments = ensure_jupyter_environments()
        backend = NativeBackend(folder / "agent", deployment="test", agent="n1", environments=environments)
        yield backend
        backend.close()
        shutil.rmtree(folder)

    @pytest.fixture(scope="class")
    def kernel(self, backend: Backend) -> Iterator[UUID]:
        spec = make_spec(slots={"cpu": "1", "mem": str(2**30)}, image=IMAGE)
        backend.start(spec)
        yield spec.kernel_id
        backend.remove(spec.kernel_id)

    def test_ipython_runs_the_code(self, asker: Asker) -> None:
        async def walk() -> None:
            told = await asker.run("%precision 3\nimport IPython; IPython.version_info[0] >= 8")
            assert result_of(told)[-1] == "True", told
            [context] = [one for one in (await asker.ask("runs"))["contexts"] if one["name"] == "main"]
            assert context["interpreter"]["kind"] == "jupyter"

        asker.play(walk)

    def test_exits_end_a_run_and_keep_the_interpreter(self, asker: Asker) -> None:
        async def walk() -> None:
            await asker.run("kept = 'still here'")
            codes = {"exit(3)": 3, "quit(4)": 4, "exit()": 0, "exit": 0, "import sys; sys.exit(5)": 5, "exit('why')": 1}
            for code, exit_code in codes.items():
                told = await asker.run(code)
                assert (told["state"], told["exit_code"]) == ("FINISHED", exit_code), (code, told)
                says = "why\n" if "why" in code else ""
                assert (text_of(told), text_of(told, "stderr")) == ("", says), (code, told)
            assert result_of(await asker.run("kept")) == ["'still here'"]

        asker.play(walk)

    def test_passwords_are_asked_for_and_completions_found(self, asker: Asker) -> None:
        async def walk() -> None:
            told = await asker.run("import getpass; len(getpass.getpass('Key: '))")
            assert (told["state"], told["prompt"], told["password"]) == ("WAITING_INPUT", "Key: ", True)
            await asker.ask("input", run_id=told["run_id"], text="12345")
            ended = await asker.until(told["run_id"], "FINISHED")
            assert (result_of(ended), text_of(ended)) == (["5"], "Key: ········\n")
            await asker.run("thermometer = 7")
            assert await asker.completions("thermo") == ["thermometer"]

        asker.play(walk)

    def test_updated_displays_keep_their_id(self, asker: Asker) -> None:
        async def walk() -> None:
            code = "from IPython.display import display\nshown = display(1, display_id=True)\nshown.update(2)"
            first, second = (await asker.run(code))["items"]
            assert first["display"] == second["display"]
            assert (first.get("updates"), second.get("updates")) == (None, True)

        asker.play(walk)

    def test_a_killed_runner_leaves_no_process_of_its_interpreter(self, asker: Asker) -> None:
        async def walk() -> None:
            forks = "import os, time\nchild = os.fork()\nif not child: time.sleep(600)\nprint(child)"
            child = int(text_of(await asker.run(forks)))
            lost = await asker.run("import os, time; os.kill(os.getppid(), 9); time.sleep(60)")
            assert (lost["state"], lost["reason"]) == ("LOST", "interpreter-ended"), lost
            looks = f"import os\ntry: os.kill({child}, 0)\nexcept ProcessLookupError: print('gone')"
            async with asyncio.timeout(patient(20)):
                while text_of(await asker.run(looks)) != "gone\n":  # until it is reaped
                    await asyncio.sleep(0.05)

        asker.play(walk)

    def test_contexts_have_languages_and_variables_of_their_own(self, asker: Asker) -> None:
        async def walk() -> None:
            known = (await asker.ask("languages"))["languages"]
            assert [one["name"] for one in known] == ["python3", "bash"] and known[1]["title"] == "Bash"
            await asker.run("here = 1")
            other = await asker.run("print('here' in globals())", context="second")
            assert text_of(other) == "False\n"
            bash = await asker.run("greeting=hello; echo $greeting $((6*7))", context="shell", language="bash")
            assert (bash["language"], text_of(bash)) == ("bash", "hello 42\n"), bash
            assert text_of(await asker.run("echo $greeting", context="shell")) == "hello\n"
            unknown = await asker.run("1", context="odd", language="cobol")
            assert (unknown["state"], unknown["reason"]) == ("LOST", "interpreter-failed")
            assert "bash, python3" in text_of(unknown, "log")
            for name in ("second", "shell", "odd"):
                await asker.ask("delete-context", context=name)

        asker.play(walk)

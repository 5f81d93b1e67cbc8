"""Code and guests that want to do harm: every run ends with a state, the next one works, and the agent stays whole."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from backendai.agent.backends.guest_host import GuestPlace
from backendai.agent.backends.native.backend import IMAGE, NativeBackend
from backendai.agent.gateway.guest_links import SOCKET, GuestLinks, GuestMissing
from tests.agent.guest_contract import Asker, text_of
from tests.agent.interpreters import ensure_jupyter_environments
from tests.agent.specs import make_spec
from tests.patience import patient

pytestmark = [pytest.mark.long]
ENDED = ("FINISHED", "LOST", "CANCELLED")
EVERY_FILE = "import os\nfor fd in range(3, 64):\n    try: {}\n    except OSError: pass"
CODE = {
    "much output": "print('x' * 30_000_000)",
    "a large result": "'x' * 100_000_000",
    "a large page": "class H:\n    def _repr_html_(self): return 'x' * 9_000_000\nH()",
    "no picture": "class P:\n    def _repr_png_(self): return b'no png' * 10\nP()",
    "a method that is no method": "class P:\n    _repr_html_ = 5\nP()",
    "a representation that fails": "class R:\n    def __repr__(self): raise ValueError\nR()",
    "an error without words": "class E(Exception):\n    def __str__(self): raise E\nraise E",
    "an error of the base": "raise BaseException('all')",
    "a generator's end": "raise GeneratorExit",
    "an exit with a text": "raise SystemExit('bye')",
    "an exit with a large number": "raise SystemExit(2**70)",
    "an exit with an object": "raise SystemExit(object())",
    "an exit of the process": "import os; os._exit(0)",
    "a kill": "import os; os.kill(os.getpid(), 9)",
    "a crash": "import ctypes; ctypes.string_at(0)",
    "a stop": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "an ignored interrupt": "import signal, time; signal.signal(2, signal.SIG_IGN)\nwhile True: time.sleep(1)",
    "a swallowed interrupt": "import time\nwhile True:\n    try: time.sleep(1)\n    except BaseException: pass",
    "an endless loop": "while True: pass",
    "endless questions": "while True: input('again? ')",
    "a child that comes back": "import os; os.fork()",
    "a tree of children": "import os\nfor n in range(6): os.fork()",
    "a child that holds the output": "import subprocess; subprocess.Popen(['sleep', '5'])",
    "a child that goes on printing": "import os; os.system('(for n in 1 2 3; do echo $n; sleep 0.2; done) &')",
    "a group of its own": "import os\ntry: os.setsid()\nexcept OSError: pass",
    "a closed output": "import sys; sys.stdout.close()",
    "a closed descriptor": "import os; os.close(1); os.close(2)",
    "all closed": "import os; os.closerange(0, 256)",
    "few descriptors": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)); print(1)",
    "a forged end": EVERY_FILE.format("os.write(fd, b'{\"done\": true, \"exit_code\": 0}\\n')"),
    "forged items": EVERY_FILE.format("os.write(fd, b'{\"item\": {\"type\": {}}}\\n{\"item\": 5}\\n')"),
    "a forged question": EVERY_FILE.format("os.write(fd, b'{\"ask\": {}, \"password\": []}\\n')"),
    "garbage": EVERY_FILE.format("os.write(fd, b'\\xff\\x00garbage\\n')"),
    "a list": EVERY_FILE.format("os.write(fd, b'[1, 2]\\n')"),
    "nested too deeply": EVERY_FILE.format("os.write(fd, b'[' * 100000 + b'\\n')"),
    "no line's end": EVERY_FILE.format("os.write(fd, b'x' * 100000)"),
    "half letters": "import os; os.write(1, b'\\xe2\\x82'); os.write(1, b'\\xff\\xfe')",
    "lone surrogates": "print('\\ud800')",
    "a surrogate as a result": "'\\ud800'",
    "nothing built in": "import builtins\nbuiltins.__dict__.clear()",
    "no modules": "import sys; sys.modules.clear()",
    "no hook": "import sys; del sys.displayhook",
    "no folder": "import os, tempfile; d = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)",
    "no journal": "import os; os.system('rm -r ${TMPDIR:-/tmp}/.backendai-runs/*/journal')",
    "too much memory": "bytearray(10**15)",
    "no end of calls": "def f(): f()\nf()",
    "no end of brackets": "(" * 50_000,
    "a zero in the code": "print(1)\0",
    "a thread that exits": "import threading, sys; t = threading.Thread(target=sys.exit); t.start(); t.join()",
    "a thread that asks": "import threading; t = threading.Thread(target=input); t.start(); t.join(0.2)",
    "output after the end": "import threading as t; t.Timer(0.3, print, ['late']).start()",
}  # fmt: skip


@pytest.fixture(scope="module", params=["plain", "jupyter"])
def kernel(request: pytest.FixtureRequest) -> Iterator[tuple[NativeBackend, UUID]]:
    folder = Path(tempfile.mkdtemp(prefix="hostile-", dir="/tmp"))
    folder.chmod(0o755)
    environments = ensure_jupyter_environments() if request.param == "jupyter" else None
    backend = NativeBackend(folder / "agent", deployment="test", agent="n1", environments=environments)
    spec = make_spec(image=IMAGE, slots={"cpu": "1", "mem": str(2 * 2**30)}, pids=256)
    backend.start(spec)
    yield backend, spec.kernel_id
    backend.remove(spec.kernel_id)
    backend.close()
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", CODE)
def test_a_run_ends_and_the_next_one_works(kernel: tuple[NativeBackend, UUID], name: str) -> None:
    asker = Asker(*kernel)

    async def walk() -> None:
        run_id = (await asker.ask("run", code=CODE[name], timeout=2))["run_id"]
        await asker.until(run_id, "INTERRUPTING", "WAITING_INPUT", "RUNNING", *ENDED)
        with contextlib.suppress(TimeoutError):  # some never end by themselves
            async with asyncio.timeout(8):
                await asker.until(run_id, *ENDED)
        await asker.ask("restart")
        await asker.until(run_id, *ENDED)
        told = await asker.run("print(6*7)")
        assert text_of(told) == "42\n", str(told)  # of a dictionary pytest shows the beginning only

    asker.play(walk)


class Pretender(GuestPlace):
    """A kernel whose guest is what the test makes of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.launched = asyncio.Event()

    def folder(self, kernel_id: UUID) -> Path:
        return self._folder

    def was_launched(self, kernel_id: UUID) -> bool:
        return self.launched.is_set()

    def launch(self, kernel_id: UUID) -> None:
        asyncio.run_coroutine_threadsafe(self._tell(), self.loop)

    async def _tell(self) -> None:
        self.launched.set()

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        await asyncio.wait_for(self.launched.wait(), patient(5))
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self._folder / SOCKET))
        connection.setblocking(False)
        return await asyncio.open_connection(sock=connection)


@pytest.fixture
def pretender() -> Iterator[Pretender]:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    yield Pretender(folder)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "greeting",
    [b"garbage\n", b"[]\n", b"{}\n", b"5\n", b'{"stream": "foreign"}\n', b'{"stream": {}}\n', b"[" * 10_000 + b"\n",
     b"x" * 200_000, b'{"stream": null}\n', b"\xff\n"],
)  # fmt: skip
@pytest.mark.asyncio
async def test_a_greeting_that_is_none_is_hung_up_on(pretender: Pretender, greeting: bytes) -> None:
    pretender.loop = asyncio.get_running_loop()
    links = GuestLinks(pretender)
    opening = asyncio.create_task(links.open(uuid4()))
    reader, writer = await pretender.dial()
    writer.write(greeting)
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), patient(20)) == b""
    assert not opening.done()
    _, control = await pretender.dial()
    control.write(b'{"hello": 1}\n')
    with pytest.raises(GuestMissing):
        await opening  # it never opens the stream that is wanted
    links.close()


@pytest.mark.asyncio
async def test_a_thousand_dials_take_no_more_than_a_few_places(pretender: Pretender) -> None:
    pretender.loop = asyncio.get_running_loop()
    links, kernel_id = GuestLinks(pretender), uuid4()
    opening = asyncio.create_task(links.open(kernel_id))
    control_reader, control = await pretender.dial()
    control.write(b'{"hello": 1}\n')
    name = json.loads(await control_reader.readline())["open"]
    silent = []
    for _ in range(1000):
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        try:
            connection.connect(str(pretender._folder / SOCKET))
        except BlockingIOError:
            await asyncio.sleep(0)
        silent.append(connection)
    await asyncio.sleep(0.1)
    assert links._links[kernel_id]._unclaimed <= 32
    for connection in silent:
        connection.close()
    await asyncio.sleep(0.1)
    _, stream = await pretender.dial()
    stream.write(json.dumps({"stream": name}).encode() + b"\nanswer\n")
    reader, _ = await opening
    assert await reader.readline() == b"answer\n"
    links.close()


@pytest.mark.asyncio
async def test_what_a_guest_said_before_it_left_does_not_keep_its_connection(pretender: Pretender) -> None:
    pretender.loop = asyncio.get_running_loop()
    links = GuestLinks(pretender)
    opening = asyncio.create_task(links.open(uuid4()))
    control_reader, control = await pretender.dial()
    control.write(b'{"hello": 1}\n' + b'{"works": true}\n' * 2000)
    await control_reader.readline()
    control.close()
    async with asyncio.timeout(patient(10)):
        while any("_greet" in str(task.get_coro()) for task in asyncio.all_tasks()):
            await asyncio.sleep(0.05)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    links.close()

"""Hostile input of every kind through all doors, round after round: no process of the platform keeps it in memory."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from docker import APIClient

from tests.agent.images import ensure_work_image
from tests.system.doors import GUEST, MIB, Doors
from tests.system.platform import Platform

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.long, pytest.mark.timeout(1800)]
pytestmark.append(pytest.mark.skipif("BACKENDAI_TEST_LONG" not in os.environ, reason="only with bin/test --all"))
WARM, ROUNDS = 2, 2  # the first load what is loaded once, and stretch the heap to what a round needs
ALLOWED_GROWTH = 50 * MIB
NUMBER, DEEP, LISTS = "9" * 4000, '{"name":' * 60_000, "[" * MIB
HEAD, POST = b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"POST / HTTP/1.1\r\nHost: localhost\r\n"
UPGRADE = f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}=="


def heads_and_addresses(doors: Doors) -> None:
    for port in (doors.portal, doors.apps, doors.gateway):
        doors.hold(port, HEAD, times=300)
        doors.hold(port, HEAD, b"X: " + b"a" * 200_000, times=20)
        doors.hold(port, HEAD, b"".join(b"X-%d: a\r\n" % number for number in range(20_000)), times=3)
        doors.hold(port, b"\xff" * MIB, times=5)
        doors.hold(port, POST, b"Content-Length: 9999999\r\n\r\n" + b"a" * 60_000, times=100)
        pieces = [b"10000\r\n" + b"a" * 65536 + b"\r\n"] * 100
        doors.hold(port, POST, b"Transfer-Encoding: chunked\r\n\r\n", *pieces, times=3)
    doors.ask_all(*(("GET", f"/{uuid4()}{'a' * 60_000}") for _ in range(400)))
    doors.ask_all(*(("GET", f"/{uuid4()}{'a' * 30_000}", None, doors.apps) for _ in range(100)))
    for path in ("/api/schema/", "/static/js/page.js", f"{doors.rest}/archive/", f"{doors.rest}/logs/"):
        doors.hold(doors.portal, f"GET {path}{doors.head}\r\n", times=20)


def bodies(doors: Doors) -> None:
    paths = ("sessions", "runs", "run-preview", "templates", "endpoints", "folders", "users", "session-preview")
    numbers = f'{{"name": "a", "image": "work", "priority": {NUMBER}, "resources": {{"cpu": {NUMBER}}}}}'
    dates = json.dumps({"name": "a", "starts_at": "9" * 9000 + "-01-01", "batch_timeout": "1e999"})
    many = json.dumps({"environ": {str(one): "a" * 60 for one in range(9_000)}, "mounts": list(range(90_000))})
    told = (DEEP, LISTS, "a" * 6 * MIB, numbers, dates, many, json.dumps({"name": "a" * 1_000_000}))
    doors.ask_all(*(("POST", f"/api/v1/{path}/", body) for path in paths for body in told))
    queries = (f"page_size={NUMBER}", f"page={NUMBER}", "status=a&" * 5000, "q=" + "a" * 60_000)
    doors.ask_all(*(("GET", f"/api/v1/sessions/?{query}") for query in queries), times=3)
    doors.ask_all(("POST", "/login/", f"username={'a' * 30_000}&password={'b' * 30_000}"), times=9, Authorization="")
    steps = {f"s{one}": {"startup_command": "true", "after": [f"s{one - 1}"] if one else []} for one in range(1000)}
    shared = {"image": "work", "startup_command": "true"}
    bomb = "a: &a [x]\n" + "".join(f"{two}: &{two} [{f'*{one},' * 10}]\n" for one, two in pairwise("abcdefghi"))
    documents: list[Any] = [{"text": text} for text in (bomb, "[" * 200_000, "- " * 100_000)]
    documents += [{"document": {"kind": "pipeline", "name": "n", "defaults": shared, "steps": steps}}]
    documents += [{"name": "n", "document": shared | {"array": 10_000}}]
    doors.ask_all(*(("POST", "/api/v1/run-preview/", json.dumps(one)) for one in documents), times=2)
    later = {"type": "batch", "startup_command": "true", "starts_at": "2990-01-01T00:00:00Z", "image": "work"}
    made = [doors.client.launch(**later, environ={f"V{n}": "a" * 8000 for n in range(8)}) for _ in range(10)]
    doors.ask_all(("GET", "/api/v1/sessions/?page_size=100"), times=8)
    for one in made:
        doors.client.terminate(one["id"])


def websockets(doors: Doors) -> None:
    at = f"sessions/{doors.session}"
    size = f'{{"type": "resize", "rows": {NUMBER}, "cols": {NUMBER}}}'
    doors.websockets(f"{at}/terminal/?ack=0", b"yes | head -c 30000000\n", size, "[" * 900_000, times=4)
    doors.websockets(f"{at}/terminal/", *[b"a" * 1_000_000] * 5, bytes(2 * MIB), times=4)
    orders = [json.dumps({"type": "run", "id": n, "code": "1" * 900_000}) for n in range(5)]
    orders += [json.dumps({"type": "languages", "id": "a" * 1000})] * 300
    doors.websockets(
        f"{at}/runs/", f'{{"type": "attach", "after": {{"a": {NUMBER}}}}}', *orders, "[" * 900_000, times=2
    )
    doors.websockets(f"{at}/logs/", "a" * 1_000_000, times=5)
    doors.websockets("events/", "a" * 1_000_000, bytes(2 * MIB), times=60)
    huge, endless = b"\x82\xff" + struct.pack(">Q", 2**62) + b"mask", b"\x00\xfe\xff\xffmask"
    for frames in ([huge + bytes(MIB)], [b"\x02" + endless[1:] + bytes(65535), *[endless + bytes(65535)] * 40]):
        doors.hold(doors.portal, f"GET /ws/events/{doors.head}{UPGRADE}\r\n\r\n", *frames, times=5)


def code_and_homes(doors: Doors) -> None:
    endless = "import os\nwhile True: os.write(1, b'x' * 65536)"
    for code in ("print('x' * 30_000_000)", "'x' * 100_000_000", "(" * 50_000, GUEST, endless):
        doors.code(code)
    asked = ["entries/?limit=1000&sort=mtime", f"entries/?limit={NUMBER}", "search/?q=m", "archive/?path=sparse"]
    asked += [
        "files/sparse",
        f"entry/?path={'a/' * 5000}",
        "runs/?limit=200",
        "languages/",
        "logs/",
        "logs/?app=port-9000",
    ]
    doors.ask_all(*(("GET", f"{doors.rest}/{path}") for path in asked), times=2, read=16 * MIB)
    doors.ask_all(("PUT", f"{doors.rest}/files/{'d/' * 100}f", bytes(30 * MIB)), times=2)
    doors.ask("POST", f"{doors.rest}/deletions/", json.dumps({"paths": ["a" * 200] * 4000}))


def answers_of_apps(doors: Doors) -> None:
    for kind in ("head", "header", "headers", "chunk", "trailers", "garbage", "body", "silent"):
        doors.ask_all(("GET", f"{doors.app}/{kind}", None, doors.apps), times=3, read=16 * MIB)
    doors.hold(doors.apps, f"GET {doors.app}/body{doors.head}\r\n", times=40)
    doors.hold(doors.apps, f"GET {doors.app}/ws{doors.head}{UPGRADE}\r\n\r\n", times=20)
    length = "Content-Length: 99999999\r\n\r\n"
    doors.hold(doors.apps, f"POST {doors.app}/silent{doors.head}{length}", bytes(4 * MIB), times=5)


def files_of_folders(doors: Doors) -> None:
    extended, many = tarfile.TarInfo("x"), io.BytesIO()
    extended.type, extended.size = tarfile.XHDTYPE, 60 * 1024
    with tarfile.open(fileobj=many, mode="w") as archive:
        for number in range(5000):
            archive.addfile(tarfile.TarInfo(f"{'n' * 200}/{'d' * 200}/{number}"))
    pax = (extended.tobuf() + (b"60 a=" + b"b" * 54 + b"\n") * 1024) * 400
    sent = [("archive", pax), ("archive", many.getvalue()), ("text?path=t", bytes(30 * MIB))]
    sent += [("content?path=large&overwrite=1", bytes(60 * MIB))]
    doors.ask_all(*(("PUT", f"{doors.files}/{path}", body, doors.apps) for path, body in sent))
    listed = f"entries?limit=1000&sort=mtime&path={'n' * 200}/{'d' * 200}"
    asked = ["archive?format=zip", "archive?format=tar", "search?q=1", listed, f"entries?limit={NUMBER}"]
    asked += ["content?path=" + "a" * 20_000]
    doors.ask_all(*(("GET", f"{doors.files}/{path}", None, doors.apps, 8 * MIB) for path in asked), times=4)
    ranges = "bytes=" + ",".join(f"{n}-{n + 9}" for n in range(3000))
    doors.ask("GET", f"{doors.files}/content?path=large", None, doors.apps, Range=ranges)
    told = [
        DEEP,
        LISTS * 3,
        json.dumps({"paths": ["a" * 200] * 9000}),
        json.dumps({"source": "a" * MIB, "target": "b"}),
    ]
    changes = ("deletions", "moves", "directories", "copies")
    doors.ask_all(*(("POST", f"{doors.files}/{path}", body, doors.apps) for path in changes for body in told))
    for length, name in ((2**50, "YQ" * 4000), (9, "YQ==")):
        told_of = {"Tus_Resumable": "1.0.0", "Upload_Length": str(length), "Upload_Metadata": f"path {name}"}
        doors.ask_all(("POST", f"{doors.files}/uploads", None, doors.apps), times=50, **told_of)
    half = f"PUT {doors.files}/content?path=half{doors.head}Content-Length: 99999999\r\n\r\n"
    doors.hold(doors.apps, half, bytes(MIB), times=40)


def ssh(doors: Doors) -> None:
    long = b"SSH-2.0-a\r\n" + struct.pack(">I", 2**32 - 1) + bytes(MIB)
    packets = b"SSH-2.0-a\r\n" + b"\x00\x00\x80\x00" * 9000
    for said in (b"SSH-2.0-a" + b"a" * MIB, b"a\r\n" * 100_000, long, packets, b""):
        doors.hold(int(doors.port), said, times=70)
    endless = doors.words("ssh", "hostile@127.0.0.1", "yes")
    readers = [subprocess.Popen(endless, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) for _ in range(4)]
    for reader in readers[1:]:
        assert reader.stdout and reader.stdout.read(8 * MIB)
    for reader in readers:
        reader.kill()
        reader.communicate()
    (large := doors.local / "large").write_bytes(bytes(40 * MIB))
    doors.run("sftp", "-b", "-", "hostile@127.0.0.1", given=f"put {large} sent\nget sent {large}\nls {'a' * 3000}\n")


def agents(doors: Doors) -> None:
    words = {"boot_id": "b", "version": "1", "backend": "docker", "architecture": "x86_64", "gateway_url": ""}
    much = {"notes": [{"code": "a", "message": "b" * 500}] * 9000, "capacity": {"cpu": NUMBER}, "version": "a" * MIB}
    much["kernels"] = [{"kernel_id": str(uuid4()), "generation": n, "running": True} for n in range(20_000)]
    told = [DEEP, LISTS * 4, "a" * 6 * MIB, *(json.dumps(words | {name: value}) for name, value in much.items())]
    ways = [("POST", path) for path in ("sync", "bundle", "broker", "join", f"kernels/{uuid4()}/report")]
    ways += [("PUT", f"kernels/{uuid4()}/log?generation={number}") for number in (1, NUMBER)]
    sent = ((way, f"/node/v1/{path}", body) for way, path in ways for body in told)
    doors.ask_all(*sent, Authorization=f"Node {doors.node}")
    paths = (f"terminal?ticket={'a' * 7000}", "files", "execute", "shell")
    asked = (("POST", f"/kernels/{doors.session}/{path}", bytes(5 * MIB), doors.gateway) for path in paths)
    doors.ask_all(*asked, times=5, Authorization="Bearer " + "a" * 7000)


ATTACKS: list[Callable[[Doors], None]] = [heads_and_addresses, bodies, websockets, code_and_homes]
ATTACKS += [answers_of_apps, files_of_folders, ssh, agents]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    engine = APIClient()
    images = {"work": ensure_work_image(engine)}
    engine.close()
    room = {"BACKENDAI_SCRATCH_BYTES": str(2**30)}
    with Platform(tmp_path_factory.mktemp("hostile"), images=images, extra=room) as platform:
        yield Doors(platform, tmp_path_factory.mktemp("attacker"))


def test_the_memory_of_no_process_grows_under_hostile_input(doors: Doors) -> None:
    seen = [doors.memory()]
    for number in range(WARM + ROUNDS):
        for attack in ATTACKS:
            doors.answers.clear()
            began_at = time.monotonic()
            attack(doors)
            took = f"{time.monotonic() - began_at:.0f} s"
            sys.stdout.write(f"{number} {attack.__name__}: {took}, {dict(doors.answers)}\n")
            assert not doors.answers[500] and set(doors.answers) != {0}, attack.__name__
        seen.append(doors.memory())
    for name in seen[0]:
        sys.stdout.write(f"{name:20} {[one.get(name, 0) // MIB for one in seen]} MiB\n")
    assert set(seen[-1]) == set(seen[0]), "no process has ended"
    assert "Error handling request" not in doors.platform.logs()
    grown = {name: size - seen[WARM][name] for name, size in seen[-1].items()}
    assert max(grown.values()) <= ALLOWED_GROWTH, grown

"""What the file server costs: large files beside cp and nginx, small files one by one and as an archive, long lists.

bin/bench files [--json] [--megabytes N] [--files N] [--entries N]

The file server is a process of its own. nginx is measured where it is installed. Every rate is the better of two rounds
that take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import io
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from backendai.core.storage_layout import Marker, folder_path, write_marker
from backendai.wire.folder_tickets import sign_folder_ticket
from backendai.wire.tickets import new_private_key, public_key_of
from bench._portal import free_port, say

_ROOT = Path(__file__).resolve().parent.parent
_CHUNK = 2**20
_ROUNDS = 2
_LOOKS = 20
_SETTLED = 2.5  # seconds after which the file server keeps the names of a directory
_DEPLOYMENT = "bench"
_NGINX = """daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{}} http {{ access_log off; client_max_body_size 0; client_body_temp_path {folder}/body; sendfile on;
server {{ listen 127.0.0.1:{port}; root {root}; }} }}"""


class Server:
    """A file server with one folder."""

    def __init__(self, root: Path) -> None:
        self.key, self.folder, self.port = new_private_key(), uuid.uuid4(), free_port()
        write_marker(root, Marker(_DEPLOYMENT, "local", os.geteuid()))
        told = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(_ROOT),
            "BACKENDAI_STORAGE_HOSTS": f"local={root}",
            "BACKENDAI_FILES_BIND": f"127.0.0.1:{self.port}",
            "BACKENDAI_FILES_PUBLIC_KEY": public_key_of(self.key),
            "BACKENDAI_DEPLOYMENT": _DEPLOYMENT,
            "BACKENDAI_LOG_LEVEL": "WARNING",
        }
        self.process = subprocess.Popen([sys.executable, "-m", "backendai.files"], env=told)
        _await(self.port)
        self.ask("PUT", "", b"{}")
        self.data = folder_path(root, self.folder) / "data"

    def ask(self, method: str, path: str, body: Any = None, connection: Any = None, **headers: str) -> bytes:
        """Return the answer's body, which is thrown away as it comes when it is large."""
        ticket = sign_folder_ticket(
            self.key, host="local", folder_id=self.folder, version=1, rights="manage", now=time.time()
        )
        one = connection or _connection(self.port)
        headers["Authorization"] = f"Bearer {ticket}"
        one.request(method, f"/v1/folders/{self.folder}{path}", body=body, headers=headers)
        return _drain(one)

    def peak_memory(self) -> float:
        """Return the most memory that the process has had, in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bin/bench files", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object of figures")
    parser.add_argument("--megabytes", type=int, default=1024, metavar="N", help="size of the large file (1024)")
    parser.add_argument("--files", type=int, default=10_000, metavar="N", help="how many small files (10000)")
    parser.add_argument("--entries", type=int, default=100_000, metavar="N", help="entries of the long list (100000)")
    parser.add_argument("--folder", type=Path, default=None, help="where to write (the temporary folder)")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        root = Path(folder) / "host"
        root.mkdir()
        server = Server(root)
        try:
            figures |= large(server, Path(folder), options.megabytes)
            figures |= small(server, options.files)
            figures |= lists(server, options.entries)
        finally:
            server.process.terminate()
            server.process.wait()
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:32} {value}")


def large(server: Server, folder: Path, megabytes: int) -> dict[str, Any]:
    """One large file down and up, beside cp and nginx; in MB per second, and as parts of theirs."""
    say(f"{megabytes} MB down and up ...")
    source = server.data / "large"
    with source.open("wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(_CHUNK))
    before = server.peak_memory()
    ways: dict[str, Callable[[], object]] = {
        "cp": lambda: _synced(lambda: shutil.copyfile(source, folder / "copy"), folder / "copy"),
        "download": lambda: server.ask("GET", "/content?path=large"),
        "upload": lambda: _upload(server, source),
    }
    with nginx(server.data, folder) as port:
        if port:
            ways["nginx_get"] = lambda: _get(port, "/large")
        rates = {f"{name}_mb_per_s": round(megabytes / seconds) for name, seconds in _take_turns(ways).items()}
    rates["server_more_memory_mb"] = round(server.peak_memory() - before)
    rates["upload_part_of_cp"] = round(rates["upload_mb_per_s"] / max(1, rates["cp_mb_per_s"]), 2)
    if "nginx_get_mb_per_s" in rates:
        rates["download_part_of_nginx"] = round(rates["download_mb_per_s"] / rates["nginx_get_mb_per_s"], 2)
    return rates


def small(server: Server, number: int) -> dict[str, Any]:
    """Many small files as one archive, one by one, and by tar on the same disk; in files per second."""
    say(f"{number} files of 4 kB ...")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for count in range(number):
            info = tarfile.TarInfo(f"many/{count % 100}/{count}")
            info.size = 4096
            archive.addfile(info, io.BytesIO(os.urandom(4096)))
    content = out.getvalue()
    alone = max(1, number // 20)
    connection = _connection(server.port)

    def one_by_one() -> None:
        for count in range(alone):
            server.ask("PUT", f"/content?path=single-{count}&overwrite=1", os.urandom(4096), connection)

    def by_tar() -> None:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(server.data.parent / "beside", filter="data")
        os.sync()

    batch = min(_seconds(lambda: server.ask("PUT", "/archive?overwrite=all", content)) for _ in range(_ROUNDS))
    rates = {"batch": number / batch, "single": alone / _seconds(one_by_one), "tar_x": number / _seconds(by_tar)}
    figures: dict[str, Any] = {f"small_{name}_files_per_s": round(rate) for name, rate in rates.items()}
    figures["batch_times_single"] = round(rates["batch"] / rates["single"], 1)
    figures["batch_part_of_tar_x"] = round(rates["batch"] / rates["tar_x"], 2)
    return figures


def lists(server: Server, number: int) -> dict[str, Any]:
    """The first page of a very long list that rests, and of one that changes, beside ``ls -f``; in milliseconds."""
    say(f"a list of {number} entries ...")
    (server.data / "long").mkdir()
    for count in range(number):
        (server.data / "long" / f"file-{count}").touch()

    def look() -> object:
        return server.ask("GET", "/entries?path=long")

    changing: list[float] = []
    for count in range(_LOOKS):
        (server.data / "long" / f"new-{count}").touch()
        changing.append(_seconds(look) * 1000)
    time.sleep(_SETTLED)
    quiet = [_seconds(look) * 1000 for _ in range(_LOOKS)]
    command = ["ls", "-f", str(server.data / "long")]
    listing = [_seconds(lambda: subprocess.run(command, stdout=subprocess.DEVNULL)) * 1000 for _ in range(_ROUNDS)]
    figures: dict[str, Any] = {"ls_f_ms": round(min(listing))}
    for name, pages in (("first_page", quiet), ("first_page_changing", changing)):
        figures[f"{name}_ms_median"] = round(statistics.median(pages), 1)
        figures[f"{name}_ms_p95"] = round(statistics.quantiles(pages, n=20)[-1], 1)
    return figures


@contextlib.contextmanager
def nginx(root: Path, folder: Path) -> Iterator[int]:
    """nginx on the same files; gives its port, or 0 where it is not installed."""
    program, port = shutil.which("nginx"), free_port()
    if program is None:
        say("nginx is not installed: nothing to compare the download with")
        yield 0
        return
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, port=port, root=root))
    process = subprocess.Popen([program, "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        _await(port)
        yield port
    finally:
        process.terminate()
        process.wait()


def _upload(server: Server, source: Path) -> None:
    with source.open("rb") as file:
        headers = {"Content-Length": str(source.stat().st_size)}
        server.ask("PUT", "/content?path=uploaded&overwrite=1", file, **headers)


def _synced(work: Callable[[], object], path: Path) -> None:
    work()
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _get(port: int, path: str) -> bytes:
    connection = _connection(port)
    connection.request("GET", path)
    return _drain(connection)


def _connection(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, blocksize=_CHUNK)


def _drain(connection: http.client.HTTPConnection) -> bytes:
    answer, first = connection.getresponse(), b""
    buffer = bytearray(_CHUNK)
    while read := answer.readinto(buffer):
        first = first or bytes(buffer[:read])
    if answer.status >= 400:
        raise RuntimeError(f"{answer.status}: {first[:300]!r}")
    return first


def _take_turns(ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(_ROUNDS):
        for name, way in ways.items():
            best[name] = min(best[name], _seconds(way))
    return best


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _await(port: int) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    main()

"""What folders cost: bytes beside cp and nginx, small files, long lists, clones, mounts, and pages meanwhile.

bin/bench files [--json] [--only PART ...] [--megabytes N] [--files N] [--entries N] [--rounds N]

The file server is a process of its own; ``mounts`` and ``pages`` start a platform. nginx is measured where
it is installed. Every rate is the better of two rounds that take turns.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import statistics
import subprocess
import tarfile
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench._command import command, show
from bench._file_portal import on_a_platform
from bench._file_server import CHUNK, Server, connect, get, nginx, put_file
from bench._portal import say

_PARTS = ("large", "small", "lists", "clone", "mounts", "pages")
_ROUNDS = 2
_LOOKS = 20
_SETTLED = 2.5  # seconds after which the file server keeps the names of a directory


def main() -> None:
    """Measure and print."""
    numbers = {"megabytes": (1024, "size of the large file"), "files": (10_000, "how many small files")}
    numbers |= {"entries": (100_000, "entries of the long list"), "rounds": (15, "starts with and without mounts")}
    parser = command("files", __doc__, numbers, parts=_PARTS)
    parser.add_argument("--folder", type=Path, default=None, help="where to write (the temporary folder)")
    options = parser.parse_args()
    figures: dict[str, Any] = {"load_1m": round(os.getloadavg()[0], 1)}
    if set(options.only) & {"large", "small", "lists", "clone"}:
        figures |= by_the_file_server(options)
    if parts := [part for part in ("mounts", "pages") if part in options.only]:
        figures |= on_a_platform(parts, rounds=options.rounds, megabytes=options.megabytes)
    show(options, figures)


def by_the_file_server(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of the file server alone."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        root = Path(folder) / "host"
        root.mkdir()
        server = Server(root)
        try:
            if "large" in options.only:
                figures |= large(server, Path(folder), options.megabytes)
            if "clone" in options.only:
                figures |= clone(server, options.megabytes)
            if "small" in options.only:
                figures |= small(server, options.files)
            if "lists" in options.only:
                figures |= lists(server, options.entries)
        finally:
            server.stop()
    return figures


def large(server: Server, folder: Path, megabytes: int) -> dict[str, Any]:
    """One large file down and up, beside cp and nginx; in MB per second, and as parts of theirs."""
    say(f"{megabytes} MB down and up ...")
    source = write_random(folder / "source", megabytes)
    shutil.copyfile(source, server.data / "large")
    before = server.peak_memory()
    copy = folder / "copy"
    with nginx(server.data, folder) as port:
        ways: dict[str, Callable[[], object]] = {
            "cp": lambda: shutil.copyfile(source, copy),
            "cp_synced": lambda: _synced(lambda: shutil.copyfile(source, copy), copy),
            "download": lambda: server.ask("GET", "/content?path=large"),
            "upload": lambda: put_file(0, "/content?path=uploaded&overwrite=1", source, server.ask),
        }
        if port:
            ways["nginx_get"] = lambda: get(port, "/large")
            ways["nginx_put_synced"] = lambda: _synced(lambda: put_file(port, "/nginx", source), server.data / "nginx")
        rates = {name: round(megabytes / seconds) for name, seconds in _take_turns(ways).items()}
    figures: dict[str, Any] = {f"{name}_mb_per_s": rate for name, rate in rates.items()}
    figures["server_more_memory_mb"] = round(server.peak_memory() - before)
    for ours, theirs in (("download", "get"), ("upload", "put_synced")):
        if f"nginx_{theirs}" in rates:
            figures[f"{ours}_part_of_nginx"] = round(rates[ours] / rates[f"nginx_{theirs}"], 2)
    return figures | {"upload_part_of_cp_synced": round(rates["upload"] / max(1, rates["cp_synced"]), 2)}


def clone(server: Server, megabytes: int) -> dict[str, Any]:
    """A clone of a folder with one large and 1,000 small files, beside ``cp -a`` and a sync; in seconds."""
    say(f"a clone of {megabytes} MB ...")
    folder = uuid.uuid4()
    server.ask("PUT", "", b"{}", folder=folder)
    data = server.data.parent.parent.parent / folder.hex[:2] / str(folder) / "data"
    write_random(data / "large", megabytes)
    for count in range(1000):
        (data / f"small-{count}").write_bytes(os.urandom(4096))
    os.sync()

    def cloned() -> None:
        target = uuid.uuid4()
        server.ask("POST", "/clones", json.dumps({"source": str(folder)}).encode(), folder=target)
        while json.loads(server.ask("GET", "", folder=target))["state"] != "ready":
            time.sleep(0.01)
        server.ask("DELETE", "", folder=target, version=2)
        while json.loads(server.ask("GET", "", folder=target))["state"] != "absent":
            time.sleep(0.05)

    beside = server.root / "beside"

    def copied() -> None:
        subprocess.run(["cp", "-a", str(data), str(beside)], check=True)
        subprocess.run(["sync", "-f", str(beside)], check=True)
        shutil.rmtree(beside)

    seconds = _take_turns({"clone": cloned, "cp_a": copied})
    told = {f"{name}_s": round(value, 2) for name, value in seconds.items()}
    return {**told, "clone_times_cp_a": round(seconds["clone"] / seconds["cp_a"], 2)}


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
    connection = connect(server.port)

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


def write_random(path: Path, megabytes: int) -> Path:
    """Return the path of a new file that no file system can compress."""
    with path.open("wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(CHUNK))
    return path


def _synced(work: Callable[[], object], path: Path) -> None:
    work()
    with path.open("rb") as file:
        os.fsync(file.fileno())


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


if __name__ == "__main__":
    main()

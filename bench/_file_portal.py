"""Folders on a platform: what three mounts add to a start, and what four uploads add to pages."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import requests

from bench._engine import ensure_image
from bench._events import Events
from bench._portal import ADMIN, Client, Portal, end_all, running_portal, say, wait_until

_UPLOADS, _PAGES, _WARM_UP = 4, 60, 2
_SETTLE_SECONDS = 0.8
_SHOWN = ("/", "/folders/", "/sessions/new/")


def on_a_platform(parts: Sequence[str], *, rounds: int, megabytes: int) -> dict[str, Any]:
    """Return the figures of these parts, on a platform of their own."""
    ensure_image()
    say("starting a platform ...")
    with running_portal("sqlite") as portal:
        client = portal.client()
        folders = [_folder(client, f"data-{number}") for number in range(_UPLOADS)]
        figures: dict[str, Any] = {}
        if "mounts" in parts:
            figures |= starts(portal, client, folders[:3], rounds)
        if "pages" in parts:
            figures |= pages(portal, folders, megabytes)
    return figures


def starts(portal: Portal, client: Client, folders: Sequence[str], rounds: int) -> dict[str, float]:
    """Starts with three mounts and without, one at a time and in turns; medians in milliseconds."""
    say("starts with three mounts and without ...")
    events, taken = Events(portal.port, portal.token), {"mounted": [0.0][:0], "plain": [0.0][:0]}
    for number in range(rounds + _WARM_UP):
        for side in ("mounted", "plain") if number % 2 else ("plain", "mounted"):
            mounts = [{"folder": folder} for folder in folders] if side == "mounted" else []
            began = time.perf_counter()
            session_id = client.launch(mounts=mounts)
            taken[side].append(events.time_of(session_id, "RUNNING") - began)
            end_all(client, events, [session_id])
            time.sleep(_SETTLE_SECONDS)
    events.close()
    mounted, plain = (1000 * statistics.median(taken[side][_WARM_UP:]) for side in ("mounted", "plain"))
    figures = {"start_mounted_ms_p50": mounted, "start_plain_ms_p50": plain, "three_mounts_ms": mounted - plain}
    return {name: round(value, 1) for name, value in figures.items()} | {"mounts_share": round(1 - plain / mounted, 3)}


def pages(portal: Portal, folders: Sequence[str], megabytes: int) -> dict[str, float]:
    """Requests for pages alone and while four uploads run, in turns; p50 and p95 in milliseconds, and their ratio."""
    say(f"pages while {_UPLOADS} uploads run ...")
    browser = requests.Session()
    browser.trust_env = False
    browser.get(f"{portal.address}/login/", timeout=15).raise_for_status()
    form = {"login": ADMIN, "password": portal.password(), "csrfmiddlewaretoken": browser.cookies["csrf"]}
    browser.post(f"{portal.address}/login/", data=form, timeout=15).raise_for_status()
    taken: dict[str, list[float]] = {"alone": [], "meanwhile": []}
    with tempfile.NamedTemporaryFile() as source:
        source.truncate(megabytes * 2**20)
        for turn in range(4):
            side = "meanwhile" if turn % 2 else "alone"
            with uploading(portal, folders, Path(source.name)) if turn % 2 else contextlib.nullcontext():
                time.sleep(1)
                for number in range(_PAGES // 2):
                    began = time.perf_counter()
                    shown = browser.get(portal.address + _SHOWN[number % len(_SHOWN)], timeout=60)
                    taken[side].append(1000 * (time.perf_counter() - began))
                    shown.raise_for_status()
    figures = {}
    for side, values in taken.items():
        figures[f"page_{side}_ms_p50"] = round(statistics.median(values), 1)
        figures[f"page_{side}_ms_p95"] = round(statistics.quantiles(values, n=20)[-1], 1)
    return figures | {
        "page_p50_times": round(figures["page_meanwhile_ms_p50"] / figures["page_alone_ms_p50"], 2),
        "page_p95_times": round(figures["page_meanwhile_ms_p95"] / figures["page_alone_ms_p95"], 2),
    }


@contextlib.contextmanager
def uploading(portal: Portal, folders: Sequence[str], source: Path) -> Iterator[None]:
    """Send a file into each of these folders, again and again, through the app proxy."""
    loops = []
    for folder in folders:
        address = f"http://127.0.0.1:{portal.port + 1}/content?path=uploaded&overwrite=1"
        host = f"files-{folder.replace('-', '')[:12]}.apps.localhost:{portal.port + 1}"
        words = ["curl", "-sS", "--fail", "-o", "/dev/null", "-T", str(source), "-H", f"Host: {host}"]
        words += ["-H", f"Authorization: Bearer {portal.token}", address]
        loops.append(subprocess.Popen(["sh", "-c", 'while "$@"; do :; done', "sh", *words], start_new_session=True))
    try:
        yield
        if any(loop.poll() is not None for loop in loops):
            raise RuntimeError("an upload was refused")
    finally:
        for loop in loops:
            subprocess.run(["kill", "--", f"-{loop.pid}"], check=False)
            loop.wait()


def _folder(client: Client, name: str) -> str:
    folder = client.create("folders", {"name": name})
    path = f"/api/v1/folders/{folder['id']}/"
    wait_until(lambda: client.ask("GET", path)[1]["status"] == "READY", 60, pause=0.1)
    return str(folder["id"])

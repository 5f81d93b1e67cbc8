"""Code by the documented lines, and through ``kill -9`` of the platform's processes and of the guest: output, variables
and exit codes stay."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from docker import APIClient

from tests.agent.images import ensure_python_image
from tests.patience import patient, until
from tests.system.client import Body, Client
from tests.system.documented import lines_of, run_lines
from tests.system.platform import Platform

pytestmark = [pytest.mark.system, pytest.mark.docker]
TICKS = 30
COUNTING = (
    f"import time\nfor n in range({TICKS}):\n    print('tick', n, flush=True)\n    time.sleep(0.2)\nkept = 7\nexit(3)"
)
# The guest notes its process id beside its journal.
KILL_GUEST = """
import glob, os, signal, tempfile, time
print("before", flush=True)
time.sleep(0.5)
[lock] = glob.glob(tempfile.gettempdir() + "/.backendai-runs/*/lock")
os.kill(int(open(lock).read()), signal.SIGKILL)
time.sleep(60)
"""
_PASSING = {502, 503, 504}


@pytest.fixture(scope="module", params=["process", "docker"])
def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    images = {}
    if request.param == "docker":
        engine = APIClient()
        images["python"] = ensure_python_image(engine)
        engine.close()
    with Platform(tmp_path_factory.mktemp("code"), backend=request.param, images=images) as platform:
        yield platform


@pytest.fixture(scope="module")
def session(platform: Platform) -> Iterator[Body]:
    resources = {"cpu": "1", "mem": "256m"}
    client = platform.client
    yield (session := client.wait_until_running(client.launch("code", image="python", resources=resources)["id"]))
    client.end(session["id"])


def told(client: Client, method: str, path: str, **more: Any) -> Body:
    """Return what the platform says of a run as soon as it can say it again."""
    answers: list[Any] = []

    def can_say() -> bool:
        answers.append(client._send(method, path, **more))
        return bool(answers[-1].status_code not in _PASSING)

    until(can_say, 60.0, "the platform tells of the run", last=lambda: answers[-1].text[:300])
    assert answers[-1].status_code in (200, 202), answers[-1].text
    return dict(answers[-1].json())


def read(client: Client, path: str, after: int = 0) -> Body:
    """Return the run with what it said from there on."""
    return told(client, "GET", f"{path}?after={after}")


def start(client: Client, path: str, **wish: Any) -> Body:
    """Start a run; asked again, a run of the same name is the same one."""
    return told(client, "POST", path, json={"run_id": f"run-{uuid4().hex[:8]}"} | wish)


def run(client: Client, path: str, code: str, **wish: Any) -> Body:
    """Return the run of this code when it has ended, however long that takes."""
    path += f"{start(client, path, code=code, **wish)['run_id']}/"
    until(lambda: read(client, path)["state"] == "FINISHED", 60.0, "the run ends", last=lambda: read(client, path))
    return read(client, path)


def text_of(run: Body) -> str:
    return "".join(item.get("text", "") for item in run["items"] if item["type"] == "stdout")


def answers_of(text: str) -> list[Body]:
    """Return the objects of JSON that stand one after the other in the text."""
    found, place = [], 0
    while place < len(text):
        answer, place = json.JSONDecoder().raw_decode(text, place)
        found.append(answer)
    return found


def test_the_documented_lines_run_code(platform: Platform, session: Body, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("not installed: curl")
    (tmp_path / "data.csv").write_text("1,2\n")
    settings = lines_of("## A session from launch to end").partition("\n\n")[0]
    settings = settings.replace("http://127.0.0.1:8080", platform.url)
    environ = {"PATH": os.environ["PATH"], "TOKEN": platform.client.token, "ID": session["id"]}
    said = run_lines(f"{settings}\n{lines_of('## Running code')}", tmp_path, environ)
    prints, exits, batch, asks, _, greets, _, _, interrupted, written = answers_of(said)
    assert (text_of(prints), prints["exit_code"], exits["exit_code"]) == ("42\n", 0, 3)
    assert (text_of(batch), asks["prompt"], text_of(greets)[:14]) == ("built\n", "Your name? ", "Your name? Bo\n")
    greets = read(platform.client, f"sessions/{session['id']}/runs/ask-1/", 0)  # it has ended before the next one began
    assert (greets["state"], text_of(greets)) == ("FINISHED", "Your name? Bo\nhello Bo\n")
    assert (interrupted["reason"], written["size"]) == ("interrupted", 4)


@pytest.mark.parametrize("role", ["agent", "appproxy", "web"])
def test_a_run_goes_on_and_nothing_of_it_is_missing(platform: Platform, session: Body, role: str) -> None:
    client, path = platform.client, f"sessions/{session['id']}/runs/"
    path += f"{start(client, path, code=COUNTING, run_id=f'through-{role}')['run_id']}/"
    until(lambda: "tick 3\n" in text_of(read(client, path)), 60.0, "the code prints")
    part = read(client, path)
    platform.wait_for_restart(role, platform.kill(role))
    text, after = text_of(part), part["offset"]
    deadline = time.monotonic() + patient(60)
    while part["state"] != "FINISHED" or after < part["end"]:
        assert time.monotonic() < deadline, part
        part = read(client, path, after)
        text, after = text + text_of(part), part["offset"]
        time.sleep(0.1)
    assert (text, part["exit_code"]) == ("".join(f"tick {n}\n" for n in range(TICKS)), 3)
    again = run(client, f"sessions/{session['id']}/runs/", "kept * 6")
    assert [item["data"] for item in again["items"]] == ["42"], "the variables are there"


def test_the_runs_of_a_killed_guest_are_lost_with_a_reason_and_their_output_stays(
    platform: Platform, session: Body
) -> None:
    client, path = platform.client, f"sessions/{session['id']}/runs/"
    run(client, path, "print('earlier')", run_id="earlier")
    start(client, path, code=KILL_GUEST, run_id="killer")
    until(lambda: read(client, f"{path}killer/")["state"] == "LOST", 60.0, "the run is lost")
    lost = read(client, f"{path}killer/")
    assert (lost["reason"], text_of(lost)) == ("guest-ended", "before\n")
    assert text_of(read(client, f"{path}earlier/")) == "earlier\n"
    after = run(client, path, "print('kept' in globals())")
    assert text_of(after) == "False\n", "an interpreter of its own"

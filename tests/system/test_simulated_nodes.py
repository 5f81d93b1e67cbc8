"""Simulated agents next to a real portal: sessions start, talk, end, and none is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.patience import until
from tests.system.client import TERMINAL
from tests.system.platform import Platform

SESSIONS = 24
ENDED_WITHIN = 90.0
SMALL = {"cpu": "1", "mem": "64m"}

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with Platform(
        tmp_path_factory.mktemp("sim"), agents=2, backend="simulated", images={"simulated": "simulated/python"}
    ) as platform:
        yield platform


def test_sessions_on_simulated_agents_start_talk_and_end_and_none_is_lost(platform: Platform) -> None:
    client = platform.client
    asked = client.launch(image="simulated", resources=SMALL)["id"]
    batch = {"image": "simulated", "resources": SMALL, "type": "batch"}
    launched = [
        client.launch(startup_command=f"sleep 1; exit {number % 2}", **batch)["id"] for number in range(SESSIONS)
    ]
    client.wait_until_running(asked)
    with client.terminal(asked) as terminal:
        terminal.run("echo mark-42", "mark-42")
    assert client.end(asked)[0]["status"] == "TERMINATED"
    until(lambda: all(session["status"] in TERMINAL for session in client.sessions()), ENDED_WITHIN, "all have ended")
    found = {session["id"]: session for session in client.sessions()}
    assert {found[pk]["status"] for pk in launched} == {"TERMINATED"}
    assert [found[pk]["result"] for pk in launched] == ["SUCCESS", "FAILED"] * (SESSIONS // 2)
    assert "line-1\n" in client.log(launched[0])
    platform.audit()

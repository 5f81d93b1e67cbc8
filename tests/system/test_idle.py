"""An idle session on a real platform: warned, spared because somebody comes back, then stopped without slots."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.patience import until
from tests.system.client import fresh
from tests.system.platform import Platform

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.usefixtures("tiny_image"), pytest.mark.timeout(420)]
# The shortest that a checker may say, and what the loops take beyond.
RULE = {"kind": "network-timeout", "limit": 60, "warning": 30, "is_site_wide": True}
WARNED_WITHIN = 60 + 60
ENDED_WITHIN = 60 + 60


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, tiny_image: None) -> Iterator[Platform]:
    with Platform(tmp_path_factory.mktemp("idle")) as platform:
        yield platform


def test_it_is_warned_spared_when_used_and_stopped_when_left_alone(platform: Platform) -> None:
    client = platform.client
    free = client.group()["free"]
    client.make_checker(RULE | {"name": fresh("quiet")})
    session = client.wait_until_running(client.launch("lonely")["id"])

    def check() -> dict[str, object]:
        return client.idle(session["id"])[0]

    until(lambda: check()["warned_at"] is not None, WARNED_WITHIN, "its owner is warned", last=check)
    assert client.session(session["id"])["status"] == "RUNNING"
    with client.terminal(session["id"]) as terminal:
        terminal.run("echo $((6*7))", r"\b42\b")
    until(lambda: check()["warned_at"] is None, 60, "the warning is taken back", last=check)
    assert client.session(session["id"])["status"] == "RUNNING"

    stopped = client.wait_for(session["id"], "STOPPED", seconds=WARNED_WITHIN + ENDED_WITHIN)
    assert stopped["status_reason"] == "idle-timeout"
    codes = [row["error_code"] for row in reversed(client.history(session["id"])) if row["error_code"]]
    assert codes[:4] == ["idle-warned", "idle-warning-withdrawn", "idle-warned", "idle-timeout"]
    assert client.group()["free"] == free
    platform.audit()

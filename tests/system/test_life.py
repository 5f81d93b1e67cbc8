"""One session after another, from the launch to the last trace of it."""

from __future__ import annotations

import pytest

from tests.system.platform import Platform
from tests.system.polling import until

pytestmark = [pytest.mark.system, pytest.mark.docker]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, tiny_image: str):
    with Platform(tmp_path_factory.mktemp("life")) as platform:
        yield platform


def test_it_takes_a_session_from_launch_to_the_last_trace(platform: Platform) -> None:
    client = platform.client
    free = client.group()["free"]
    session = client.wait_until_running(client.launch("first")["id"])
    with client.terminal(session["id"]) as terminal:
        terminal.run("echo $((6*7))", r"\b42\b")
    assert "Session first on main1: local/backendai-tiny:latest" in client.log(session["id"])
    assert client.group()["free"] != free
    client.end(session["id"])
    assert client.group()["free"] == free
    assert "Session first on main1" in client.log(session["id"])
    until(lambda: not platform.containers(), 10, "the container is gone")
    until(lambda: not platform.scratch_folders(), 10, "the scratch folder is gone", last=platform.scratch_folders)
    platform.audit()

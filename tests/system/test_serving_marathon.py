"""Ten thousand requests to an endpoint that is scaled twenty times and updated, while its platform is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.patience import until
from tests.system.platform import READY_WITHIN, Platform
from tests.system.served import CALLERS, Load, Served

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(900)]
REQUESTS, SCALINGS, UPDATE_AT = 10_000, 20, 8
NUMBERS = (3, 1, 2)
KILLS = {3: "web", 6: "control", 11: "beat", 14: "valkey", 17: "appproxy"}


def test_only_requests_open_in_a_killed_proxy_are_lost(tmp_path: Path) -> None:
    extra = {"BACKENDAI_AGENT_NATIVE_SERVING": "yes", "BACKENDAI_AGENT_SLOTS": "cpu=4,mem=4g"}
    with Platform(tmp_path, backend="process", extra=extra) as platform:
        served = Served(platform)
        served.wait(2)
        with served.second_proxy(), Load(served) as load:
            for turn in range(SCALINGS):
                former = platform.kill(KILLS[turn]) if turn in KILLS else None
                number = NUMBERS[turn % len(NUMBERS)]
                served.client._send("PATCH", served.path, json={"minimum": number, "maximum": number})
                if turn == UPDATE_AT:
                    served.client.post(f"{served.path}revisions/", {**served.revision, "environ": {"ROUND": "2"}})
                load.wait_for(REQUESTS // SCALINGS)
                served.wait(number)
                if former:
                    platform.wait_for_restart(KILLS[turn], former)
            until(lambda: served.look()["revision"] == 2, READY_WITHIN, "the update is done", last=served.look)
        served.delete()
        platform.audit()
    assert set(load.statuses) == {200}
    assert len(load.statuses) >= REQUESTS
    assert len(load.lost) <= CALLERS, load.lost
    assert {port for port, _ in load.lost} <= {served.ports[0]}, "the other app proxy lost something"

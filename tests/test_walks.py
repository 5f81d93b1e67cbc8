"""How a launch and a report of an agent go through the rooms, as they run: calls go down and answers come back up."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from backendai.base.wire.messages import KernelState
from backendai.domain.compute.services.launching.create import launch_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.spec import SessionSpec
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_running_session, report_of
from tests.test_architecture import FRAME, MAY_IMPORT, room_in

pytestmark = pytest.mark.django_db

HANDED_ON = {"<genexpr>", "<lambda>"}  # evaluated by the function that they are an argument of
# They are given what to read or to write, and call it: the caller's own code, by another way.
GIVEN_WORK = {"once", "_made"}
GIVEN_FIELDS = "base.db"  # the fields of the models that it reads and writes convert values
PACKAGE = str(Path(__file__).resolve().parent.parent / "backendai") + "/"


def room_of(frame: FrameType) -> str | None:
    path = frame.f_code.co_filename
    if not path.startswith(PACKAGE) or "/migrations/" in path:
        return None
    room = room_in(path.removeprefix(PACKAGE).removesuffix(".py").split("/"))
    return None if room in FRAME else room


def climbs_of(act: Callable[[], Any]) -> tuple[set[str], set[str]]:
    """Return the calls into rooms that the caller's room may not know, and the rooms that were entered."""
    climbs, rooms = set(), set()

    def look(frame: FrameType, event: str, _arg: Any) -> None:
        if event != "call" or (room := room_of(frame)) is None or frame.f_code.co_name in HANDED_ON:
            return
        rooms.add(room)
        caller = frame.f_back
        while caller is not None and (above := room_of(caller)) is None:
            caller = caller.f_back
        if caller is None or above is None or above == GIVEN_FIELDS or caller.f_code.co_name in GIVEN_WORK:
            return
        if room != above and room not in MAY_IMPORT[above]:
            climbs.add(f"{above}:{caller.f_code.co_qualname} → {room}:{frame.f_code.co_qualname}")

    sys.setprofile(look)
    try:
        act()
    finally:
        sys.setprofile(None)
    return climbs, rooms


def test_a_launch_calls_only_downwards(cast: Cast) -> None:
    make_group()
    make_image()
    climbs, rooms = climbs_of(lambda: launch_session(cast.alice, SessionSpec(image="python")))
    assert rooms >= {f"domain.{room}" for room in ("compute", "catalog", "storage", "cluster", "accounts")} | {
        "base.core"
    }
    assert not climbs


def test_a_report_of_an_agent_calls_only_downwards(cast: Cast) -> None:
    agent = make_agent()
    kernel = make_running_session(cast.alice, agent).kernels.get()
    report = report_of(kernel, KernelState.TERMINATED, exit_code=0, reason="exited")
    climbs, rooms = climbs_of(lambda: kernel_reported(agent, report))
    assert {"domain.compute", "base.wire", "base.core"} <= rooms
    assert not climbs

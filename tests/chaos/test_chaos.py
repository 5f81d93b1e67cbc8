"""Every misfortune at once, by a seed: in the end nothing is lost, doubled or left behind.

``BACKENDAI_TEST_CHAOS_SEED`` and ``bin/test --chaos MINUTES`` choose another run; docs/operations.md says what is
covered.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.chaos.callers import Callers
from tests.chaos.faults import catalogue
from tests.chaos.nemesis import Nemesis
from tests.chaos.rig import Rig
from tests.chaos.schedule import Strike, plan
from tests.chaos.users import User
from tests.chaos.verdict import Verdict

SECONDS = 60 * float(os.environ.get("BACKENDAI_TEST_CHAOS_MINUTES", "1"))
SEED = int(os.environ.get("BACKENDAI_TEST_CHAOS_SEED") or random.SystemRandom().randrange(10**6))
USERS = 4
WHOLE_RUN, LEAST_FAULTS, LEAST_KINDS = 600.0, 100, 12

pytestmark = [pytest.mark.system, pytest.mark.docker, pytest.mark.long, pytest.mark.timeout(SECONDS + 600)]


@pytest.fixture(params=["sqlite", "postgresql", "docker"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    with Rig(request.param, tmp_path) as rig:
        yield rig


def test_it_adds_up_after_every_misfortune(
    rig: Rig, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, "chaos")
    say(capsys, f"seed {SEED}, {SECONDS:g} s, on {rig.kind}")
    kinds = catalogue(rig)
    nemesis = Nemesis(rig, {kind.name: inflict for kind, inflict in kinds.items()})
    minds = [random.Random(f"{SEED} {number}") for number in range(USERS)]
    users = [User(rig.platform.url, rig.platform.client.token, rig.nodes.image, mind) for mind in minds]
    callers = Callers(rig)
    verdict = Verdict(rig, users, callers, nemesis)
    work(nemesis, users, callers, plan(SEED, SECONDS, list(kinds)))
    try:
        judge(verdict)
    finally:
        say(capsys, verdict.table(SEED, SECONDS))
    if SECONDS >= WHOLE_RUN:
        assert nemesis.inflicted.total() >= LEAST_FAULTS
        assert len(nemesis.inflicted) >= LEAST_KINDS


def say(capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Write to the terminal, whatever becomes of the test."""
    with capsys.disabled():
        sys.stdout.write(f"\n{text}\n")
        sys.stdout.flush()


def work(nemesis: Nemesis, users: list[User], callers: Callers, strikes: list[Strike]) -> None:
    """Let everybody work until the last fault is lifted."""
    over = threading.Event()
    with ThreadPoolExecutor(USERS + 2) as crew:
        others = [crew.submit(one.work, over) for one in (*users, callers)]
        try:
            nemesis.work(strikes, over)
        finally:
            over.set()
    for one in others:
        one.result()


def judge(verdict: Verdict) -> None:
    """Demand everything that must hold."""
    verdict.converges()
    verdict.nothing_is_lost_or_doubled()
    verdict.every_end_is_explained()
    verdict.no_request_is_lost_without_a_fault()
    verdict.audit_is_clean()
    verdict.all_ends()
    verdict.audit_is_clean()

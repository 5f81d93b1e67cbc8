"""Passes stay single, and a process that was killed in one holds nobody up."""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta

import pytest
from django.utils import timezone

from backendai.domain.cluster.models import PassLease
from backendai.portal.loops import loops

pytestmark = pytest.mark.django_db
LATER = timedelta(seconds=20)


def held_by(owner: str) -> None:
    PassLease.objects.create(name=loops.PASS_LEASE, owner=owner, until=timezone.now() + LATER)


def runs() -> bool:
    called: list[bool] = []

    def work() -> int:
        called.append(True)
        return 1

    loops.single(loops.PASS_LEASE, timezone.now(), work)
    return bool(called)


def ended_process() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_it_leaves_the_pass_to_a_process_that_lives() -> None:
    held_by(f"{loops._HOST}:{os.getppid()}:00000000:1")
    assert not runs()


def test_it_leaves_the_pass_to_another_thread_of_this_process() -> None:
    held_by(f"{loops._PROCESS}:1")
    assert not runs()


def test_it_leaves_the_pass_to_a_process_of_another_machine() -> None:
    held_by(f"elsewhere:{ended_process()}:00000000:1")
    assert not runs()


def test_it_takes_the_pass_from_a_process_that_was_killed() -> None:
    held_by(f"{loops._HOST}:{ended_process()}:00000000:1")
    assert runs()
    assert PassLease.objects.get(pk=loops.PASS_LEASE).owner == ""


def test_it_takes_the_pass_from_an_earlier_process_with_the_same_id() -> None:
    held_by(f"{loops._HOST}:{os.getpid()}:00000000:1")
    assert runs()


def test_it_takes_a_pass_whose_time_is_up_from_anybody() -> None:
    held_by("elsewhere:1:00000000:1")
    PassLease.objects.update(until=timezone.now() - timedelta(seconds=1))
    assert runs()

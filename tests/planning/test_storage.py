"""Folders in the picture of a group: who needs which storage host, and which agents offer it."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.spec import MountRequest, SessionSpec
from backendai.domain.planning.explain import Verdict
from backendai.domain.planning.preview import preview
from backendai.domain.planning.snapshot import read_snapshot
from backendai.scheduler.decide import decide
from tests.cast import Cast
from tests.factories import make_agent, make_image, make_session
from tests.mount_tools import ready_folder, storage_host

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


@pytest.fixture
def site(cast: Cast) -> Cast:
    """Two agents, of which gpu3 alone mounts gpu3-disk."""
    make_image()
    make_agent("gpu1", cpu=8)
    storage_host("gpu3-disk", make_agent("gpu3", cpu=1))
    return cast


def group() -> ResourceGroup:
    found: ResourceGroup = ResourceGroup.objects.get()
    return found


def test_a_session_is_placed_where_its_folder_lies(site: Cast) -> None:
    ready_folder(site.alice, host=storage_host("gpu3-disk"))
    session = make_session(site.alice, mounts=[MountRequest("data")])
    free = make_session(site.alice)
    snapshot = read_snapshot(group(), timezone.now())
    needs = {view.id: view.storage for view in snapshot.pending}
    need = needs[session.pk]
    assert need and (need.features, need.folders) == (frozenset({"gpu3-disk"}), (("data", "gpu3-disk"),))
    assert needs[free.pk] is None
    names = {agent.id: agent.name for agent in snapshot.agents}
    placed = {one.session_id: names[one.kernel_agents[0][1]] for one in decide(snapshot).placements}
    assert placed[session.pk] == "gpu3"


def test_read_only_and_parts_are_needed_and_offered(site: Cast) -> None:
    host = storage_host("gpu3-disk")
    ready_folder(site.alice, host=host)
    make_session(site.alice, mounts=[MountRequest("data", path="a", rights="view")])
    snapshot = read_snapshot(group(), timezone.now())
    everything = frozenset({"gpu3-disk", "gpu3-disk:view", "gpu3-disk:part"})
    assert snapshot.pending[0].storage and snapshot.pending[0].storage.features == everything
    offers = {agent.name: agent.storage for agent in snapshot.agents}
    assert offers == {"gpu1": frozenset(), "gpu3": everything}
    host.on_agents.update(can_read_only=False)
    snapshot = read_snapshot(group(), timezone.now())
    assert not decide(snapshot).placements
    host.on_agents.update(fault="The share is not mounted.")
    (wait,) = decide(read_snapshot(group(), timezone.now())).waits
    assert wait.reason.code == "storage-fault"


def test_automatic_folders_bind_nobody(site: Cast) -> None:
    ready_folder(site.alice, ".cache", host=storage_host("gpu3-disk"))
    make_session(site.alice, resources={"cpu": 4, "mem": "1g"})
    snapshot = read_snapshot(group(), timezone.now())
    assert snapshot.pending[0].storage is None and len(decide(snapshot).placements) == 1


def queries_of_a_picture() -> int:
    now = timezone.now()
    read_snapshot(group(), now)
    with CaptureQueriesContext(connection) as queries:
        read_snapshot(group(), now)
    return len(queries)


def test_folders_cost_two_queries_however_many_and_nothing_where_there_are_none(site: Cast) -> None:
    make_session(site.bob)
    without = queries_of_a_picture()
    for number in range(6):
        ready_folder(site.alice, f"data{number}", host=storage_host("gpu3-disk"))
    make_session(site.alice, mounts=[MountRequest("data0")])
    one = queries_of_a_picture()
    for _ in range(5):
        make_session(site.alice, mounts=[MountRequest(f"data{number}") for number in range(6)])
    assert (one - without, queries_of_a_picture() - one) == (2, 0)


def test_the_preview_tells_why_it_would_wait(site: Cast) -> None:
    ready_folder(site.alice, host=storage_host("gpu3-disk"))
    values: dict[str, Any] = {"image": "python", "mounts": [MountRequest("data")]}
    could = preview(site.alice, SessionSpec(resources={"cpu": 1, "mem": "512m"}, **values), now=timezone.now())
    assert could.verdict == Verdict.STARTS_NOW
    waits = preview(site.alice, SessionSpec(resources={"cpu": 2, "mem": "512m"}, **values), now=timezone.now())
    assert waits.verdict == Verdict.WAITS
    assert waits.message.startswith("Folder data is on gpu3-disk, which only gpu3 mounts. No agent has room for 2 CPU")

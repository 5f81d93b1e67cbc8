"""System sessions: whose quota they leave alone, how many there may be, what they mount, and when they end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from backendai.base.core.errors import Conflict, UserError
from backendai.base.wire.messages import KernelState
from backendai.base.wire.tickets import Purpose
from backendai.domain.accounts.models import ResourcePolicy, User
from backendai.domain.catalog.models import Image, ImageOnAgent
from backendai.domain.compute.auditing import CHECKS, World, violations_of
from backendai.domain.compute.models import Allocation, ComputeSession
from backendai.domain.compute.services.launching import system_sessions
from backendai.domain.compute.services.launching.create import create_session
from backendai.domain.compute.services.launching.system_sessions import end_unused, left_out, lost_folders, open_folders
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.records.traffic import note_traffic
from backendai.domain.compute.services.requests.limits import limit_views, limits_on
from backendai.domain.compute.services.requests.mounts import MOST_MOUNTS
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.compute.status import Status
from backendai.domain.storage.models import FolderGrant
from backendai.gates.gateways.reach import reach
from backendai.gates.gateways.targets import Denied
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image, make_session, place, report_of
from tests.mount_tools import ready_folder, storage_host

pytestmark = pytest.mark.django_db
NOW = timezone.now()


@pytest.fixture(autouse=True)
def place_to_run(cast: Cast) -> None:
    """A resource group and an image."""
    make_group()
    make_image()


def run(session: ComputeSession) -> None:
    agent = make_agent()
    place(session, agent)
    for kernel in session.kernels.all():
        kernel_reported(agent, report_of(kernel, KernelState.RUNNING, container_id="c1"))
    session.refresh_from_db()


def test_it_mounts_all_folders_and_counts_against_nothing_but_its_own_number(cast: Cast) -> None:
    policy = ResourcePolicy.objects.create(name="one", max_sessions=1, slots={"cpu": "1"}, max_pending_sessions=1)
    cast.alice.policy = policy
    cast.alice.save()
    ready_folder(cast.alice, "data")
    ready_folder(cast.alice, "more")
    ready_folder(cast.charlie, "foreign")
    session = open_folders(cast.alice, NOW)
    assert sorted(session.mounts.values_list("target", flat=True)) == ["/home/work/data", "/home/work/more"]
    assert open_folders(cast.alice, NOW) == session
    own = make_session(cast.alice, resources={"cpu": 1, "mem": "128m"})  # pending beside it: one may
    place(own, make_agent())
    run(session)  # placed beside it: one may hold slots
    assert session.status == Status.RUNNING
    held = dict(Allocation.objects.filter(kernel__session=session).values_list("slot", "amount"))
    assert held["cpu"] == 100 and own.kernels.get().status == Status.SCHEDULED
    [view] = [one for one in limit_views(limits_on(cast.alice, session.project, None)).values() if one.name]
    assert view.sessions == 1 and view.used["cpu"] == 1000
    with pytest.raises(Conflict) as refused:
        create_session(cast.alice, _again(session))
    assert refused.value.code == "too-many-system-sessions"


def _again(session: ComputeSession, **over: object) -> SessionSpec:
    return SessionSpec(
        image=session.image.name, session_type=session.session_type, resource_group=session.resource_group.name,
        resources=over or session.slots,
    )  # fmt: skip


def test_nobody_computes_in_it(cast: Cast) -> None:
    ready_folder(cast.alice, "data")
    session = open_folders(cast.alice, NOW)
    run(session)
    for purpose in ("terminal", "execute", "app"):
        with pytest.raises(Denied) as denied:
            reach(cast.alice, purpose, session_id=session.pk)  # type: ignore[arg-type]
        assert denied.value.code == "not-for-this-type"
    with pytest.raises(UserError) as refused:
        create_session(cast.alice, _again(session, cpu=4))
    assert refused.value.code == "above-maximum"


def test_it_ends_when_nobody_has_been_connected_for_a_while(cast: Cast) -> None:
    ready_folder(cast.alice, "data")
    session = open_folders(cast.alice, NOW)
    run(session)
    started = session.started_at
    assert end_unused(started + timedelta(minutes=14)) == 0
    note_traffic({session.pk: started + timedelta(minutes=10)})
    assert end_unused(started + timedelta(minutes=24)) == 0
    assert end_unused(started + timedelta(minutes=26)) == 1
    session.refresh_from_db()
    assert (session.status, session.status_reason) == (Status.TERMINATING, "not-connected")
    assert violations_of(CHECKS, World(NOW), ["I-15"]) == {}
    waiting = open_folders(cast.alice, NOW)
    assert waiting != session and end_unused(waiting.created_at + timedelta(minutes=16)) == 1
    waiting.refresh_from_db()
    assert waiting.status == Status.CANCELLED


def test_a_new_folder_has_one_that_nobody_uses_replaced(cast: Cast) -> None:
    ready_folder(cast.alice, "data")
    session = open_folders(cast.alice, NOW)
    run(session)
    ready_folder(cast.alice, "later")
    assert open_folders(cast.alice, session.started_at + timedelta(seconds=30)) == session
    replaced = open_folders(cast.alice, session.started_at + timedelta(minutes=5))
    assert replaced != session and replaced.mounts.count() == 2
    session.refresh_from_db()
    assert session.status == Status.TERMINATING


@pytest.mark.parametrize("rights", ["view", None])
def test_one_that_mounts_a_folder_which_is_no_longer_shared_is_closed_and_replaced(
    cast: Cast, rights: str | None
) -> None:
    ready_folder(cast.alice, "data")
    lent = ready_folder(cast.bob, "lent")
    grant = FolderGrant.objects.create(
        folder=lent, user=cast.alice, rights="edit", kind="invitation", accepted_at=NOW, created_at=NOW
    )
    session = open_folders(cast.alice, NOW)
    run(session)
    assert reach(cast.alice, "shell", session_id=session.pk) and lost_folders(session) == []
    if rights is None:
        grant.delete()
    else:
        FolderGrant.objects.update(rights=rights)
    assert lost_folders(session) == ["lent"]
    purposes: tuple[Purpose, ...] = ("shell", "files", "home")
    for purpose in purposes:
        with pytest.raises(Denied) as denied:
            reach(cast.alice, purpose, session_id=session.pk)
        assert denied.value.code == "folder-revoked" and "lent" in denied.value.message
    replaced = open_folders(cast.alice, session.started_at)
    session.refresh_from_db()
    assert session.status == Status.TERMINATING
    left = dict(replaced.mounts.values_list("folder_name", "rights"))
    assert left == ({"data": "edit"} if rights is None else {"data": "edit", "lent": "view"})


def test_it_takes_an_image_that_an_agent_has_before_one_that_must_be_fetched(cast: Cast) -> None:
    ready_folder(cast.alice, "data")
    agent, other = make_agent("a1"), make_image("there", size_bytes=10**9)
    Image.objects.filter(name="python").update(size_bytes=10)
    assert open_folders(cast.alice, NOW).image.name == "python"
    ComputeSession.objects.all().delete()
    ImageOnAgent.objects.create(agent=agent, reference=other.reference)
    assert open_folders(cast.alice, NOW).image.name == "there"


def test_two_clients_at_once_share_one_session(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other client launches it after ours has looked."""
    ready_folder(cast.alice, "data")

    def launch(owner: User, spec: SessionSpec) -> ComputeSession:
        create_session(owner, replace(spec, name="folders-other"))
        return create_session(owner, spec)

    monkeypatch.setattr(system_sessions, "create_session", launch)
    assert open_folders(cast.alice, NOW).name == "folders-other"
    assert ComputeSession.objects.count() == 1


def test_it_opens_what_one_agent_can_mount_and_names_the_rest(cast: Cast, client: Client) -> None:
    near, far = make_agent("near"), make_agent("far")
    local, foreign = storage_host("local", near, can_read_only=False), storage_host("foreign", far)
    broken = storage_host("broken", near, fault="it is not mounted")
    for name, host in (("data", local), ("more", local), ("distant", foreign), ("lost", broken)):
        ready_folder(cast.alice, name, host=host)
    lent = ready_folder(cast.bob, "lent", host=local)
    FolderGrant.objects.create(
        folder=lent, user=cast.alice, rights="view", kind="invitation", accepted_at=NOW, created_at=NOW
    )
    session = open_folders(cast.alice, NOW)
    assert sorted(session.mounts.values_list("folder_name", flat=True)) == ["data", "more"]
    assert left_out(cast.alice, session) == ["distant", "lost", "lent"]
    client.force_login(cast.alice)
    page = client.get("/folders/sftp/").content.decode()
    assert all(f"<bdi>{name}</bdi>" in page for name in ("distant", "lost", "lent"))
    assert client.post("/api/v1/system-sessions/").json()["left_out"] == ["distant", "lost", "lent"]
    run(session)
    assert open_folders(cast.alice, session.started_at + timedelta(minutes=5)) == session, "no better one can be made"


def test_it_opens_so_many_folders_and_names_the_rest(cast: Cast) -> None:
    for number in range(MOST_MOUNTS + 2):
        ready_folder(cast.alice, f"data-{number:02}")
    session = open_folders(cast.alice, NOW)
    assert session.mounts.count() == MOST_MOUNTS and left_out(cast.alice, session) == ["data-32", "data-33"]


def test_it_goes_to_a_group_whose_agents_mount_the_folders(cast: Cast) -> None:
    make_agent("plain")
    other = make_group("storage")
    host = storage_host("local", make_agent("mounts", group=other))
    ready_folder(cast.alice, "data", host=host)
    assert open_folders(cast.alice, NOW).resource_group == other


def test_what_is_missing_is_said(cast: Cast) -> None:
    with pytest.raises(UserError) as refused:
        open_folders(cast.alice, NOW)
    assert refused.value.code == "no-folders"
    folder = ready_folder(cast.alice, "data")
    group = make_session(cast.alice).resource_group
    group.allowed_session_types = ["interactive"]
    group.save()
    with pytest.raises(UserError) as refused:
        open_folders(cast.alice, NOW)
    assert refused.value.code == "session-type-not-allowed" and folder.name == "data"
    with pytest.raises(UserError) as refused:
        make_session(cast.alice, name="folders")
    assert refused.value.code == "reserved-name"


def test_page_and_rest_start_it(cast: Cast, client: Client) -> None:
    ready_folder(cast.alice, "data")
    client.force_login(cast.alice)
    page = client.get("/folders/sftp/").content.decode()
    assert "sftp -P 2200 folders@testserver" in page and "Start now" in page
    assert client.post("/folders/sftp/").status_code == 302
    [session] = ComputeSession.objects.filter(owner=cast.alice)
    assert session.name in client.get("/folders/sftp/").content.decode()
    told = client.post("/api/v1/system-sessions/").json()
    assert (told["id"], told["user"], set(told["commands"])) == (str(session.pk), "folders", {"sftp", "scp", "rsync"})

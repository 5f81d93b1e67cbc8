"""Folders in a launch: what may be mounted where, and what keeps them out of the trash."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.wire.messages import KernelState
from backendai.domain.accounts.models import Dotfile
from backendai.domain.compute.models import ComputeSession, SessionMount
from backendai.domain.compute.services.agents.kernel_specs import spec_for, specs_for
from backendai.domain.compute.services.agents.manifests import manifest_of, mounts_of, read_manifest
from backendai.domain.compute.services.launching.create import create_session
from backendai.domain.compute.services.launching.recent import parameters_of
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.requests.mounts import resolve_mounts, take_mounts
from backendai.domain.compute.spec import LaunchFile, MountRequest, SessionSpec
from backendai.domain.compute.spec_document import digest_of
from backendai.domain.storage.models import Folder, FolderGrant, HostOnAgent
from backendai.domain.storage.status import FolderStatus, Rights, Usage
from tests.cast import Cast
from tests.factories import make_agent, make_running_session, make_session, place, report_of
from tests.mount_tools import ready_folder, storage_host

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
HOME = "/home/work"


def launch(cast: Cast, *wishes: MountRequest, **over: Any) -> ComputeSession:
    return make_session(cast.alice, mounts=wishes, **over)


def refusal(cast: Cast, *wishes: MountRequest, **over: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        launch(cast, *wishes, **over)
    assert not ComputeSession.objects.exists()
    return caught.value


def mounted(session: ComputeSession) -> list[tuple[str, str, str]]:
    return [(row.folder_name, row.target, row.rights) for row in session.mounts.all()]


def test_a_folder_is_mounted_by_its_name_under_an_alias_or_elsewhere(cast: Cast) -> None:
    for name in ("data", "set", "models"):
        ready_folder(cast.alice, name)
    wishes = (MountRequest("data"), MountRequest("set", target="train/set"), MountRequest("models", target="/models"))
    session = launch(cast, *wishes, start_in="set")
    assert mounted(session) == [
        ("data", f"{HOME}/data", "edit"),
        ("set", f"{HOME}/train/set", "edit"),
        ("models", "/models", "edit"),
    ]
    assert (session.mount_count, session.start_in) == (3, f"{HOME}/train/set")
    assert [folder.version for folder in Folder.objects.all()] == [2, 2, 2]


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/home/work", "invalid-mount-path"),
        ("/home", "invalid-mount-path"),
        ("/", "invalid-mount-path"),
        ("/etc/x", "invalid-mount-path"),
        ("/tmp", "invalid-mount-path"),
        (".ssh", "invalid-mount-path"),
        ("/home/work/.bootstrap.sh", "invalid-mount-path"),
        ("a/../b", "invalid-mount-path"),
        ("a//b", "invalid-mount-path"),
        ("a\n", "invalid-mount-path"),
        ("x" * 250, "invalid-mount-path"),
        ("notes.txt/deep", "mount-path-taken"),
        (".config", "mount-path-taken"),
    ],
)
def test_a_reserved_or_taken_path_is_refused_at_the_field(cast: Cast, target: str, code: str) -> None:
    ready_folder(cast.alice)
    Dotfile.objects.create(user=cast.alice, path=".config/app", content="x")
    error = refusal(cast, MountRequest("data", target=target), files=[LaunchFile("notes.txt", "x")])
    assert (error.field, error.code) == ("mounts", code)


def test_paths_that_are_the_same_or_inside_one_another_are_refused(cast: Cast) -> None:
    ready_folder(cast.alice, "one")
    ready_folder(cast.alice, "two")
    for target in ("one", "one/inside", f"{HOME}/one"):
        error = refusal(cast, MountRequest("one"), MountRequest("two", target=target))
        assert (error.field, error.code) == ("mounts", "mount-path-taken")


def test_the_same_folder_can_be_mounted_in_two_parts(cast: Cast) -> None:
    ready_folder(cast.alice)
    session = launch(cast, MountRequest("data", path="a", target="a"), MountRequest("data", path="b/c", target="b"))
    assert [(row.sub_path, row.target) for row in session.mounts.all()] == [("a", f"{HOME}/a"), ("b/c", f"{HOME}/b")]


@pytest.mark.parametrize("path", ["..", "/abs", "a/../../b", "a\0b", "a//b"])
def test_a_sub_path_stays_inside(cast: Cast, path: str) -> None:
    ready_folder(cast.alice)
    assert refusal(cast, MountRequest("data", path=path)).code == "invalid-sub-path"


def test_a_folder_of_models_is_mounted_read_only_unless_writing_is_asked_for(cast: Cast) -> None:
    ready_folder(cast.alice, "weights", usage=Usage.MODEL)
    ready_folder(cast.alice, ".models", usage=Usage.MODEL)
    assert mounted(launch(cast, MountRequest("weights"))) == [
        (".models", f"{HOME}/.models", "view"),
        ("weights", f"{HOME}/weights", "view"),
    ]
    assert mounted(launch(cast, MountRequest("weights", rights="edit")))[1][2] == "edit"


def test_rights_are_at_most_those_granted(cast: Cast) -> None:
    folder = ready_folder(cast.bob)
    grant = FolderGrant.objects.create(folder=folder, user=cast.alice, rights=Rights.VIEW)
    assert refusal(cast, MountRequest("data")).code == "unknown-folder"  # an invitation alone gives nothing
    grant.accepted_at = timezone.now()
    grant.save()
    error = refusal(cast, MountRequest("data", rights="edit"))
    assert (error.code, error.field) == ("rights-not-granted", "mounts")
    assert mounted(launch(cast, MountRequest("data"))) == [("data", f"{HOME}/data", "view")]


def test_an_editor_may_mount_read_only_and_a_linked_folder_is_never_more(cast: Cast) -> None:
    ready_folder(cast.alice)
    ready_folder(cast.alice, "linked", linked_path="/data/imagenet")
    assert refusal(cast, MountRequest("linked", rights="edit")).code == "rights-not-granted"
    session = launch(cast, MountRequest("data", rights="view"), MountRequest("linked"))
    assert [row.rights for row in session.mounts.all()] == ["view", "view"]
    assert refusal_code(cast, MountRequest("data", rights="own")) == "invalid-rights"


def refusal_code(cast: Cast, wish: MountRequest) -> str:
    with pytest.raises(UserError) as caught:
        launch(cast, wish)
    return caught.value.code


def test_what_is_foreign_in_the_trash_or_ambiguous_is_refused_in_words(cast: Cast) -> None:
    ready_folder(cast.charlie, "secret")
    ready_folder(cast.alice, "old", status=FolderStatus.TRASHED)
    assert refusal(cast, MountRequest("secret")).code == "unknown-folder"
    error = refusal(cast, MountRequest("old"))
    assert error.code == "folder-not-ready" and "in the trash" in error.message
    for owner in (cast.bob, cast.dana):
        folder = ready_folder(owner, "shared")
        FolderGrant.objects.create(folder=folder, user=cast.alice, rights=Rights.EDIT, accepted_at=timezone.now())
    assert refusal(cast, MountRequest("shared")).code == "ambiguous-folder"
    mine = ready_folder(cast.alice, "shared")
    assert launch(cast, MountRequest("shared")).mounts.get().folder == mine
    assert launch(cast, MountRequest(str(folder.pk))).mounts.get().folder == folder


@pytest.mark.parametrize(
    ("wishes", "over", "start"),
    [
        ({"kept": "edit"}, {}, f"{HOME}/kept"),
        ({"kept": "edit", "read": "view"}, {"session_type": "batch", "startup_command": "true"}, f"{HOME}/kept"),
        ({"kept": "edit"}, {"start_in": HOME}, ""),
        ({"kept": "edit", "read": "view"}, {"start_in": "read"}, f"{HOME}/read"),
        ({"kept": "edit", "other": "edit"}, {}, ""),
        ({"read": "view"}, {}, ""),
        ({}, {}, ""),
    ],
)
def test_programs_start_in_the_only_folder_that_keeps_what_they_write(
    cast: Cast, wishes: dict[str, str], over: dict[str, Any], start: str
) -> None:
    for name in ("kept", "read", "other", ".cache"):
        ready_folder(cast.alice, name)
    mounts = [MountRequest(name, rights=rights) for name, rights in wishes.items()]
    session = launch(cast, *mounts, **over)
    assert session.start_in == start
    again = parameters_of(session)
    assert again["start_in" if start else "version"] == (start or 1)
    assert make_session(cast.alice, mounts=mounts, start_in=again.get("start_in", "")).start_in == start


def test_too_many_and_an_unknown_start_are_refused(cast: Cast) -> None:
    ready_folder(cast.alice)
    wishes = [MountRequest("data", target=f"t{number}") for number in range(33)]
    assert refusal(cast, *wishes).code == "too-many-mounts"
    error = refusal(cast, wishes[0], start_in="elsewhere")
    assert (error.field, error.code) == ("start_in", "unknown-start")


def test_dot_folders_are_mounted_by_themselves_unless_something_is_in_the_way(cast: Cast) -> None:
    ready_folder(cast.alice, ".cache")
    ready_folder(None, ".cache", project=cast.project)
    ready_folder(None, ".tools", project=cast.project)
    ready_folder(cast.alice, ".ssh")
    ready_folder(cast.alice, ".config")
    ready_folder(None, ".elsewhere", project=cast.elsewhere)
    Dotfile.objects.create(user=cast.alice, path=".config/app", content="x")
    session = launch(cast)
    assert mounted(session) == [(".cache", f"{HOME}/.cache", "edit"), (".tools", f"{HOME}/.tools", "edit")]
    assert all(row.is_automatic for row in session.mounts.all())
    assert session.mounts.get(folder_name=".cache").folder.user == cast.alice
    data = ready_folder(cast.alice)
    session = launch(cast, MountRequest("data", target=".cache"))
    assert session.mounts.get(target=f"{HOME}/.cache").folder == data


def test_a_folder_that_was_trashed_since_the_check_stops_the_launch(cast: Cast) -> None:
    folder, automatic = ready_folder(cast.alice), ready_folder(cast.alice, ".auto")
    found = resolve_mounts(cast.alice, cast.project, SessionSpec(image="x", mounts=[MountRequest("data")]))
    Folder.objects.filter(pk=automatic.pk).update(status=FolderStatus.TRASHED)
    assert [one.folder_id for one in take_mounts(found)] == [folder.pk]
    Folder.objects.filter(pk=folder.pk).update(status=FolderStatus.TRASHED)
    with pytest.raises(UserError) as caught:
        take_mounts(found)
    assert (caught.value.field, caught.value.code) == ("mounts", "folder-not-ready")


def test_a_trash_that_looked_before_the_launch_sees_another_version(cast: Cast) -> None:
    folder = ready_folder(cast.alice)
    launch(cast, MountRequest("data"))
    trash = Folder.objects.filter(pk=folder.pk, status=FolderStatus.READY, version=folder.version)
    assert trash.update(status=FolderStatus.TRASHED) == 0


def test_mounts_are_released_with_the_end_of_the_session(cast: Cast) -> None:
    ready_folder(cast.alice)
    agent = make_agent()
    storage_host("local", agent)
    session = make_running_session(cast.alice, agent, mounts=[MountRequest("data")])
    waiting = launch(cast, MountRequest("data"))
    assert SessionMount.objects.filter(released_at=None).count() == 2
    terminate_session(waiting, cast.alice)
    assert waiting.mounts.get().released_at is not None
    terminate_session(session, cast.alice)
    assert session.mounts.get().released_at is None  # its kernel still runs
    place_ended(session, agent)
    assert session.mounts.get().released_at is not None


def place_ended(session: ComputeSession, agent: Any) -> None:
    for kernel in session.kernels.all():
        kernel_reported(agent, report_of(kernel, KernelState.TERMINATED, exit_code=0))


def test_the_agent_gets_the_mounts_of_every_kernel(cast: Cast) -> None:
    agent = make_agent()
    host = storage_host("gpu3-disk", agent)
    folder = ready_folder(cast.alice, host=host)
    session = launch(cast, MountRequest("data", target="/data", path="a"), cluster_size=2, start_in="/data")
    place(session, agent)
    ids = {kernel.pk: agent for kernel in session.kernels.all()}
    for spec in [*specs_for(ids).values(), *(spec_for(agent, pk) for pk in ids)]:
        assert spec.start_in == "/data"
        (mount,) = spec.mounts
        assert asdict_of(mount) == {
            "host": "gpu3-disk", "folder_id": folder.pk, "folder_name": "data", "sub_path": "a", "target": "/data",
            "rights": "edit", "linked_path": "", "is_automatic": False,
        }  # fmt: skip


def asdict_of(mount: Any) -> dict[str, Any]:
    return dict(mount.model_dump())


def test_automatic_mounts_are_left_out_where_the_agent_cannot_make_them(cast: Cast) -> None:
    agent = make_agent()
    host = storage_host("local", agent)
    ready_folder(cast.alice, ".cache", host=host)
    session = launch(cast)
    place(session, agent)
    kernel = session.kernels.get()
    assert [mount.folder_name for mount in spec_for(agent, kernel.pk).mounts] == [".cache"]
    HostOnAgent.objects.update(fault="The share is not mounted.")
    assert spec_for(agent, kernel.pk).mounts == []


def test_a_session_without_folders_costs_its_spec_no_query_more(
    cast: Cast,
) -> None:
    agent = make_agent()
    plain = launch(cast)
    place(plain, agent)
    kernel = plain.kernels.get()
    spec_for(agent, kernel.pk)
    with CaptureQueriesContext(connection) as queries:
        spec_for(agent, kernel.pk)
    assert not any("mount" in query["sql"] and "storage" in query["sql"] for query in queries.captured_queries)


def test_the_manifest_brings_the_mounts_back(cast: Cast) -> None:
    agent = make_agent()
    folder = ready_folder(cast.alice, host=storage_host("local", agent))
    session = launch(cast, MountRequest("data", path="a"))
    place(session, agent)
    manifest = read_manifest(manifest_of(session.kernels.get(), agent, session.mounts.all()))
    (row,) = mounts_of(manifest, {folder.pk})
    assert (row.folder_id, row.folder_name, row.sub_path, row.target) == (folder.pk, "data", "a", f"{HOME}/data")
    (row,) = mounts_of(manifest, {uuid4()})
    assert row.folder_id is None


def test_folders_are_a_part_of_what_makes_two_requests_the_same(cast: Cast) -> None:
    spec = SessionSpec(image="python", resources={"cpu": 1})
    assert digest_of(spec) != digest_of(replace(spec, mounts=[MountRequest("data")]))


def test_an_administrator_mounts_what_the_owner_may(cast: Cast) -> None:
    ready_folder(cast.alice)
    ready_folder(cast.dana, "danas")
    make_session(cast.alice)
    spec = SessionSpec(image="python", resources={"cpu": 1, "mem": "512m"}, owner="alice@example.com")
    assert create_session(cast.dana, replace(spec, mounts=[MountRequest("data")])).mount_count == 1
    with pytest.raises(UserError):
        create_session(cast.dana, replace(spec, mounts=[MountRequest("danas")]))

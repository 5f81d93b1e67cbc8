"""Folders that something needs although no session mounts them now stay out of the trash."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from backendai.base.core.errors import Conflict, UserError
from backendai.domain.compute.services.requests.mounts import resolve_mounts
from backendai.domain.compute.spec import MountRequest, SessionSpec
from backendai.domain.pipelines.services.changing import cancel_run
from backendai.domain.serving.models import DesiredState, Endpoint, Revision
from backendai.domain.storage.claims import claims_on
from backendai.domain.storage.models import Folder, FolderGrant
from backendai.domain.storage.services import trash_folder
from backendai.domain.storage.status import FolderStatus, GrantKind, Rights
from tests.cast import Cast
from tests.effort import some
from tests.mount_tools import ready_folder
from tests.pipelines.world import ARRAY, launch
from tests.serving.world import a_revision, make_endpoint

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
NOW = timezone.now()


def refusal(folder: Folder, cast: Cast) -> str:
    with pytest.raises(Conflict) as refused:
        trash_folder(folder, cast.alice, now=NOW)
    assert refused.value.code == "folder-needed"
    return str(refused.value.message)


@some("by_id", [False, True], 2)
@pytest.mark.parametrize("change", [{"wish": DesiredState.STOPPED}, {"minimum": 0}])
def test_an_endpoint_without_replicas_keeps_its_folder(cast: Cast, by_id: bool, change: dict[str, Any]) -> None:
    folder = ready_folder(cast.alice, "model")
    other = ready_folder(cast.bob, "model")
    mount = MountRequest(str(folder.pk) if by_id else "model")
    endpoint = make_endpoint(cast.alice, "chat", revision=a_revision(mounts=[mount]))
    Endpoint.objects.filter(pk=endpoint.pk).update(**change)
    assert "the endpoint chat of alice@example.com" in refusal(folder, cast)
    assert trash_folder(other, cast.bob, now=NOW).status == FolderStatus.TRASHED  # of the same name, not meant
    Endpoint.objects.filter(pk=endpoint.pk).update(deleted_at=NOW)
    assert trash_folder(folder, cast.alice, now=NOW).status == FolderStatus.TRASHED


def test_a_waiting_element_of_a_run_keeps_its_folder(cast: Cast) -> None:
    folder = ready_folder(cast.alice, "data")
    run = launch(cast.alice, **ARRAY, name="sweep", array=3, mounts=[{"folder": "data"}])
    assert f"the run {run.name} of alice@example.com" in refusal(folder, cast)
    cancel_run(run, cast.alice, now=NOW)
    assert trash_folder(folder, cast.alice, now=NOW).status == FolderStatus.TRASHED


def test_a_role_of_a_waiting_element_keeps_its_folder(cast: Cast) -> None:
    folder, other = ready_folder(cast.alice, "data"), ready_folder(cast.bob, "notes")
    roles = {"worker": {"mounts": [{"folder": "data"}]}}
    run = launch(cast.alice, **ARRAY, name="sweep", array=3, cluster_size=2, roles=roles)
    assert f"the run {run.name} of alice@example.com" in refusal(folder, cast)
    assert trash_folder(other, cast.bob, now=NOW).status == FolderStatus.TRASHED


def test_the_number_of_queries_does_not_grow_with_endpoints_and_runs(
    cast: Cast, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    folder = ready_folder(cast.alice, "data")
    for number in range(3):
        for owner in (cast.alice, cast.bob):
            ready_folder(owner, f"other-{number}")
            revision = a_revision(mounts=[MountRequest(f"other-{number}")])
            make_endpoint(owner, f"chat-{owner.email[:3]}-{number}", revision=revision)
            launch(owner, **ARRAY, name=f"sweep-{number}", array=2, mounts=[{"folder": f"other-{number}"}])
    with django_assert_num_queries(2):
        assert claims_on(folder, most=9) == []


def test_a_name_claims_the_folder_that_a_launch_would_mount(cast: Cast) -> None:
    owners: dict[str, Any] = {
        "owner": {"owner": cast.bob},
        "project": {"owner": None, "project": cast.project},
        "project without rights": {"owner": None, "project": cast.project, "member_rights": Rights.NONE},
        "grant": {"owner": cast.alice},
        "stranger": {"owner": cast.charlie},
    }
    endpoint = make_endpoint(cast.bob, "chat", revision=a_revision())
    Revision.objects.filter(pk=endpoint.current_id).update(mounts=[{"folder": "model"}])
    spec, claimed = SessionSpec("python", mounts=(MountRequest("model"),)), set()
    for one, other in combinations(owners, 2):
        if one == "project" and other == "project without rights":
            continue  # a project has a name once
        folders = {place: ready_folder(name="model", **owners[place]) for place in (one, other)}
        if "grant" in folders:
            told = {"rights": Rights.VIEW, "kind": GrantKind.INVITATION, "accepted_at": NOW}
            FolderGrant.objects.create(folder=folders["grant"], user=cast.bob, **told)
        try:
            meant = {mount.folder_id for mount in resolve_mounts(cast.bob, cast.project, spec)}
        except UserError:
            meant = set()
        for place, folder in folders.items():
            assert bool(claims_on(folder, most=1)) is (folder.pk in meant), (place, list(folders))
            claimed |= {place} if folder.pk in meant else set()
        Folder.objects.all().delete()
    assert claimed == {"owner", "project", "grant"}


def test_an_endpoint_of_somebody_without_rights_keeps_no_folder(cast: Cast) -> None:
    folder = ready_folder(cast.bob, "model")
    endpoint = make_endpoint(cast.bob, "chat", revision=a_revision(mounts=[MountRequest(str(folder.pk))]))
    Endpoint.objects.filter(pk=endpoint.pk).update(wish=DesiredState.STOPPED)
    Folder.objects.filter(pk=folder.pk).update(user=cast.alice)
    folder.refresh_from_db()
    assert trash_folder(folder, cast.alice, now=NOW).status == FolderStatus.TRASHED

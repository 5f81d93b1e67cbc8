"""Folders that something needs although no session mounts them now stay out of the trash."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from backendai.compute.spec import MountWish
from backendai.core.errors import Conflict
from backendai.pipelines.services.changing import cancel_run
from backendai.serving.models import Endpoint, Wish
from backendai.storage.models import Folder
from backendai.storage.services import trash_folder
from backendai.storage.status import FolderStatus
from tests.cast import Cast
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


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("change", [{"wish": Wish.STOPPED}, {"minimum": 0}])
def test_an_endpoint_without_replicas_keeps_its_folder(cast: Cast, by_id: bool, change: dict[str, Any]) -> None:
    folder = ready_folder(cast.alice, "model")
    other = ready_folder(cast.bob, "model")
    mount = MountWish(str(folder.pk) if by_id else "model")
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


def test_an_endpoint_of_somebody_without_rights_keeps_no_folder(cast: Cast) -> None:
    folder = ready_folder(cast.bob, "model")
    endpoint = make_endpoint(cast.bob, "chat", revision=a_revision(mounts=[MountWish(str(folder.pk))]))
    Endpoint.objects.filter(pk=endpoint.pk).update(wish=Wish.STOPPED)
    Folder.objects.filter(pk=folder.pk).update(user=cast.alice)
    folder.refresh_from_db()
    assert trash_folder(folder, cast.alice, now=NOW).status == FolderStatus.TRASHED

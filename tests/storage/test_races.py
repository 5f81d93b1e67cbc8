"""Two at once: policies are not exceeded, and a folder is either mounted or in the trash."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from backendai.base.core.errors import Conflict
from backendai.domain.accounts.models import ResourcePolicy
from backendai.domain.compute.models import ComputeSession, SessionMount
from backendai.domain.storage.models import Folder
from backendai.domain.storage.services import create_folder, restore_folder, set_limit, trash_folder
from backendai.domain.storage.status import FolderStatus
from tests.cast import Cast, make_cast
from tests.factories import make_session
from tests.storage.fake_file_server import FakeFileServer, make_host, serving

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]
NOW = timezone.now()
ROUNDS = [*range(3), *(pytest.param(number, marks=pytest.mark.long) for number in range(3, 30))]


@pytest.fixture
def people() -> Iterator[Cast]:
    cast = make_cast()
    with serving(FakeFileServer()) as files:
        make_host(files)
        yield cast


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Run the calls in threads that begin together; return their answers in order, a refusal as its code."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        try:
            connection.ensure_connection()
            barrier.wait(60)
            return call()
        except Conflict as error:
            return error.code
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(120) for future in [pool.submit(run, call) for call in calls]]


def test_of_many_folders_at_once_as_many_are_made_as_the_policy_allows(people: Cast) -> None:
    people.alice.policy = ResourcePolicy.objects.create(name="few", max_folders=3, max_folder_bytes=100)
    people.alice.save()

    def create(number: int) -> Callable[[], str]:
        return lambda: create_folder(people.alice, name=f"data-{number}", limit_bytes=10, now=NOW).status

    answers = Counter(at_once(*(create(number) for number in range(8))))
    assert answers == {FolderStatus.READY: 3, "too-many-folders": 5}


def test_limits_that_are_raised_at_once_stay_within_the_policy(people: Cast) -> None:
    people.alice.policy = ResourcePolicy.objects.create(name="small", max_folder_bytes=100)
    people.alice.save()
    folders = [create_folder(people.alice, name=f"data-{number}", limit_bytes=10, now=NOW) for number in range(4)]
    trashed = trash_folder(folders.pop(), people.alice, now=NOW)

    def grow(folder: Folder) -> Callable[[], str]:
        return lambda: str(set_limit(folder, people.alice, 70, now=NOW).limit_bytes)

    answers = at_once(*(grow(folder) for folder in folders), lambda: restore_folder(trashed, people.alice, now=NOW))
    assert [str(answer) for answer in answers].count("70") == 1
    assert sum(Folder.objects.filter(status="READY").values_list("limit_bytes", flat=True)) <= 100


@pytest.mark.parametrize("attempt", ROUNDS)
def test_a_folder_is_mounted_or_trashed_and_never_both(people: Cast, attempt: int) -> None:
    folder = create_folder(people.alice, name="data", now=NOW)
    sessions = [make_session(people.alice) for _ in range(3)]

    def mount(session: ComputeSession) -> Callable[[], str]:
        def call() -> str:
            with transaction.atomic():
                ready = Folder.objects.filter(pk=folder.pk, status=FolderStatus.READY)
                if not ready.update(version=F("version") + 1):
                    return "not-ready"
                values = {"folder_name": folder.name, "target": "/home/work/data", "rights": "edit"}
                SessionMount.objects.create(session=session, folder=folder, **values)
            return "mounted"

        return call

    answers = at_once(
        *(mount(session) for session in sessions), lambda: trash_folder(folder, people.alice, now=NOW).status
    )
    folder.refresh_from_db()
    mounts = SessionMount.objects.filter(folder=folder).count()
    if folder.status == FolderStatus.TRASHED:
        assert (answers, mounts) == (["not-ready"] * 3 + [FolderStatus.TRASHED], 0)
    else:
        assert (answers[:3], mounts, answers[3]) == (["mounted"] * 3, 3, "folder-mounted")


def test_of_two_who_trash_it_at_once_one_does(people: Cast) -> None:
    folder = create_folder(people.alice, name="data", now=NOW)

    def trash() -> str:
        return trash_folder(folder, people.alice, now=NOW).status

    assert Counter(at_once(trash, trash)) == {FolderStatus.TRASHED: 1, "folder-status": 1}


def test_of_two_folders_of_a_name_at_once_one_is_made(people: Cast) -> None:
    def create() -> str:
        return create_folder(people.alice, name="data", now=NOW).status

    assert Counter(at_once(create, create)) == {FolderStatus.READY: 1, "name-taken": 1}

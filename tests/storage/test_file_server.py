"""Asking file servers: deadlines, few calls at once, tickets, and what a refusal becomes."""

from __future__ import annotations

import threading
from typing import Any
from uuid import uuid4

import pytest
from django.test import override_settings

from backendai.base.wire.tickets import new_private_key
from backendai.domain.storage import file_server
from backendai.domain.storage.file_server import FileServerClient, FileServerError, StorageSilent, line_to
from backendai.domain.storage.models import StorageHost
from tests.patience import patient, until
from tests.storage.fake_file_server import FakeFileServer

FOLDER = uuid4()


@pytest.fixture
def client(files: FakeFileServer) -> FileServerClient:
    return FileServerClient(StorageHost(name=files.name, address=files.address))


def ask(client: FileServerClient) -> dict[str, object]:
    return client.call("GET", f"/v1/folders/{FOLDER}", folder_id=FOLDER, version=1, rights="manage")


def test_an_answer_is_returned(client: FileServerClient) -> None:
    assert ask(client) == {"state": "absent"}


def test_a_refusal_keeps_its_status_code_and_words(client: FileServerClient, files: FakeFileServer) -> None:
    files.refuses = (409, "exists")
    with pytest.raises(FileServerError) as refused:
        ask(client)
    assert (refused.value.status, refused.value.code, refused.value.message) == (409, "exists", "It is exists.")
    assert not isinstance(refused.value, StorageSilent)


@pytest.mark.parametrize("status", [500, 503])
def test_a_fault_of_the_server_can_be_tried_again(client: FileServerClient, files: FakeFileServer, status: int) -> None:
    files.refuses = (status, "storage-missing")
    with pytest.raises(StorageSilent) as refused:
        ask(client)
    assert (refused.value.status, refused.value.code) == (503, "storage-missing")


def test_a_ticket_of_another_portal_opens_nothing(client: FileServerClient, files: FakeFileServer) -> None:
    key = new_private_key()
    with override_settings(TICKET_KEY=key):
        token = file_server.sign_folder_ticket(
            key, host="local", folder_id=FOLDER, version=1, rights="manage", now=2**40
        )
    assert files.answer("GET", f"/v1/folders/{FOLDER}", {}, None, token)[0] == 401


def test_a_server_that_is_not_there_is_silent_and_asked_again_at_once(files: FakeFileServer) -> None:
    client = FileServerClient(StorageHost(name="gone", address="http://127.0.0.1:1"))
    with pytest.raises(StorageSilent) as refused:
        ask(client)
    assert refused.value.code == "storage-silent"
    assert line_to("http://127.0.0.1:1").silent_until == 0


def test_a_server_that_hangs_is_given_up_and_then_refused_at_once(
    client: FileServerClient, files: FakeFileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_server, "DEADLINE_SECONDS", 0.2)
    files.hangs = True
    with pytest.raises(StorageSilent):
        ask(client)
    files.hangs = False
    with pytest.raises(StorageSilent, match="Try again in a few seconds"):
        ask(client)
    assert files.asked == [] or len(files.asked) == 1, "the second call never left"
    line_to(files.address).silent_until = 0
    assert ask(client) == {"state": "absent"}


def test_a_slow_call_does_not_make_a_host_silent_that_answers_others(
    client: FileServerClient, files: FakeFileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_server, "DEADLINE_SECONDS", 0.5)
    answer, slow = files.answer, threading.Event()

    def answer_others(method: str, path: str, *more: Any) -> tuple[int, Any]:
        if threading.current_thread() is not first_thread[0]:
            return answer(method, path, *more)
        slow.wait(patient(10))
        return 200, {}

    first_thread: list[threading.Thread] = []

    def take_first(*asked: Any) -> tuple[int, Any]:
        if not first_thread:
            first_thread.append(threading.current_thread())
        return answer_others(*asked)

    files.answer = take_first  # type: ignore[method-assign]
    refused: list[StorageSilent] = []

    def ask_slowly() -> None:
        try:
            ask(client)
        except StorageSilent as error:
            refused.append(error)

    caller = threading.Thread(target=ask_slowly)
    caller.start()
    while not first_thread:
        threading.Event().wait(0.01)
    assert ask(client) == {"state": "absent"}
    caller.join()
    assert refused and ask(client) == {"state": "absent"}
    slow.set()


def test_only_a_few_calls_wait_for_one_host(
    client: FileServerClient, files: FakeFileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.hangs = True
    waiting = [threading.Thread(target=lambda: ask(client)) for _ in range(file_server.MOST_AT_ONCE)]
    for thread in waiting:
        thread.start()
    line = line_to(files.address)
    until(lambda: line._slots._value == 0, what="each of them has a slot")  # type: ignore[attr-defined]
    monkeypatch.setattr(file_server, "DEADLINE_SECONDS", 0.1)
    with pytest.raises(StorageSilent) as refused:
        ask(client)
    assert refused.value.code == "storage-busy"
    files.hangs = False
    for thread in waiting:
        thread.join()


def test_an_answer_that_makes_no_sense_is_a_fault(client: FileServerClient, files: FakeFileServer) -> None:
    files.answer = lambda *_: (200, ["a list"])  # type: ignore[method-assign]
    with pytest.raises(StorageSilent) as refused:
        ask(client)
    assert refused.value.code == "storage-fault"

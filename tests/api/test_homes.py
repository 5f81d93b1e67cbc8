"""The home folder of a session over REST, through a real gateway, to a real guest agent in this process."""

from __future__ import annotations

import io
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from asgiref.sync import sync_to_async
from django.test import AsyncClient
from django.utils import timezone

from backendai.agent.backends.simulated import guests as simulated_guest
from backendai.agent.guest.guest import Guest
from backendai.base.wire import runs
from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.sharing import share_session, unshare_session
from backendai.gates.gateways import guests, homes
from backendai.gates.gateways.asking import NodeUnreachable
from tests.api.callers import SESSIONS, Caller
from tests.api.test_runs import node
from tests.cast import Cast
from tests.factories import make_running_session

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of the session, whose guest has files, unlike those of simulated kernels."""
    monkeypatch.setattr(guests.meter, "touch", lambda session_id: None)
    monkeypatch.setattr(
        simulated_guest, "Guest", lambda journal, start, languages, has_files: Guest(journal, start, languages)
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def session(cast: Cast, home: Path) -> Iterator[ComputeSession]:
    session = make_running_session(cast.alice)
    with node(session):
        yield session


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [1, 7, 2**20], ids=["bytes", "parts", "whole"])
async def test_tiny_chunks_of_an_archive_are_read_however_they_come(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = b"\0\0\0\1a\0\0\0\2bc" * (20 if size == 1 else 20_000) + bytes(4)

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(sent), size):
            yield sent[at : at + size]

    @asynccontextmanager
    async def answer_of(*_: object) -> AsyncIterator[Any]:
        yield {}, pieces()

    monkeypatch.setattr(homes, "answer_of", answer_of)
    async with homes.zip_of(mock.Mock(), [""]) as content:
        assert b"".join([piece async for piece in content]) == b"abc" * (20 if size == 1 else 20_000)


def put(caller: Caller, address: str, content: bytes, **headers: str) -> Any:
    return caller._client.put(address, content, content_type="application/octet-stream", headers=headers)


def test_a_home_is_filled_looked_through_changed_and_packed(cast: Cast, session: ComputeSession, home: Path) -> None:
    alice, base = Caller(cast.alice), f"{SESSIONS}{session.pk}/"
    assert alice.post(f"{base}directories/", {"path": "data"}).json()["kind"] == "directory"
    assert alice.post(f"{base}directories/", {"path": "data"}).json()["code"] == "exists"
    for name in ("a", "b", "c"):
        assert put(alice, f"{base}files/data/{name}.txt", name.encode() * 3).status_code == 201
    new = {"If-None-Match": "*"}
    assert put(alice, f"{base}files/data/c.txt?resent=1", b"ccc", **new).status_code == 201
    assert put(alice, f"{base}files/data/c.txt", b"ccc", **new).json()["code"] == "exists"
    page = alice.get(f"{base}entries/?path=data&limit=2").json()
    assert [one["name"] for one in page["entries"]] == ["a.txt", "b.txt"] and page["total"] == 3
    assert alice.get(f"{base}entries/?path=data&after={page['next']}").json()["entries"][0]["name"] == "c.txt"
    first = alice.get(f"{base}entries/?path=data&limit=2&after=").json()  # a loop may begin with no cursor
    assert (first["entries"], first["next"]) == (page["entries"], page["next"])
    assert alice.post(f"{base}moves/", {"source": "data/a.txt", "target": "z"}).json()["name"] == "z"
    taken = alice.post(f"{base}moves/", {"source": "z", "target": "data/b.txt"})
    assert (taken.status_code, taken.json()["code"]) == (409, "exists")
    assert alice.post(f"{base}moves/", {"source": "z", "target": "data/b.txt", "overwrite": True}).status_code == 200
    assert (home / "data/b.txt").read_bytes() == b"aaa"
    found = alice.get(f"{base}search/", q="C.T").json()
    assert ([one["path"] for one in found["entries"]], found["complete"]) == (["data/c.txt"], True)
    assert alice.post(f"{base}deletions/", {"paths": ["data"]}).json() == {"deleted": 1}
    assert alice.get(f"{base}entry/?path=data").status_code == 404


@pytest.mark.asyncio
async def test_a_home_is_packed_as_an_attachment(cast: Cast, session: ComputeSession, home: Path) -> None:
    (home / "data").mkdir()
    (home / "data/b.txt").write_bytes(b"aaa" * 300_000)
    caller = await sync_to_async(Caller)(cast.alice)
    headers = {"Authorization": f"Bearer {caller.token}"}
    packed = await AsyncClient().get(f"{SESSIONS}{session.pk}/archive/?path=data", headers=headers)
    assert packed.status_code == 200, packed.content
    assert "attachment" in packed["Content-Disposition"] and packed["Content-Type"] == "application/zip"
    content = b"".join([piece async for piece in packed.streaming_content])
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.read("data/b.txt") == b"aaa" * 300_000


def test_a_file_is_written_only_over_what_was_read(cast: Cast, session: ComputeSession, home: Path) -> None:
    alice, address = Caller(cast.alice), f"{SESSIONS}{session.pk}/files/a.txt"
    first = put(alice, address, b"one", **{"If-None-Match": "*"})
    assert put(alice, address, b"two", **{"If-None-Match": "*"}).json()["code"] == "exists"
    read = alice.get(address)
    assert read["ETag"] == first["ETag"] and read["Content-Disposition"].startswith("attachment")
    assert read["X-Content-Type-Options"] == "nosniff" and read["Content-Type"] == "application/octet-stream"
    assert put(alice, address, b"two", **{"If-Match": read["ETag"]}).status_code == 201
    late = put(alice, address, b"three", **{"If-Match": read["ETag"]})
    assert (late.status_code, late.json()["code"]) == (412, "changed")
    assert (home / "a.txt").read_bytes() == b"two"


def test_strangers_reach_no_home_and_odd_paths_leave_it_nowhere(cast: Cast, session: ComputeSession) -> None:
    base = f"{SESSIONS}{session.pk}/"
    charlie, alice = Caller(cast.charlie), Caller(cast.alice)
    for part in ("entries/", "entry/", "search/?q=a", "archive/"):
        assert charlie.get(base + part).status_code == 404
    for part, body in (("directories/", {"path": "x"}), ("deletions/", {"paths": ["x"]})):
        assert charlie.post(base + part, body).status_code == 404
    for path in ("../etc", "/../../etc", "a/../../b", "//raw:Li4vZXRj", "x" * 4096):
        assert alice.get(f"{base}entries/?path={path}").status_code in (400, 404)
        assert alice.post(f"{base}moves/", {"source": path, "target": "y"}).status_code in (400, 404)
    assert alice.post(f"{base}deletions/", {"paths": [""]}).status_code == 400
    assert alice.get(f"{base}entries/", limit=5000).json()["field"] == "limit"


def test_an_agent_of_an_older_version_is_named(
    cast: Cast, session: ComputeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = runs.OPERATIONS - {"list"}
    monkeypatch.setattr("backendai.agent.gateway.guest.OPERATIONS", older)
    refused = Caller(cast.alice).get(f"{SESSIONS}{session.pk}/entries/")
    assert (refused.status_code, refused.json()["code"]) == (409, "agent-too-old")


@pytest.mark.asyncio
async def test_a_download_of_a_guest_breaks_off_when_the_sharing_ends(
    cast: Cast, session: ComputeSession, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backendai.portal.api.pipelines.runs.RECHECK_SECONDS", 0.0)
    now, size = timezone.now(), 32 * 2**20
    (home / "large").write_bytes(bytes(size))
    share = await sync_to_async(share_session)(session, cast.alice, "use", email=cast.bob.email, now=now)
    headers = {"Authorization": f"Bearer {(await sync_to_async(Caller)(cast.bob)).token}"}
    answer = await AsyncClient().get(f"{SESSIONS}{session.pk}/files/large", headers=headers)
    pieces, got = aiter(answer.streaming_content), 0
    got += len(await anext(pieces))
    await sync_to_async(unshare_session)(session, cast.alice, share.pk)
    with pytest.raises(NodeUnreachable, match="may no longer use"):
        async for piece in pieces:
            got += len(piece)
    assert got < size
    assert await AuditEntry.objects.filter(action="session.use", actor=cast.bob).acount() == 1

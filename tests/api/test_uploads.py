"""Uploads into a session pass through the web process as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator

from backendai import asgi
from backendai.domain.accounts.models import User
from backendai.domain.accounts.services.key_pairs import create_key_pair
from backendai.domain.accounts.sign_in.signatures import Signed, sign
from backendai.domain.compute.models import ComputeSession
from backendai.gates.gateways.guests import GuestTarget
from backendai.portal.api.sessions import execute
from tests.cast import Cast
from tests.factories import make_running_session
from tests.patience import patient
from tests.realtime.sockets import script

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]

_FIELD_ONLY = b'--edge\r\nContent-Disposition: form-data; name="x"\r\n\r\n1\r\n--edge--'


class Written:
    """What reached the session, piece by piece. ``ended`` holds the files that are whole."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self.files, self.ended = dict[str, bytes](), list[str]()

    async def put(self, target: GuestTarget, path: str, chunks: AsyncIterator[bytes], **unseen: Any) -> dict[str, Any]:
        self.files[path] = b""
        async for chunk in chunks:
            self.files[path] += chunk
            self.pieces.put_nowait((path, chunk))
        self.ended.append(path)
        return {"size": len(self.files[path]), "etag": "1-2-3"}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    written = Written()
    monkeypatch.setattr(execute, "put_file", written.put)
    return written


async def upload(user: User, method: str, path: str, **headers: str) -> ApplicationCommunicator:
    """Return a request whose body is still to be sent."""
    session = await sync_to_async(make_running_session)(user)
    bearer = (await sync_to_async(script)(user))[-1]
    pairs = [(b"host", b"127.0.0.1"), bearer, *((name.encode(), value.encode()) for name, value in headers.items())]
    full = f"/api/v1/sessions/{session.pk}/files/{path}"
    scope = {
        "type": "http", "method": method, "path": full, "raw_path": full.encode(), "query_string": b"",
        "headers": pairs, "http_version": "1.1", "scheme": "http", "client": ("127.0.0.1", 1),
        "server": ("testserver", 80),
    }  # fmt: skip
    return ApplicationCommunicator(asgi.http, scope)


async def send(request: ApplicationCommunicator, piece: bytes, *, more: bool = True) -> None:
    await request.send_input({"type": "http.request", "body": piece, "more_body": more})


async def answer(request: ApplicationCommunicator) -> tuple[int, bytes]:
    started: dict[str, Any] = await request.receive_output(10)
    body = await request.receive_output(10)
    return int(started["status"]), bytes(body["body"])


async def test_the_first_piece_is_there_before_the_last_is_sent(cast: Cast, written: Written) -> None:
    request = await upload(cast.alice, "PUT", "data/x.bin")
    await send(request, b"first")
    assert await asyncio.wait_for(written.pieces.get(), patient(10)) == ("data/x.bin", b"first")
    assert not written.ended
    await send(request, b" last", more=False)
    assert await answer(request) == (201, b'{"size":10,"etag":"1-2-3"}')
    assert written.files == {"data/x.bin": b"first last"}


async def test_a_sender_that_leaves_ends_the_upload(cast: Cast, written: Written) -> None:
    request = await upload(cast.alice, "PUT", "x")
    await send(request, b"half")
    await asyncio.wait_for(written.pieces.get(), patient(10))
    await request.send_input({"type": "http.disconnect"})
    await request.wait(patient(10))
    assert written.ended == []


async def test_a_stranger_is_refused_before_anything_is_read(cast: Cast, written: Written) -> None:
    session = await sync_to_async(make_running_session)(cast.alice)
    request = await upload(cast.charlie, "PUT", "x")
    request.scope["path"] = f"/api/v1/sessions/{session.pk}/files/x"
    await send(request, b"never")
    assert (await answer(request))[0] == 404
    assert written.files == {} and await sync_to_async(ComputeSession.objects.count)() == 2


async def test_a_form_brings_several_files_as_they_come(cast: Cast, written: Written) -> None:
    large = bytes(range(256)) * 2000 + b"\r\n--not the end\r\n"
    request = await upload(cast.alice, "POST", "", **{"content-type": "multipart/form-data; boundary=edge"})
    head = b'--edge\r\nContent-Disposition: form-data; name="src"; filename="%s"\r\n\r\n'
    body = head % b"a.txt" + b"one" + b"\r\n" + head % b"sub/b.bin" + large + b"\r\n--edge--\r\n"
    for start in range(0, len(body), 7001):
        await send(request, body[start : start + 7001])
    while written.files.get("sub/b.bin", b"")[:6] != large[:6]:
        await asyncio.wait_for(written.pieces.get(), patient(10))
    await send(request, b"", more=False)
    status, said = await answer(request)
    assert (status, written.files) == (201, {"a.txt": b"one", "sub/b.bin": large})
    assert said == b'{"files":[{"path":"a.txt","size":3},{"path":"sub/b.bin","size":%d}]}' % len(large)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{}"),
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=edge", b"no boundary at all"),
        ("multipart/form-data; boundary=edge", _FIELD_ONLY),
    ],
)
async def test_what_is_no_form_of_files_is_refused(cast: Cast, written: Written, kind: str, body: bytes) -> None:
    request = await upload(cast.alice, "POST", "", **{"content-type": kind})
    await send(request, body, more=False)
    status, said = await answer(request)
    assert (status, b"bad-form" in said, written.ended) == (400, True, [])


@pytest.mark.parametrize(("method", "size", "status"), [("GET", "", 404), ("DELETE", "0", 404), ("PUT", "4", 401)])
async def test_a_signature_opens_what_has_no_body_and_says_so_elsewhere(
    cast: Cast, written: Written, method: str, size: str, status: int
) -> None:
    pair, secret = await sync_to_async(create_key_pair)(cast.charlie, "laptop")  # another person's session is none
    request = await upload(cast.alice, method, "x", **({"content-length": size} if size else {}))
    path, date = request.scope["path"], datetime.now(UTC).isoformat()
    mark = sign(secret, Signed(method, path, "127.0.0.1", date))
    signature = f"BackendAI signMethod=HMAC-SHA256, credential={pair.access_key}:{mark}"
    kept = [one for one in request.scope["headers"] if one[0].lower() != b"authorization"]
    request.scope["headers"] = [*kept, (b"authorization", signature.encode()), (b"date", date.encode())]
    await send(request, b"body" if status == 401 else b"", more=False)
    found, said = await answer(request)
    assert found == status, said
    if status == 401:
        assert b"body-not-signed" in said and b"Authorization: Bearer TOKEN" in said

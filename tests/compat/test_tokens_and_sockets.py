"""What outlives a signature: tokens for files of folders, and websockets with a signed handshake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.core import signing
from django.test import Client
from django.utils import timezone

from backendai import asgi
from backendai.domain.accounts.models import KeyPair
from backendai.domain.storage.models import Folder
from backendai.domain.storage.services import create_folder
from backendai.portal.compat.sockets import _order_in
from tests.cast import Cast
from tests.compat.callers import HOST, Signer
from tests.factories import make_running_session
from tests.storage.fake_file_server import FakeFileServer, make_host, serving

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def folder(cast: Cast) -> Iterator[Folder]:
    with serving(FakeFileServer()) as files:
        make_host(files)
        yield create_folder(cast.alice, name="data", now=timezone.now())


def test_a_token_is_for_one_file_and_ends_with_the_key_pair(cast: Cast, folder: Folder) -> None:
    alice = Signer(cast.alice)
    told = alice.post("/folders/data/request-download", {"path": "a/../b.txt"}).json()
    assert told["url"] == f"http://{HOST}/compat/storage/download"
    read = f"/compat/storage/download?token={told['token']}"
    assert Client().get(read).status_code not in (401, 403)
    for token in ("", told["token"][:-1], signing.dumps({"pair": alice.pair.pk, "folder": folder.pk.hex, "path": "b"})):
        answer = Client().get(f"/compat/storage/download?token={token}")
        assert (answer.status_code, answer.json()["code"]) == (401, "invalid-token")
    KeyPair.objects.filter(pk=alice.pair.pk).update(is_active=False)
    assert Client().get(read).status_code == 401


def test_folders_of_others_are_unknown_and_sizes_are_bounded(cast: Cast, folder: Folder) -> None:
    bob, alice = Signer(cast.bob), Signer(cast.alice)
    for name in ("data", folder.pk.hex, str(folder.pk)):
        for method, path in (
            ("GET", ""), ("DELETE", ""), ("GET", "/files"), ("POST", "/request-upload"), ("POST", "/request-download"),
            ("POST", "/rename"), ("POST", "/mkdir"), ("DELETE", "/delete-files"), ("POST", "/invite"),
        ):  # fmt: skip
            body = {"path": "a", "size": 1, "new_name": "b", "files": ["a"], "user_ids": ["bob@example.com"]}
            assert bob.ask(method, f"/folders/{name}{path}", body).status_code == 404, (method, path)
    assert bob.get("/folders").json() == [] and [one["name"] for one in alice.get("/folders").json()] == ["data"]
    for size in (-1, 2**51, True, "1", None):
        assert alice.post("/folders/data/request-upload", {"path": "a", "size": size}).status_code == 400, size
    folder.refresh_from_db()
    assert folder.name == "data"


async def handshake(signer: Signer, name: str, **scope: Any) -> str:
    """Return the type of the answer to a signed handshake."""
    path = f"/compat/stream/session/{name}/execute"
    signed = await sync_to_async(signer.headers)("GET", path, "")
    headers = [(key.lower().encode(), value.encode()) for key, value in (signed | scope.pop("given", {})).items()]
    made = {
        "type": "websocket", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers,
        "scheme": "ws", "client": ("127.0.0.1", 1), "subprotocols": [],
    }  # fmt: skip
    wire = ApplicationCommunicator(asgi.websocket, made | scope)
    await wire.send_input({"type": "websocket.connect"})
    answer: dict[str, Any] = await wire.receive_output(10)
    await wire.send_input({"type": "websocket.disconnect", "code": 1000})
    await wire.wait(10)
    return str(answer["type"])


@pytest.mark.asyncio
async def test_a_handshake_is_signed_and_for_ones_own_session(cast: Cast, settings: Any) -> None:
    await sync_to_async(make_running_session)(cast.alice, name="desk-1")
    alice, bob = await sync_to_async(Signer)(cast.alice), await sync_to_async(Signer)(cast.bob)
    assert await handshake(alice, "desk-1") == "websocket.accept"
    assert await handshake(bob, "desk-1") == "websocket.close"
    assert await handshake(alice, "desk-2") == "websocket.close"
    assert await handshake(alice, "desk-1", given={"Authorization": "BackendAI nothing"}) == "websocket.close"
    assert await handshake(alice, "desk-1", client=("192.0.2.1", 1)) == "websocket.close"
    assert await handshake(alice, "desk-1", given={"X-Forwarded-For": "192.0.2.1"}) == "websocket.close"
    assert await handshake(alice, "desk-1", client=("192.0.2.1", 1), scheme="wss") == "websocket.accept"
    settings.COMPAT = False
    assert await handshake(alice, "desk-1") == "websocket.close"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"options": 1}', "[" * 100_000])
def test_an_order_that_cannot_be_read_runs_nothing(text: str) -> None:
    order = _order_in(text)
    assert (order["op"], order["mode"], order["code"]) == ("run", "query", "")
    assert order["options"] == {"clean": None, "build": None, "exec": None}

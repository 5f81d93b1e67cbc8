"""A file server in this process, with a storage host in a temporary directory, and a portal that signs tickets."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer

from backendai.base.paths import beneath
from backendai.base.paths.storage_layout import Marker, folder_path, write_marker
from backendai.base.wire.folder_tickets import sign_folder_ticket
from backendai.base.wire.tickets import new_private_key, public_key_of
from backendai.files.config import FilesSettings
from backendai.files.http.server import create_app, create_server
from backendai.files.http.serving import Server

PRIVATE_KEY = new_private_key()
DEPLOYMENT = "d-test"


@pytest.fixture(params=["openat2", "walk"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of opening paths."""
    way = beneath.open_by_openat2 if request.param == "openat2" else beneath.open_by_walk
    if request.param == "openat2" and not beneath.has_openat2():
        pytest.skip("this kernel, or a sandbox, has no openat2")
    monkeypatch.setattr(beneath, "opener", lambda: way)
    return str(request.param)


@dataclass
class Portal:
    """Calls the file server as the portal, a viewer or an editor of a folder."""

    client: TestClient[Any, Any]
    server: Server
    root: Path
    folder_id: UUID = field(default_factory=uuid.uuid4)
    host: str = "local"

    @property
    def data(self) -> Path:
        return folder_path(self.root, self.folder_id) / "data"

    @property
    def incoming(self) -> Path:
        return folder_path(self.root, self.folder_id) / "incoming"

    def ticket(self, rights: Any = "edit", *, folder_id: UUID | None = None, version: int = 1, **more: Any) -> str:
        told = {"host": self.host, "now": time.time(), **more}
        return sign_folder_ticket(
            PRIVATE_KEY, folder_id=folder_id or self.folder_id, version=version, rights=rights, **told
        )

    async def ask(
        self,
        method: str,
        path: str,
        *,
        rights: Any = None,
        folder_id: UUID | None = None,
        version: int | None = None,
        **more: Any,
    ) -> ClientResponse:
        """Ask about the folder; ``path`` is what follows its id. Reads and changes have the least rights they need, and
        a deletion is newer than the rest."""
        version = version or (2 if (method, path) == ("DELETE", "") else 1)
        folder = folder_id or self.folder_id
        rights = rights or ("view" if method in ("GET", "HEAD") else "edit")
        headers = {"Authorization": f"Bearer {self.ticket(rights, folder_id=folder, version=version)}"}
        headers |= more.pop("headers", {})
        response: ClientResponse = await self.client.request(
            method, f"/v1/folders/{folder}{path}", headers=headers, **more
        )
        return response

    async def json(self, method: str, path: str, status: int = 200, **more: Any) -> Any:
        response = await self.ask(method, path, **more)
        content = await response.json()
        assert response.status == status, content
        return content

    async def create(self, folder_id: UUID | None = None, **body: Any) -> UUID:
        """Make a folder."""
        folder = folder_id or self.folder_id
        await self.json("PUT", "", 201, rights="manage", folder_id=folder, json={"meta": {"name": "f"}, **body})
        return folder


def settings_for(root: Path, **more: Any) -> FilesSettings:
    told: dict[str, Any] = {"hosts": {"local": root}, "address": "127.0.0.1", "port": 1, "linkable": ()}
    told |= {"key_file": root / "none", "public_key": public_key_of(PRIVATE_KEY), "deployment": DEPLOYMENT}
    return FilesSettings(**{**told, **more})


@asynccontextmanager
async def running(settings: FilesSettings) -> AsyncIterator[Portal]:
    """A file server with an empty folder."""
    server = create_server(settings)
    test_server = TestServer(create_app(server))  # ends a handler when the caller leaves, as ours
    async with TestClient(test_server) as client:
        yield Portal(client, server, next(iter(settings.hosts.values())))


def prepare(root: Path, host: str = "local", uid: int | None = None) -> Path:
    """Make a directory a storage host."""
    root.mkdir(exist_ok=True)
    write_marker(root, Marker(DEPLOYMENT, host, os.geteuid() if uid is None else uid))
    return root


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """The path of a storage host."""
    yield prepare(tmp_path / "host")


@pytest_asyncio.fixture
async def portal(root: Path) -> AsyncIterator[Portal]:
    """A file server with a folder, called by somebody who may edit it."""
    async with running(settings_for(root)) as one:
        await one.create()
        yield one

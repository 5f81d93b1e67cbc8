"""The app proxy between a browser and a file server that notes what it is asked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer
from asgiref.sync import sync_to_async
from django.conf import settings
from django.test import Client
from django.utils import timezone
from yarl import URL

from backendai.base.wire.folder_tickets import FolderTicket, read_folder_ticket
from backendai.base.wire.tickets import public_key_of
from backendai.domain.accounts.models import User
from backendai.domain.accounts.sign_in.credentials import Credential
from backendai.domain.storage.file_origins import file_host, make_file_entry
from backendai.domain.storage.models import Folder, StorageHost
from backendai.domain.storage.status import FolderStatus
from backendai.gates.appproxy.server import serving
from tests.cast import Cast, make_cast

PORTAL = "portal.example.org"
PORTAL_ORIGIN = f"http://{PORTAL}"


class FileServer:
    """Answers with what was asked; ``tickets`` are those it has got, each checked."""

    def __init__(self) -> None:
        self.tickets: list[FolderTicket] = []
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.left = asyncio.Event()

    def application(self) -> web.Application:
        app = web.Application(client_max_size=2**30)
        app.router.add_get("/v1/folders/{folder}/archive", self._endless)
        app.router.add_post("/v1/folders/{folder}/uploads", self._create)
        app.router.add_route("*", "/{path:.*}", self._note)
        return app

    def _check(self, request: web.Request) -> None:
        kind, _, text = request.headers["Authorization"].partition(" ")
        assert kind == "Bearer"
        key, now = public_key_of(settings.TICKET_KEY), timezone.now().timestamp()
        self.tickets.append(read_folder_ticket(key, text, host="local", now=now))
        self.requests.append(request)

    async def _note(self, request: web.Request) -> web.Response:
        self._check(request)
        self.bodies.append(await request.read())
        headers = {"ETag": '"1-2-3"', "Set-Cookie": "a=b", "X-Secret": "no", "Content-Disposition": "attachment"}
        return web.Response(text=f"{request.method} {request.raw_path}", headers=headers)

    async def _create(self, request: web.Request) -> web.Response:
        self._check(request)
        return web.Response(status=201, headers={"Location": f"{request.path}/up1", "Upload-Offset": "0"})

    async def _endless(self, request: web.Request) -> web.StreamResponse:
        self._check(request)
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 1000)
                await asyncio.sleep(0.02)
        finally:
            self.left.set()


class FolderStage:
    """Alice's folder, the file server, and a browser."""

    def __init__(self, cast: Cast, folder: Folder, files: FileServer) -> None:
        self.cast, self.files = cast, files
        self.browsers = {one: Client() for one in (cast.alice, cast.bob)}
        for user, browser in self.browsers.items():
            browser.force_login(user)
        self.use(folder)
        self.port = 0
        self.client: aiohttp.ClientSession

    def use(self, folder: Folder) -> None:
        """Ask for the files of this folder from now on."""
        self.folder, self.host = folder, file_host(folder.pk)

    def credential(self, user: User) -> Credential:
        return Credential(login=self.browsers[user].session.session_key or "")

    async def code(self, user: User) -> str:
        def make() -> str:
            return make_file_entry(user, self.folder, self.credential(user), timezone.now(), portal=PORTAL).code

        return await sync_to_async(make)()

    async def ask(self, method: str, path: str, *, headers: Any = None, **options: Any) -> aiohttp.ClientResponse:
        told = {"Host": f"{self.host}:{settings.APPS_PUBLIC_PORT}"} | (headers or {})
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        return await self.client.request(method, url, headers=told, allow_redirects=False, **options)

    async def token(self, user: User | None = None) -> dict[str, str]:
        """Return the headers of a page of the portal that has been let in."""
        headers = {"Accept": "application/json", "Origin": PORTAL_ORIGIN}
        code = await self.code(user or self.cast.alice)
        answer = await self.ask("POST", "/.backendai/enter", data={"code": code}, headers=headers)
        assert answer.status == 200, await answer.text()
        text = (await answer.json())["token"]
        return {"Authorization": f"Bearer {text}", "Origin": PORTAL_ORIGIN}


@asynccontextmanager
async def folder_stage() -> AsyncIterator[FolderStage]:
    """Put everything up."""
    files = FileServer()
    server = TestServer(files.application(), handler_cancellation=True)
    await server.start_server()
    here = await sync_to_async(_world)(files, str(server.make_url("")))
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False) as here.client:
        listener = socket.create_server(("127.0.0.1", 0))
        here.port = listener.getsockname()[1]
        async with serving(listener):
            yield here
    await server.close()


def _world(files: FileServer, address: str) -> FolderStage:
    cast = make_cast()
    host = StorageHost.objects.create(name="local", address=address, is_default=True)
    folder = Folder.objects.create(name="data", host=host, user=cast.alice, status=FolderStatus.READY)
    return FolderStage(cast, folder, files)

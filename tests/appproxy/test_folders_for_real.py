"""Files from a browser through the app proxy to a real file server and back."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer
from asgiref.sync import sync_to_async
from django.conf import settings
from django.utils import timezone

from backendai.base.paths.storage_layout import Marker, write_marker
from backendai.base.wire.tickets import public_key_of
from backendai.domain.storage.models import StorageHost
from backendai.domain.storage.services import create_folder
from backendai.domain.storage.status import FolderStatus
from backendai.files.config import FilesSettings
from backendai.files.http.server import create_app, create_server
from tests.appproxy.folder_stage import folder_stage

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]
_MORE = 3 * 2**20 + 5  # more than one piece


def file_server(root: Path) -> TestServer:
    root.mkdir()
    write_marker(root, Marker(settings.DEPLOYMENT, "local", os.geteuid()))
    told = FilesSettings(
        hosts={"local": root},
        address="127.0.0.1",
        port=0,
        linkable=(),
        key_file=root / "none",
        public_key=public_key_of(settings.TICKET_KEY),
        deployment=settings.DEPLOYMENT,
    )
    return TestServer(create_app(create_server(told)), handler_cancellation=True)


async def test_an_upload_in_two_parts_comes_back_whole(tmp_path: Path) -> None:
    server = file_server(tmp_path / "host")
    await server.start_server()
    async with folder_stage() as here:
        await StorageHost.objects.aupdate(address=str(server.make_url("")))
        make = sync_to_async(create_folder)
        here.use(await make(here.cast.alice, name="real", now=timezone.now()))
        assert here.folder.status == FolderStatus.READY
        headers, body = await here.token(), os.urandom(_MORE)
        path = base64.b64encode(b"large.bin").decode()
        tus = headers | {"Tus-Resumable": "1.0.0"}
        begin = tus | {"Upload-Length": str(len(body)), "Upload-Metadata": f"path {path}"}
        made = await here.ask("POST", "/uploads", headers=begin)
        assert made.status == 201, await made.text()
        at = 0
        for part in (body[: _MORE // 2], body[_MORE // 2 :]):
            more = tus | {"Upload-Offset": str(at), "Content-Type": "application/offset+octet-stream"}
            sent = await here.ask("PATCH", made.headers["Location"], headers=more, data=part)
            assert sent.status == 204, await sent.text()
            at = int(sent.headers["Upload-Offset"])
        answer = await here.ask("GET", "/content?path=large.bin", headers=headers)
        assert hashlib.sha256(await answer.read()).digest() == hashlib.sha256(body).digest()
        assert answer.headers["Content-Disposition"].startswith("attachment")
        part = await here.ask("GET", "/content?path=large.bin", headers=headers | {"Range": "bytes=5-9"})
        assert (part.status, await part.read()) == (206, body[5:10])
        gone = await here.ask("GET", "/content?path=none", headers=headers)
        assert (gone.status, (await gone.json())["code"]) == (404, "not-found")
        outside = await here.ask("GET", "/content?path=..%2F..%2Fmeta.json", headers=headers)
        assert outside.status == 422
    await server.close()

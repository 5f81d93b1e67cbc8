"""Who gets to the files of a folder, with which rights, and what passes between browser and file server."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from backendai.domain.accounts.services import create_token
from backendai.domain.storage.models import Folder, FolderGrant, StorageHost
from backendai.domain.storage.status import FolderStatus, Rights
from backendai.gates.appproxy import file_relay, relay
from tests.appproxy.folder_stage import PORTAL_ORIGIN, FolderStage, folder_stage
from tests.effort import some
from tests.patience import patient

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]
ENTER = "/.backendai/enter"


async def share(here: FolderStage, rights: Rights) -> None:
    values = {"folder": here.folder, "user": here.cast.bob, "rights": rights, "accepted_at": timezone.now()}
    await FolderGrant.objects.acreate(**values)


async def test_a_page_of_the_portal_reads_and_writes_with_a_ticket_that_it_never_sees() -> None:
    async with folder_stage() as here:
        headers = await here.token()
        answer = await here.ask("PUT", "/content?path=a%2Fb", headers=headers, data=b"hello")
        assert await answer.text() == f"PUT /v1/folders/{here.folder.pk}/content?path=a%2Fb"
        assert here.files.bodies == [b"hello"]
        assert (here.files.tickets[0].folder_id, here.files.tickets[0].rights) == (here.folder.pk, "edit")
        assert answer.headers["Access-Control-Allow-Origin"] == PORTAL_ORIGIN
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
        assert answer.headers["ETag"] == '"1-2-3"'
        assert {"Set-Cookie", "X-Secret", "Authorization"} & set(answer.headers) == set()


async def test_an_upload_that_waits_for_an_interim_answer_gets_it() -> None:
    async with folder_stage() as here, asyncio.timeout(patient(20)):
        answer = await here.ask("PUT", "/content?path=a", headers=await here.token(), data=b"hello", expect100=True)
        assert (answer.status, here.files.bodies) == (200, [b"hello"])


async def test_an_upload_that_stands_still_is_told_so_and_not_that_the_storage_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "BODY_SECONDS", 0.1)
    is_over = asyncio.Event()

    async def standing() -> AsyncIterator[bytes]:
        yield b"a part"
        await is_over.wait()

    async with folder_stage() as here, asyncio.timeout(patient(20)):
        answer = await here.ask("PUT", "/content?path=a", headers=await here.token(), data=standing())
        is_over.set()
        assert (answer.status, (await answer.json())["code"]) == (408, "too-slow")


async def test_a_link_downloads_with_a_cookie_which_changes_nothing() -> None:
    async with folder_stage() as here:
        form = {"code": await here.code(here.cast.alice), "next": "/content?path=a"}
        entered = await here.ask("POST", ENTER, data=form, headers={"Origin": PORTAL_ORIGIN})
        assert (entered.status, entered.headers["Location"]) == (303, "/content?path=a")
        cookie = {"Cookie": entered.headers["Set-Cookie"].split(";")[0]}
        answer = await here.ask("GET", "/content?path=a", headers=cookie | {"Range": "bytes=3-"})
        assert (answer.status, here.files.requests[0].headers["Range"]) == (200, "bytes=3-")
        assert (await here.ask("DELETE", "/trash", headers=cookie)).status == 403
        assert (await here.ask("POST", ENTER, data=form)).status == 403
        assert len(here.files.requests) == 1


@pytest.mark.parametrize(
    "way_on", ["https://evil.example/", "//evil.example/content?", "/v1/folders/x", "/content?\r\nA: b"]
)
async def test_the_way_on_is_never_another_place(way_on: str) -> None:
    async with folder_stage() as here:
        answer = await here.ask("POST", ENTER, data={"code": await here.code(here.cast.alice), "next": way_on})
        assert answer.headers["Location"] == "/"


async def test_only_the_origin_of_the_portal_may_ask_across() -> None:
    async with folder_stage() as here:
        headers = await here.token()
        preflight = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "authorization"}
        good = await here.ask("OPTIONS", "/content", headers=preflight | {"Origin": PORTAL_ORIGIN})
        assert (good.status, good.headers["Access-Control-Allow-Origin"]) == (204, PORTAL_ORIGIN)
        for origin in ("https://portal.example.org", "http://evil.example", "null"):
            bad = await here.ask("OPTIONS", "/content", headers=preflight | {"Origin": origin})
            assert (bad.status, "Access-Control-Allow-Origin" in bad.headers) == (403, False)
            answer = await here.ask("GET", "/content?path=a", headers=headers | {"Origin": origin})
            assert (answer.status, "Access-Control-Allow-Origin" in answer.headers) == (403, False)
        code = await here.code(here.cast.alice)
        asked = {"Accept": "application/json", "Origin": "http://evil.example"}
        assert (await here.ask("POST", ENTER, data={"code": code}, headers=asked)).status == 403
        assert here.files.requests == []


async def test_who_may_only_view_is_refused_before_a_byte_of_a_body() -> None:
    async with folder_stage() as here:
        await share(here, Rights.VIEW)
        headers = await here.token(here.cast.bob)
        assert (await here.ask("GET", "/entries?path=", headers=headers)).status == 200
        refused = await here.ask("PUT", "/content?path=a", headers=headers, data=b"x" * 100)
        assert (refused.status, (await refused.json())["code"]) == (403, "folder-rights")
        assert [ticket.rights for ticket in here.files.tickets] == ["view"]


async def test_who_has_no_rights_and_who_comes_with_nothing_gets_nothing() -> None:
    async with folder_stage() as here:
        answer = await here.ask("POST", ENTER, data={"code": await here.code(here.cast.bob), "next": "/content?path="})
        assert answer.status == 403
        assert (await here.ask("GET", "/content?path=a")).status == 401
        assert (await here.ask("GET", "/content?path=a", headers={"Authorization": "Bearer x"})).status == 401
        assert here.files.requests == []


async def test_unsharing_ends_what_is_under_way() -> None:
    async with folder_stage() as here:
        await share(here, Rights.EDIT)
        answer = await here.ask("GET", "/archive?path=", headers=await here.token(here.cast.bob))
        assert await answer.content.readexactly(1000)
        await FolderGrant.objects.all().adelete()
        with pytest.raises(aiohttp.ClientError):
            await asyncio.wait_for(answer.read(), patient(15))
        await asyncio.wait_for(here.files.left.wait(), patient(15))


async def test_a_folder_in_the_trash_is_closed() -> None:
    async with folder_stage() as here:
        headers = await here.token()
        await Folder.objects.aupdate(status=FolderStatus.TRASHED)
        answer = await here.ask("GET", "/content?path=a", headers=headers)
        assert (answer.status, (await answer.json())["code"]) == (409, "folder-not-ready")


async def test_a_linked_folder_is_never_changed_even_by_its_owner() -> None:
    async with folder_stage() as here:
        await Folder.objects.aupdate(linked_path="/data/imagenet")
        assert (await here.ask("POST", "/deletions", headers=await here.token(), data=b"{}")).status == 403


@pytest.mark.parametrize(("scopes", "status"), [(["read"], 403), (["read", "folders"], 200)])
async def test_a_script_comes_with_its_access_token(scopes: list[str], status: int) -> None:
    async with folder_stage() as here:
        token, text = await sync_to_async(create_token)(here.cast.alice, "script")
        token.scopes = scopes
        await token.asave()
        headers = {"Authorization": f"Bearer {text}"}
        assert (await here.ask("GET", "/content?path=a", headers=headers)).status == 200
        assert (await here.ask("PUT", "/content?path=a", headers=headers, data=b"x")).status == status


async def test_an_upload_is_known_by_its_own_address() -> None:
    async with folder_stage() as here:
        headers = await here.token()
        made = await here.ask("POST", "/uploads", headers=headers | {"Upload-Length": "9", "Tus-Resumable": "1.0.0"})
        assert (made.status, made.headers["Location"], made.headers["Upload-Offset"]) == (201, "/uploads/up1", "0")
        assert here.files.requests[0].headers["Upload-Length"] == "9"
        await here.ask("PATCH", "/uploads/up1", headers=headers, data=b"123")
        assert here.files.requests[1].path == f"/v1/folders/{here.folder.pk}/uploads/up1"


@some("path", ["/", "/limit", "/v1/folders/x", "/content/../limit", "/uploads/a%2F..", "/trash/a/b/c"], 2)
async def test_what_only_the_portal_may_order_is_not_passed_on(path: str) -> None:
    async with folder_stage() as here:
        assert (await here.ask("GET", path, headers=await here.token())).status == 404
        assert here.files.requests == []


async def test_a_large_body_passes_whole_in_pieces() -> None:
    async with folder_stage() as here:
        body = hashlib.sha256(b"1").digest() * 300_000
        answer = await here.ask("PUT", "/content?path=a", headers=await here.token(), data=body)
        assert answer.status == 200
        assert here.files.bodies == [body]


async def test_a_file_server_that_is_away_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async with folder_stage() as here:
        headers = await here.token()
        await StorageHost.objects.aupdate(address="http://127.0.0.1:1")
        answer = await here.ask("GET", "/content?path=a", headers=headers)
        assert (answer.status, (await answer.json())["code"]) == (503, "storage-silent")


async def test_nobody_takes_all_of_a_file_server(monkeypatch: Any) -> None:
    monkeypatch.setattr(file_relay, "MOST_OF_VISITOR", 1)
    async with folder_stage() as here:
        headers = await here.token()
        first = await here.ask("GET", "/archive?path=", headers=headers)
        assert (await here.ask("GET", "/entries", headers=headers)).status == 429
        first.close()

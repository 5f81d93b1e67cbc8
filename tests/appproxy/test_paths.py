"""Addresses that name app, folder or endpoint in the path, for programs: their resolvers know no name of apps."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import sync_to_async

from backendai.domain.accounts.services import create_token
from backendai.domain.storage.models import Folder
from tests.appproxy.endpoint_stage import endpoint_stage
from tests.appproxy.folder_stage import PORTAL_ORIGIN, folder_stage
from tests.appproxy.stage import Stage, stage
from tests.appproxy.test_tokens import token_of
from tests.patience import patient

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]
ISOLATED = {"Content-Security-Policy": "sandbox; default-src 'none'", "X-Content-Type-Options": "nosniff"}


@pytest.fixture(autouse=True)
def own_data_folder(tmp_path: Path, settings: Any) -> None:
    settings.DATA_DIR = tmp_path


def own_host(here: Any) -> dict[str, str]:
    return {"Host": f"127.0.0.1:{here.port}"}


def below(here: Stage) -> str:
    return f"/apps/{here.session.pk}/notes"


async def test_a_path_leads_to_the_app_and_back_without_cookies() -> None:
    async with stage() as here:
        _, sent = await token_of(here.cast.alice)
        here.app.answer_headers = [
            ("Location", "/lab?a=1"),
            ("Set-Cookie", "sessionid=theirs"),
            ("Access-Control-Allow-Origin", "*"),
            ("Service-Worker-Allowed", "/"),
            ("X-Own", "kept"),
        ]
        theirs = {"Cookie": f"{await here.enter()}; mine=1"}
        answer = await here.ask("POST", f"{below(here)}/api/kernels?x=%2F", headers=sent | theirs | own_host(here))
        assert (answer.status, await answer.text()) == (200, "POST /api/kernels?x=%2F")
        assert (answer.headers["Location"], answer.headers["X-Own"]) == (f"{below(here)}/lab?a=1", "kept")
        assert {"Set-Cookie", "Access-Control-Allow-Origin", "Service-Worker-Allowed"} & set(answer.headers) == set()
        assert ISOLATED.items() <= dict(answer.headers).items()
        assert here.app.requests[0].headers["Cookie"] == "_xsrf=access-token"
        here.app.answer_headers = []
        for path, seen in (("", "/"), ("?a", "/?a"), ("//[evil.example/x", "/[evil.example/x")):
            answer = await here.ask("GET", below(here) + path, headers=sent | own_host(here))
            assert await answer.text() == f"GET {seen}"


ELSEWHERE = [
    "https://evil.example/",
    "//evil.example/",
    "https:\\\\evil.example\\",
    "http://HOST@evil.example/",
    "http://evil.example\\@evil.example/",
    "http://localhost:1/",
    "http://NAME:80/",
    "ftp://HOST/",
    "javascript:alert(1)",
    "http://[::1/",
]
OUT = ["/%2e%2E/%2e./B/lab", "..\\..\\B/lab", "/..%2f..%2fB", "/..%5C..%5cB", "http://HOST/../../B/lab"]
BELOW = {
    "/lab": "/lab",
    "/lab/": "/lab/",
    "/api/kernels/1?a=%2F#b": "/api/kernels/1?a=%2F#b",
    "": "/lab/tree/x?q",
    "?a=/../B": "/lab/tree/x?a=/../B",
    "y": "/lab/tree/y",
    "../up": "/lab/up",
    "/../../B/lab": "/B/lab",
    "../../../../B/lab": "/B/lab",
    "/\\evil.example/": "/evil.example/",
    "/..//evil.example/": "/evil.example/",
    "http://HOST/lab": "/lab",
    "http://HOST//evil.example/": "/evil.example/",
    "http://u@HOST/apps/B/lab": "/apps/B/lab",
    "http://evil.example\\@HOST/x": "/x",
    "http:///evil.example/": "/evil.example/",
    "http://127.0.0.1:APP/x": "/x",
    "https://localhost:APP/..x": "/..x",
}


async def led(here: Stage, way: str, headers: dict[str, str]) -> str | None:
    """Return where the app's redirect leads a program that asks it for ``/lab/tree/x?q``."""
    host = headers["Host"]
    for word, meant in (("HOST", host), ("NAME", host.partition(":")[0]), ("APP", str(here.app.port))):
        way = way.replace(word, meant)
    here.app.answer_headers = [("Location", way), ("Content-Location", way), ("Refresh", "0; url=//evil.example")]
    prefix = below(here) if host.startswith("127") else ""
    answer = await here.ask("DELETE", f"{prefix}/lab/tree/x?q", headers=headers)
    assert answer.status == 200 and "Refresh" not in answer.headers
    assert answer.headers.get("Content-Location") == answer.headers.get("Location")
    return answer.headers.get("Location")


async def test_an_app_leads_a_token_to_no_other_site_session_or_folder() -> None:
    async with stage() as here:
        _, sent = await token_of(here.cast.alice)
        for headers, prefix in ((sent | own_host(here), below(here)), (sent | {"Host": here.netloc}, "")):
            for way in ELSEWHERE:
                assert await led(here, way, headers) is None, way
            for way, path in BELOW.items():
                assert await led(here, way, headers) == f"{prefix}{path}", way
        for way in OUT:
            assert await led(here, way, sent | own_host(here)) is None, way


async def test_a_websocket_comes_by_path() -> None:
    async with stage() as here:
        _, sent = await token_of(here.cast.alice)
        url = f"http://127.0.0.1:{here.port}{below(here)}/ws"
        websocket = await here.client.ws_connect(url, headers=sent)
        assert await websocket.receive_str() == "welcome"
        await websocket.send_str("hello")
        assert await websocket.receive_str() == "HELLO"


async def test_no_cookie_and_no_page_gets_in_by_path() -> None:
    async with stage() as here:
        _, sent = await token_of(here.cast.alice)
        cookie = await here.enter()
        for headers, status in (
            ({"Accept": "text/html"}, 401),
            ({"Authorization": "Bearer bai_wrong"}, 401),
            (sent | {"Origin": "https://evil.example"}, 403),
            (sent | {"Host": "rebound.evil.example"}, 404),
        ):
            answer = await here.ask("GET", f"{below(here)}/", cookie=cookie, headers=own_host(here) | headers)
            assert (answer.status, answer.content_type) == (status, "application/json"), headers
        preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "GET"}
        answer = await here.ask("OPTIONS", f"{below(here)}/", headers=own_host(here) | preflight)
        assert answer.status in (401, 403) and "Access-Control-Allow-Origin" not in answer.headers
        similar = str(here.session.pk)[:-1] + ("0" if str(here.session.pk)[-1] != "0" else "1")
        answer = await here.ask("GET", f"/apps/{similar}/notes/", headers=own_host(here) | sent)
        assert answer.status == 403, "the whole ID counts"
        for path in (f"/apps/{uuid4()}/notes/", "/apps/x/notes/", "/apps/", "/appsx", "/v10", "/endpoints/"):
            assert (await here.ask("GET", path, headers=own_host(here) | sent)).status in (403, 404)
        assert here.app.requests == []


async def test_files_of_a_folder_come_by_path_for_access_tokens_only() -> None:
    async with folder_stage() as here:
        _, text = await sync_to_async(create_token)(here.cast.alice, "script")
        below = f"/folders/{here.folder.pk}"
        sent = own_host(here) | {"Authorization": f"Bearer {text}"}
        answer = await here.ask("GET", f"{below}/content?path=a%20b", headers=sent)
        assert await answer.text() == f"GET /v1/folders/{here.folder.pk}/content?path=a%20b"
        assert ISOLATED.items() <= dict(answer.headers).items()
        made = await here.ask("POST", f"{below}/uploads", headers=sent | {"Upload-Length": "3"})
        assert (made.status, made.headers["Location"]) == (201, f"{below}/uploads/up1")
        assert (await here.ask("PATCH", f"{below}/uploads/up1", headers=sent, data=b"123")).status == 200
        page = await here.token()
        for refused in (page, sent | {"Origin": PORTAL_ORIGIN}, {"Cookie": "backendai-app=x"}):
            answer = await here.ask("GET", f"{below}/content?path=a", headers=refused | own_host(here))
            assert answer.status == 401 and "Access-Control-Allow-Origin" not in answer.headers
        _, bobs = await sync_to_async(create_token)(here.cast.bob, "script")
        answer = await here.ask("GET", f"{below}/entries", headers=sent | {"Authorization": f"Bearer {bobs}"})
        assert answer.status == 401
        await Folder.objects.all().adelete()
        async with asyncio.timeout(patient(20)):  # what is known for two seconds
            while (await here.ask("GET", f"{below}/entries", headers=sent)).status == 200:
                await asyncio.sleep(0.1)


async def test_an_endpoint_answers_by_path_under_its_label_and_its_name() -> None:
    async with endpoint_stage() as here:
        host, model = own_host(here), here.models[1]
        for name in (here.endpoint.label, here.endpoint.name):
            sent = host | {"Cookie": "sessionid=secret"}
            answer = await here.ask("GET", f"/endpoints/{name}/v1/things?a=1", headers=sent)
            assert (answer.status, await answer.text()) == (200, "1")
            assert ISOLATED.items() <= dict(answer.headers).items()
            assert model.requests[-1].raw_path == "/v1/things?a=1"
            assert {"Cookie", "Authorization"} & set(model.requests[-1].headers) == set()
        listed = await here.ask("GET", "/v1/models", headers=host)
        assert [one["id"] for one in (await listed.json())["data"]] == [here.endpoint.name]
        for path in (f"/endpoints/{here.endpoint.label}/v1/models", "/endpoints/other/v1/models", "/v1/models"):
            answer = await here.ask("GET", path, headers=host | {"Authorization": "Bearer bsk-wrong"})
            assert answer.status == 401
        assert (await here.ask("GET", "/endpoints/other/v1/models", headers=host)).status == 404


async def test_a_replica_leads_a_token_to_no_other_site_or_endpoint() -> None:
    async with endpoint_stage() as here:
        own, by_path = {"Host": here.host}, own_host(here)
        named = f"/endpoints/{here.endpoint.label}"
        for headers, path, way, expected in (
            (own, "/x", "https://evil.example/", None),
            (own, "/x", "/v1/y/", "/v1/y/"),
            (own, "/x", f"http://{here.host}/y", "/y"),
            (by_path, f"{named}/x", "https://evil.example/", None),
            (by_path, f"{named}/x", "/%2e%2e/other/v1", None),
            (by_path, f"{named}/x", f"http://127.0.0.1:{here.model_port}/y", f"{named}/y"),
            (by_path, "/v1/x", "../apps/B/lab", None),
            (by_path, "/v1/x", "/v1/%2e%2e/apps/B/lab", None),
            (by_path, "/v1/x", "x/", "/v1/x/"),
        ):
            here.models[1].raw = f"HTTP/1.1 307 x\r\nContent-Length: 0\r\nLocation: {way}\r\n\r\n".encode()
            answer = await here.ask("POST", path, headers=headers, json={"model": here.endpoint.name})
            assert (answer.status, answer.headers.get("Location")) == (307, expected), (path, way)


async def test_a_public_endpoint_is_no_page_of_the_address_that_all_share(settings: Any) -> None:
    settings.SERVING_PUBLIC = True
    async with endpoint_stage(is_public=True) as here:
        headers = own_host(here) | {"Authorization": "", "Accept": "text/html"}
        answer = await here.ask("GET", f"/endpoints/{here.endpoint.label}/page", headers=headers)
        assert answer.status == 200 and ISOLATED.items() <= dict(answer.headers).items()
        rebound = await here.ask("GET", f"/endpoints/{here.endpoint.label}/page", headers={"Host": "evil.example"})
        assert rebound.status == 404

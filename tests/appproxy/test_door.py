"""Who gets into an app, for how long, and what passes between browser and app."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from asgiref.sync import sync_to_async
from django.conf import settings as configured
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from backendai.domain.accounts.models import User
from backendai.domain.accounts.services import create_token, digest_of, revoke_token
from backendai.domain.accounts.sign_in.credentials import Credential
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.app_domains import origin_of
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.apps.of_session import host_of
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.gates.appproxy.models import AppGrant
from backendai.gates.gateways import guard
from tests.appproxy.stage import Stage, stage
from tests.effort import some
from tests.patience import patient

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]
ENTER, OPEN = "/.backendai/enter", "/.backendai/open"
HTML = {"Accept": "text/html"}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "RECHECK_SECONDS", 0.05)


async def test_it_lets_in_by_a_code_and_then_by_a_cookie_that_scripts_cannot_read() -> None:
    async with stage() as here:
        assert (await here.ask("GET", "/page")).status == 401
        answer = await here.ask("POST", ENTER, data={"code": await here.code()})
        assert (answer.status, answer.headers["Location"]) == (303, OPEN)
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        cookie, *flags = answer.headers["Set-Cookie"].split("; ")
        assert set(flags) == {"Path=/", "HttpOnly", "SameSite=Lax"}
        page = await here.ask("GET", "/page?a=%2F..%2f&b", cookie=cookie)
        assert (page.status, await page.text()) == (200, "GET /page?a=%2F..%2f&b")
        assert await sync_to_async(AuditEntry.objects.filter(action="app.open").count)() == 1


async def test_over_https_the_cookie_is_bound_to_its_very_host(settings: Any) -> None:
    settings.SECURE, settings.APPS_PUBLIC_PORT = True, 443
    async with stage() as here:
        answer = await here.ask("POST", ENTER, data={"code": await here.code()})
        cookie, *flags = answer.headers["Set-Cookie"].split("; ")
        assert cookie.startswith("__Host-backendai-app=")
        assert set(flags) == {"Path=/", "HttpOnly", "SameSite=Lax", "Secure"}
        assert (await here.ask("GET", "/", cookie=cookie.removeprefix("__Host-"))).status == 401
        assert (await here.ask("GET", "/", cookie=cookie)).status == 200
        assert here.app.requests[0].headers["X-Forwarded-Proto"] == "https"
        assert origin_of(here.host) == f"https://{here.host}"


async def test_a_code_is_good_once() -> None:
    async with stage() as here:
        code = await here.code()
        answers = await asyncio.gather(*(here.ask("POST", ENTER, data={"code": code}) for _ in range(5)))
        assert sorted(answer.status for answer in answers) == [303, 403, 403, 403, 403]
        assert await sync_to_async(AppGrant.objects.count)() == 1


async def test_a_code_is_good_for_half_a_minute_and_for_its_own_app() -> None:
    async with stage() as here:
        late = await here.code(now=timezone.now() - timedelta(seconds=40))
        for code in (late, "", "gAAAA", (await here.code())[:-4] + "AAAA"):
            answer = await here.ask("POST", ENTER, data={"code": code})
            assert (answer.status, (await answer.json())["code"]) == (403, "code-refused")
        other = {"Host": here.netloc.replace("notes-", "other-")}
        assert (await here.ask("POST", ENTER, data={"code": await here.code()}, headers=other)).status == 403
        assert (await here.ask("GET", ENTER, params={"code": await here.code()})).status == 405


@some(
    ("origin", "status"),
    [
        ("http://portal.example.org", 303),
        ("https://Portal.example.org", 303),
        ("https://trusted.example.net", 303),
        ("https://evil.example", 403),
        ("http://evil-1.apps.localhost:8081", 403),
        ("null", 403),
        ("", 303),
    ],
)
async def test_only_a_page_of_the_portal_signs_a_browser_in(origin: str, status: int, settings: Any) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://trusted.example.net"]
    async with stage() as here:
        headers = {"Origin": origin} if origin else {}
        answer = await here.ask("POST", ENTER, data={"code": await here.code()}, headers=headers)
        assert answer.status == status
        assert ("Set-Cookie" in answer.headers) == (status == 303)


async def test_a_cookie_opens_no_other_app() -> None:
    async with stage() as here:
        cookie = await here.enter()
        other = {"Host": here.netloc.replace("notes-", "other-")}
        assert (await here.ask("GET", "/", cookie=cookie, headers=other)).status == 401
        assert (await here.ask("GET", "/", cookie=cookie[:-1])).status == 401
        assert here.app.requests == []


async def test_a_cookie_that_a_neighbour_has_added_does_not_keep_anybody_out() -> None:
    async with stage() as here:
        cookie = await here.enter()
        assert (await here.ask("GET", "/", cookie=f"backendai-app=theirs; {cookie}")).status == 200


async def test_charlie_does_not_get_in_with_a_code_of_his_own_making() -> None:
    async with stage() as here:
        answer = await here.ask("POST", ENTER, data={"code": await here.code(here.cast.charlie)})
        assert answer.status == 403  # the code says Charlie, the login Alice
        charlie = await sync_to_async(create_token)(here.cast.charlie, "his")
        credential = Credential(token=digest_of(charlie[1]))
        code = await here.code(here.cast.charlie, credential=credential)
        answer = await here.ask("POST", ENTER, data={"code": code})
        assert (answer.status, (await answer.json())["code"]) == (403, "not-entered")


@pytest.mark.parametrize("how", ["_signs_out", "_is_disabled", "_loses_the_session", "_ends_it"])
async def test_access_ends_when_its_owner_loses_it_also_for_what_is_open(impatient: None, how: str) -> None:
    async with stage() as here:
        cookie = await here.enter()
        websocket = await here.websocket(cookie)
        stream = await here.ask("GET", "/wait", cookie=cookie)
        assert await stream.content.read(5) == b"first"
        await sync_to_async(globals()[how])(here)
        async with asyncio.timeout(patient(10)):
            await here.app.reader_left.wait()
            while not websocket.closed:
                await websocket.receive()
        answer = await here.ask("GET", "/", cookie=cookie)
        assert answer.status == (410 if how == "_ends_it" else 401)


def _signs_out(here: Stage) -> None:
    here.browser.post("/logout/")


def _is_disabled(here: Stage) -> None:
    User.objects.filter(pk=here.cast.alice.pk).update(is_active=False)


def _loses_the_session(here: Stage) -> None:
    type(here.session).objects.update(owner=here.cast.bob)


def _ends_it(here: Stage) -> None:
    terminate_session(here.session, here.cast.alice)


async def test_access_ends_with_the_token_that_asked_for_it(impatient: None) -> None:
    async with stage() as here:
        token, text = await sync_to_async(create_token)(here.cast.alice, "script")
        code = await here.code(credential=Credential(token=digest_of(text)))
        answer = await here.ask("POST", ENTER, data={"code": code})
        cookie = answer.headers["Set-Cookie"].split(";")[0]
        assert (await here.ask("GET", "/", cookie=cookie)).status == 200
        await sync_to_async(revoke_token)(here.cast.alice, token.pk)
        await asyncio.sleep(0.1)
        assert (await here.ask("GET", "/", cookie=cookie)).status == 401


async def test_the_app_hears_nothing_of_the_platform_and_gets_who_asked() -> None:
    async with stage() as here:
        cookie = await here.enter()
        sent = {
            "Cookie": f"mine=1; {configured.SESSION_COOKIE_NAME}=secret; {configured.CSRF_COOKIE_NAME}=x; too=2",
            "Authorization": "Bearer bsk-secret",
            "X-Forwarded-For": "6.6.6.6",
            "X-Forwarded-Prefix": "/evil",
            "X-Remote-User": "root",
            "Forwarded": "for=6.6.6.6",
            "Connection": "keep-alive, X-Named",
            "X-Named": "1",
            "Keep-Alive": "timeout=5",
            "TE": "trailers",
            "X-Own": "kept",
            "X_Forwarded_For": "6.6.6.6",
            "Remote_User": "root",
        }
        await here.ask("GET", "/", cookie=cookie, headers=sent)
        got = here.app.requests[0].headers
        assert got["Cookie"] == "mine=1; too=2"
        assert (got["Host"], got["X-Own"]) == (here.netloc, "kept")
        assert got["X-Forwarded-For"] == "127.0.0.1"
        assert got["X-Forwarded-Host"] == here.netloc
        assert got["X-Forwarded-Proto"] == "http"
        gone = {"Authorization", "X-Forwarded-Prefix", "X-Remote-User", "Forwarded", "X-Named", "Keep-Alive", "TE"}
        gone |= {"X_Forwarded_For", "Remote_User"}
        assert gone & set(got) == set()


async def test_the_app_cannot_speak_for_its_neighbours_or_for_the_proxy() -> None:
    async with stage() as here:
        cookie = await here.enter()
        here.app.answer_headers = [
            ("Set-Cookie", "a=1; Domain=apps.localhost; Path=/"),
            ("Set-Cookie", "b=2"),
            ("Set-Cookie", "backendai-app=theirs"),
            ("Set-Cookie", "=backendai-app=theirs"),
            ("Set-Cookie", " = backendai-app=theirs; Path=/"),
            ("Set-Cookie", "nameless; Path=/a=b"),
            ("Strict-Transport-Security", "max-age=9"),
            ("X-Accel-Redirect", "/apps/other/"),
            ("Clear-Site-Data", '"*"'),
            ("Service-Worker-Allowed", "/"),
            ("X-Own", "kept"),
        ]
        answer = await here.ask("GET", "/", cookie=cookie)
        assert answer.headers.getall("Set-Cookie") == ["a=1; Path=/", "b=2"]
        assert (answer.headers["X-Own"], answer.headers["Service-Worker-Allowed"]) == ("kept", "/")
        assert {"Strict-Transport-Security", "Clear-Site-Data", "X-Accel-Redirect"} & set(answer.headers) == set()


@some(
    ("method", "headers", "status"),
    [
        ("GET", {"Sec-Fetch-Site": "same-origin"}, 200),
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
        ("GET", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
        ("GET", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, 403),
        ("POST", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 403),
        ("POST", {"Origin": "http://evil-1.apps.localhost:8081"}, 403),
        ("POST", {"Origin": "null"}, 403),
        ("POST", {}, 200),
    ],
)
async def test_a_neighbour_cannot_use_the_visitors_cookie(method: str, headers: dict[str, str], status: int) -> None:
    async with stage() as here:
        answer = await here.ask(method, "/", cookie=await here.enter(), headers=headers)
        assert answer.status == status
        assert bool(here.app.requests) == (status == 200)


async def test_a_websocket_opens_from_the_apps_own_pages_and_echoes() -> None:
    async with stage() as here:
        cookie = await here.enter()
        websocket = await here.websocket(cookie)
        assert websocket.protocol == "notes"
        assert await websocket.receive_str() == "welcome"
        await websocket.send_str("hello")
        assert await websocket.receive_str() == "HELLO"
        big = b"y" * (5 * 2**20)
        await websocket.send_bytes(big)
        assert await websocket.receive_bytes() == big
        assert here.app.requests[0].headers["Origin"] == here.origin
        assert "backendai-app" not in here.app.requests[0].headers.get("Cookie", "")
        await here.app.websockets[0].close(code=4321, message=b"as said")
        assert (await websocket.receive()).data == 4321
        for headers in ({"Origin": "http://evil.example"}, {"Cookie": ""}):
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await here.websocket(cookie, **headers)


@pytest.mark.parametrize("politely", [True, False])
async def test_the_app_sees_that_a_websockets_visitor_has_left(politely: bool) -> None:
    async with stage() as here:
        cookie = await here.enter()
        for number in range(3):
            websocket = await here.websocket(cookie)
            assert await websocket.receive_str() == "welcome"
            if politely:
                await websocket.close()
            else:
                websocket._response.connection.transport.abort()  # type: ignore[union-attr]
            async with asyncio.timeout(patient(5)):
                while here.app.websockets_left == number:
                    await asyncio.sleep(0.01)
        assert (await here.ask("GET", "/", cookie=cookie)).status == 200


async def test_a_download_is_only_as_fast_as_its_reader() -> None:
    async with stage() as here:
        size = 100 * 2**20
        answer = await here.ask("GET", f"/stream/{size}", cookie=await here.enter())
        assert answer.headers["Content-Length"] == str(size)
        before = -1
        while here.app.sent != before:  # until nothing moves any more
            before = here.app.sent
            await asyncio.sleep(0.3)
        assert before < size / 4, "somebody keeps everything in memory"
        count = 0
        async for piece in answer.content.iter_any():
            count += len(piece)
        assert count == size


async def test_an_upload_arrives_whole_with_and_without_its_length() -> None:
    async with stage() as here:
        cookie = await here.enter()
        data = bytes(range(256)) * 2**14
        wanted = {"count": len(data), "digest": hashlib.sha256(data).hexdigest()}

        async def pieces():
            for start in range(0, len(data), 100_000):
                yield data[start : start + 100_000]

        for body in (data, pieces()):
            answer = await here.ask("POST", "/count", cookie=cookie, data=body)
            assert json.loads(await answer.text()) == wanted


async def test_compressed_bodies_pass_as_they_are() -> None:
    async with stage() as here:
        here.app.answer_headers = [("Content-Encoding", "br")]
        packed = gzip.compress(b"words " * 1000)
        headers = {"Content-Encoding": "gzip"}
        answer = await here.ask("PUT", "/", cookie=await here.enter(), data=packed, headers=headers)
        assert (await answer.read(), answer.headers["Content-Encoding"]) == (b"PUT /", "br")
        assert here.app.requests[0].headers["Content-Encoding"] == "gzip"
        assert here.app.requests[0].headers["Content-Length"] == str(len(packed))
        assert here.app.bodies == [b"words " * 1000]


async def test_it_hangs_up_on_the_app_when_the_reader_leaves() -> None:
    async with stage() as here:
        answer = await here.ask("GET", "/wait", cookie=await here.enter())
        assert await answer.content.read(5) == b"first"
        answer.close()
        await asyncio.wait_for(here.app.reader_left.wait(), patient(5))


async def test_a_request_that_changes_something_is_never_sent_twice() -> None:
    async with stage() as here:
        cookie = await here.enter()
        assert (await here.ask("GET", "/", cookie=cookie)).status == 200
        answer = await here.ask("GET", "/break", cookie=cookie)
        assert (answer.status, (await answer.json())["code"]) == (502, "app-broke-off")


async def test_an_answer_that_breaks_off_looks_broken_off(caplog: pytest.LogCaptureFixture) -> None:
    async with stage() as here:
        answer = await here.ask("GET", "/cut", cookie=await here.enter())
        with pytest.raises(aiohttp.ClientError):
            await answer.read()
        assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


async def test_it_shows_how_far_the_start_is_and_then_leads_to_the_first_page() -> None:
    async with stage() as here:
        here.services.define("notes", command=["notes"], url_template="/tree")
        cookie = await here.enter()
        answer = await here.ask("GET", OPEN, cookie=cookie)
        assert (answer.status, answer.headers["Location"]) == (303, "/tree")


async def test_it_shows_how_much_is_done_of_what_an_app_waits_for() -> None:
    async with stage() as here:
        cookie = await here.enter()
        await sync_to_async(AppGrant.objects.update)(port=1)
        here.services.waiting, here.services.percent = "Jupyter is being installed: 63 %.", 63
        text = await (await here.ask("GET", OPEN, cookie=cookie, headers=HTML)).text()
        assert "Jupyter is being installed: 63 %." in text
        assert 'value="63" max="100"></progress>' in text


@pytest.mark.parametrize("path", [OPEN, "/any/page"])
async def test_it_says_why_an_app_did_not_start(path: str) -> None:
    async with stage() as here:
        cookie = await here.enter()
        await sync_to_async(AppGrant.objects.update)(port=1)
        here.services.define("notes", command=["notes"])
        here.services.codes["launch-1"], here.services.words = 2, b"<b>no such file</b>"
        answer = await here.ask("GET", path, cookie=cookie, headers=HTML)
        if path != OPEN:
            assert (answer.status, answer.headers["Location"]) == (303, OPEN)
            answer = await here.ask("GET", OPEN, cookie=cookie, headers=HTML)
        text = await answer.text()
        assert answer.status == 502
        assert "notes ended with exit code 2." in text
        assert "&lt;b&gt;no such file&lt;/b&gt;" in text
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        answer = await here.ask("POST", OPEN, cookie=cookie)
        assert len(here.services.launched) == 2


async def test_it_says_that_the_node_does_not_answer() -> None:
    async with stage() as here:
        cookie = await here.enter()
        await Agent.objects.aupdate(gateway_url="http://127.0.0.1:1")
        answer = await here.ask("GET", "/", cookie=cookie)
        assert (answer.status, (await answer.json())["code"]) == (502, "node-unreachable")


@some("said", [b"", b"[" * 10_000, b"[]", b'{"state": "ready", "seconds": []}', b'{"seconds": %s}' % (b"9" * 400)], 2)
async def test_an_agent_that_talks_nonsense_is_out_of_reach(said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def talk(request: web.Request) -> web.Response:
        return web.Response(body=said, status=200 if request.method == "POST" else 503)

    node = web.Application()
    node.router.add_route("*", "/{path:.*}", talk)
    async with stage() as here, TestServer(node) as server:
        cookie = await here.enter()
        await Agent.objects.aupdate(gateway_url=str(server.make_url("")).rstrip("/"))
        for path in ("/", OPEN):  # a tunnel, and the state of the app
            answer = await here.ask("GET", path, cookie=cookie)
            assert answer.status in (502, 503) and (await answer.json())["code"] == "node-unreachable"
    assert not [record for record in caplog.records if record.exc_info]


async def test_an_app_under_the_domain_of_its_group_opens_there_and_nowhere_else() -> None:
    async with stage() as here:
        usual = here.host
        await sync_to_async(ResourceGroup.objects.update)(app_domain="gpu.example.net")
        here.session = await sync_to_async(ComputeSession.objects.get)(pk=here.session.pk)
        here.host = host_of(await sync_to_async(with_group)(here.session), "notes")
        assert here.host.endswith(".gpu.example.net")
        cookie = await here.enter()
        assert (await here.ask("GET", "/echo", cookie=cookie)).status == 200
        here.host = usual
        assert (await here.ask("GET", "/echo", cookie=cookie)).status == 401
        for host in ("notes-0123456789ab.gpu.example.org", "notes.gpu.example.net", "notes-0123456789ab.localhost"):
            answer = await here.ask("GET", "/", cookie=cookie, headers={"Host": host})
            assert answer.status in (401, 404), host


def with_group(session: ComputeSession) -> ComputeSession:
    return ComputeSession.objects.select_related("resource_group").get(pk=session.pk)


async def test_it_is_healthy_and_knows_no_other_names() -> None:
    async with stage() as here:
        assert await (await here.ask("GET", "/healthz", headers={"Host": "127.0.0.1:1"})).text() == "ok"
        for host in ("127.0.0.1", "evil.example", "apps.localhost", "a.b.apps.localhost", "-a.apps.localhost"):
            assert (await here.ask("GET", "/", headers={"Host": host})).status == 404, host


async def test_it_offers_its_metrics_at_no_name_of_an_app(settings: Any) -> None:
    settings.METRICS_TOKEN = "a-token-of-a-scraper-1"
    bearer = {"Authorization": f"Bearer {settings.METRICS_TOKEN}"}
    async with stage() as here:
        cookie = await here.enter()
        assert await (await here.ask("GET", "/metrics", cookie=cookie, headers=bearer)).text() == "GET /metrics"
        assert (await here.ask("GET", "/metrics", headers={"Host": "127.0.0.1"})).status == 404
        answer = await here.ask("GET", "/metrics", headers={"Host": "127.0.0.1", **bearer})
        families = text_string_to_metric_families(await answer.text())
        counts = {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}
        assert counts["backendai_proxy_requests_total", "app", "2xx"] >= 1
        assert counts["backendai_proxy_bytes_total", "sent", "app"] >= len("GET /metrics")
        assert counts["backendai_proxy_requests_total", "other", "4xx"] >= 1
        assert counts["backendai_proxy_connections",] >= 1


@pytest.mark.parametrize(("proxies", "status"), [([], 200), (["127.0.0.1"], 404)])
async def test_by_network_nobody_behind_a_proxy_gets_them(settings: Any, proxies: list[str], status: int) -> None:
    settings.METRICS_NETWORKS, settings.PROXIES = ["127.0.0.0/8"], proxies
    async with stage() as here:
        assert (await here.ask("GET", "/metrics", headers={"Host": "127.0.0.1"})).status == status

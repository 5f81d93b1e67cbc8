"""Apps that their owners have opened to everybody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.cluster.site import change_site
from backendai.domain.compute.models import PublicApp
from backendai.domain.compute.services.apps.public import close_to_others, open_to_everybody
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.gates.gateways import guard
from tests.appproxy.stage import Stage, stage
from tests.patience import patient

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "RECHECK_SECONDS", 0.05)


def open_it(here: Stage) -> None:
    change_site(here.cast.dana, {"public_apps": True}, now=timezone.now())
    open_to_everybody(here.cast.alice, here.session, "notes", now=timezone.now())


async def test_a_stranger_uses_an_open_app_and_no_other_one() -> None:
    async with stage() as here:
        assert (await here.ask("GET", "/page")).status == 401
        await sync_to_async(open_it)(here)
        page = await here.ask("GET", "/page")
        assert (page.status, await page.text()) == (200, "GET /page")
        assert (await here.ask("GET", "/page", cookie="backendai-app=nonsense")).status == 200
        other = here.host.replace("notes-", "other-")
        assert (await here.ask("GET", "/page", headers={"Host": other})).status == 401
        elsewhere = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
        assert (await here.ask("POST", "/page", headers=elsewhere)).status == 403


def close(here: Stage) -> None:
    close_to_others(here.cast.alice, here.session, "notes")


def forbid(here: Stage) -> None:
    change_site(here.cast.dana, {"public_apps": False}, now=timezone.now())


def deactivate(here: Stage) -> None:
    User.objects.filter(pk=here.cast.alice.pk).update(is_active=False)


def move(here: Stage) -> None:
    ResourceGroup.objects.update(app_domain="elsewhere.example.org")


@pytest.mark.parametrize("action", [close, forbid, deactivate, move])
async def test_it_is_shut_again(action: Callable[[Stage], Any]) -> None:
    async with stage() as here:
        await sync_to_async(open_it)(here)
        assert (await here.ask("GET", "/")).status == 200
        await sync_to_async(action)(here)
        assert await changed_answer(here) == 401


async def test_it_is_shut_at_its_end_at_each_request_before_anybody_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "RECHECK_SECONDS", 3600)
    async with stage() as here:
        await sync_to_async(open_it)(here)
        await sync_to_async(PublicApp.objects.update)(closes_at=timezone.now() + timedelta(seconds=0.5))
        assert (await here.ask("GET", "/")).status == 200
        await asyncio.sleep(0.6)
        assert (await here.ask("GET", "/")).status == 401, "what is remembered has the end in it"
        assert await sync_to_async(PublicApp.objects.exists)()


async def test_what_is_open_is_cut_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "RECHECK_SECONDS", 3600)
    monkeypatch.setattr(guard, "LOOK_SECONDS", 0.05)
    async with stage() as here:
        await sync_to_async(open_it)(here)
        await sync_to_async(PublicApp.objects.update)(closes_at=timezone.now() + timedelta(seconds=1))
        stream = await here.ask("GET", "/wait")
        websocket = await here.websocket("")
        assert await stream.content.read(5) == b"first"
        async with asyncio.timeout(patient(10)):
            await here.app.reader_left.wait()
            while not websocket.closed:
                await websocket.receive()


async def test_who_may_not_open_an_app_is_led_to_the_portal() -> None:
    async with stage() as here:
        answer = await here.ask("GET", "/", headers={"Accept": "text/html"})
        text = await answer.text()
        assert answer.status == 401 and "not-entered" not in text
        assert f'href="{settings.PORTAL_URL}/apps/{here.host.partition(".")[0]}/">Sign in and open</a>' in text


async def test_it_ends_with_its_session() -> None:
    async with stage() as here:
        await sync_to_async(open_it)(here)
        await sync_to_async(terminate_session)(here.session, here.cast.alice)
        assert await changed_answer(here) == 410


async def changed_answer(here: Stage) -> int:
    """What was known a moment ago may be said once more."""
    for _ in range(100):
        if (status := (await here.ask("GET", "/")).status) != 200:
            return status
        await asyncio.sleep(0.05)
    return 200

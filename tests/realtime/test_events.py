"""Which changes reach whose browser, and which pages may listen at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer
from redis.exceptions import ConnectionError as RedisConnectionError

from backendai.base.wire.browser import JobEvent, SessionEvent, _send
from backendai.domain.accounts.models import User
from backendai.portal.realtime.audiences import MOST_UNSENT, Listener, Missed
from backendai.portal.realtime.rounds import rounds
from tests.cast import Cast
from tests.realtime.sockets import PORTAL, page, script, socket

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]
EVENTS = "/ws/events/"


def change_of(user: User) -> SessionEvent:
    return SessionEvent("5e5510", str(user.pk), "RUNNING", 3)


async def test_it_tells_the_owner_and_superadmins_and_nobody_else(cast: Cast) -> None:
    async with (
        socket(EVENTS, await sync_to_async(page)(cast.alice)) as alice,
        socket(EVENTS, await sync_to_async(page)(cast.bob)) as bob,
        socket(EVENTS, await sync_to_async(script)(cast.dana)) as dana,
    ):
        for one in (alice, bob, dana):
            assert await one.message() == {"type": "hello"}
        await _send([change_of(cast.alice)])
        news = {"type": "session", "id": "5e5510", "status": "RUNNING", "version": 3}
        assert await alice.message() == news | {"own": True}
        assert await dana.message() == news | {"own": False}
        await _send([change_of(cast.bob)])
        assert await bob.message() == news | {"own": True}
        assert await alice.is_quiet()
        assert await bob.is_quiet()


async def test_it_tells_the_last_word_about_a_job_to_whom_it_belongs(cast: Cast) -> None:
    async with (
        socket(EVENTS, await sync_to_async(page)(cast.alice)) as alice,
        socket(EVENTS, await sync_to_async(page)(cast.bob)) as bob,
        socket(EVENTS, await sync_to_async(script)(cast.dana)) as dana,
    ):
        for one in (alice, bob, dana):
            await one.message()
        own = str(cast.alice.pk)
        await _send([JobEvent("10b", own, "image.pull", status) for status in ("RUNNING", "DONE")])
        news = {"type": "job", "id": "10b", "kind": "image.pull", "status": "DONE"}
        assert [await alice.message(), await dana.message()] == [news, news]
        await _send([JobEvent("20b", "", "image.build", "RUNNING")])
        assert (await dana.message())["id"] == "20b"
        assert await alice.is_quiet()
        assert await bob.is_quiet()


async def test_it_ignores_what_a_browser_says(cast: Cast) -> None:
    async with socket(EVENTS, await sync_to_async(page)(cast.bob)) as bob:
        await bob.message()
        await bob.send('{"type": "subscribe", "group": "events.all"}')
        await bob.send(b"\x00")
        await _send([change_of(cast.alice)])
        assert await bob.is_quiet()
        await _send([change_of(cast.bob)])
        assert (await bob.message())["type"] == "session"


async def test_it_closes_when_an_administrator_is_one_no_more(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backendai.portal.realtime.guarded.RECHECK_SECONDS", 0.05)
    async with socket(EVENTS, await sync_to_async(page)(cast.dana)) as dana:
        await dana.message()
        await User.objects.filter(pk=cast.dana.pk).aupdate(role=User.Role.USER)
        assert (await dana.closing())[0] == 4003


async def test_it_closes_for_now_when_the_layer_is_gone(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> None:
        raise RedisConnectionError("gone")

    headers = await sync_to_async(page)(cast.alice)
    monkeypatch.setattr(get_channel_layer(), "group_add", fail, raising=False)
    async with socket(EVENTS, headers) as alice:
        assert (alice.accepted, alice.code) == (False, 1013)


async def test_it_closes_when_the_layer_dies_behind_it(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> None:
        raise RedisConnectionError("gone")

    monkeypatch.setattr("backendai.portal.realtime.audiences.PROBE_SECONDS", 0.02)
    async with socket(EVENTS, await sync_to_async(page)(cast.alice)) as alice:
        assert await alice.message() == {"type": "hello"}
        assert await alice.is_quiet(), "its own probes are not for the browser"
        monkeypatch.setattr(get_channel_layer(), "send", fail, raising=False)
        assert (await alice.closing())[0] == 1013


async def test_it_refuses_whoever_is_not_signed_in(cast: Cast) -> None:
    origin = (b"origin", b"http://portal.example")
    for extra in ([], [(b"cookie", b"portal=made-up")], [(b"authorization", b"Bearer bai_made-up")]):
        async with socket(EVENTS, [PORTAL, origin, *extra]) as nobody:
            assert nobody.refused == (4003, "Sign in again.")


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example", "http://portal.example.evil.example", "http://portal.example:81", "null", "",
        "http://apps.portal.example", "http://portal.example@evil.example", "http://evil.example/portal.example",
    ],
)  # fmt: skip
async def test_it_refuses_the_pages_of_other_origins(cast: Cast, origin: str) -> None:
    headers = [one for one in await sync_to_async(page)(cast.alice) if one[0] != b"origin"]
    async with socket(EVENTS, [*headers, (b"origin", origin.encode())]) as foreign:
        assert not foreign.accepted


async def test_it_wants_a_token_from_whoever_names_no_origin(cast: Cast) -> None:
    headers = [one for one in await sync_to_async(page)(cast.alice) if one[0] != b"origin"]
    async with socket(EVENTS, headers) as without:
        assert not without.accepted
    async with socket(EVENTS, await sync_to_async(script)(cast.alice)) as with_token:
        assert with_token.accepted


async def test_it_trusts_the_origins_that_the_installation_names(cast: Cast, settings: Any) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://front.example"]
    headers = [one for one in await sync_to_async(page)(cast.alice) if one[0] != b"origin"]
    async with socket(EVENTS, [*headers, (b"origin", b"https://front.example")]) as front:
        assert front.accepted


async def test_it_serves_no_other_address(cast: Cast) -> None:
    async with socket("/ws/nothing/", await sync_to_async(page)(cast.dana)) as nowhere:
        assert not nowhere.accepted


async def test_a_login_without_a_required_second_factor_opens_no_socket(cast: Cast, settings: Any) -> None:
    settings.REQUIRE_MFA = "all"
    async with socket(EVENTS, await sync_to_async(page)(cast.alice)) as held:
        assert held.refused == (4003, "Sign in again.")
    async with socket(EVENTS, await sync_to_async(script)(cast.alice)) as by_token:
        assert await by_token.message() == {"type": "hello"}
    await Authenticator.objects.acreate(user=cast.alice, type="totp", data={})
    async with socket(EVENTS, await sync_to_async(page)(cast.alice)) as complete:
        assert await complete.message() == {"type": "hello"}


async def test_an_audience_is_one_channel_however_many_pages_it_has(cast: Cast) -> None:
    layer: Any = get_channel_layer()
    headers = [await sync_to_async(page)(cast.alice) for _ in range(3)]
    async with socket(EVENTS, headers[0]) as first, socket(EVENTS, headers[1]) as second:
        async with socket(EVENTS, headers[2]) as third:
            for one in (first, second, third):
                await one.message()
            assert [len(channels) for channels in layer.groups.values()] == [1]
            await _send([change_of(cast.alice)])
            assert [(await one.message())["own"] for one in (first, second, third)] == [True] * 3
        await _send([change_of(cast.alice), change_of(cast.alice)])
        assert [(await one.message())["id"] for one in (first, first, second, second)] == ["5e5510"] * 4
    assert not layer.groups, "who hears nothing any more takes no channel"


async def test_a_page_that_takes_nothing_for_too_long_has_to_look_again() -> None:
    listener = Listener("group", "me")
    for number in range(MOST_UNSENT):
        listener.tell(str(number))
    assert len(await listener.take()) == MOST_UNSENT
    for number in range(MOST_UNSENT + 1):
        listener.tell(str(number))
    with pytest.raises(Missed):
        await listener.take()


async def test_an_audience_that_went_deaf_is_made_anew(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    layer: Any = get_channel_layer()

    async def fail(*_: Any) -> None:
        raise RedisConnectionError("gone")

    async with socket(EVENTS, await sync_to_async(page)(cast.alice)) as alice:
        await alice.message()
        with monkeypatch.context() as broken:
            broken.setattr(layer, "receive", fail)
            await _send([change_of(cast.alice)])  # what is heard now is the last
            assert (await alice.closing())[0] == 1013
            async with socket(EVENTS, await sync_to_async(page)(cast.alice)) as late:
                await late.message()
                assert (await late.closing())[0] == 1013
    async with socket(EVENTS, await sync_to_async(page)(cast.alice)) as again:
        await again.message()
        await _send([change_of(cast.alice)])
        assert (await again.message())["id"] == "5e5510"


async def test_those_who_ask_the_same_at_once_share_an_answer_that_is_not_older_than_their_question() -> None:
    asked: list[bool] = []
    told = [True, False]

    def ask() -> bool:
        asked.append(True)
        return told[len(asked) - 1]

    first, *others = await asyncio.gather(*(rounds().shared("stays", ask) for _ in range(20)))
    assert (first, set(others), len(asked)) == (True, {False}, 2)


async def test_one_person_holds_only_so_many_sockets(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backendai.portal.realtime.events.MOST_EVENTS", 2)
    headers = await sync_to_async(page)(cast.alice)
    for _ in range(2):  # the second round has the places of the first
        async with socket(EVENTS, headers) as one, socket(EVENTS, headers) as two:
            assert await one.message() == await two.message() == {"type": "hello"}
            async with socket(EVENTS, headers) as three:
                assert await three.closing() == (4029, "2 pages are open: close one, then open another.")
            async with socket(EVENTS, await sync_to_async(page)(cast.bob)) as his:
                assert await his.message() == {"type": "hello"}

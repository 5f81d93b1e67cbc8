"""What lets somebody in, and at what it ends: the table of docs/security.md, action by action.

Everything that stays open is real here: websockets, and the app proxy with an app behind it. The ten seconds after
which each of them asks anew by itself are not waited for: what ends here ends because somebody looked for changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from asgiref.sync import sync_to_async
from django.conf import settings
from django.test import Client
from django.utils import timezone

from backendai.domain.accounts.models import AccessToken, KeyPair, Membership
from backendai.domain.accounts.services import create_token
from backendai.domain.accounts.services.key_pairs import create_key_pair
from backendai.domain.accounts.sign_in.credentials import Credential
from backendai.domain.accounts.sign_in.revocation import set_active
from backendai.domain.accounts.sign_in.second_factors import reset_factors
from backendai.gates.appproxy.grants import digest_of
from tests.api.test_key_pairs import signed
from tests.appproxy.stage import Stage, stage
from tests.cast import PASSWORD
from tests.pages import sent
from tests.patience import patient
from tests.realtime.sockets import PORTAL, Header, Socket, socket
from tests.web.conftest import prove

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]

EVENTS_SOCKET = "/ws/events/"
NOW_HERE = {"this login", "code of this login", "app of this login", "socket of this login"}
ELSEWHERE = {"other login", "app of other login", "socket of other login"}
BY_TOKEN = {"token", "socket of token", "app of token"}
EVERYTHING = NOW_HERE | ELSEWHERE | BY_TOKEN | {"key pair"}
# What was open of the login goes with the key of its session, which a change of password renews.
OPENED_HERE = NOW_HERE - {"this login"}

# action → what ends by it; all else survives
TABLE: dict[str, set[str]] = {
    "nothing": set(),
    "sign-out": NOW_HERE,
    "password changed here": OPENED_HERE | ELSEWHERE,
    "signed out everywhere else": OPENED_HERE | ELSEWHERE,
    "password set by an administrator": NOW_HERE | ELSEWHERE,
    "role changed": EVERYTHING,
    "domain changed": EVERYTHING,
    "second factors taken away": NOW_HERE | ELSEWHERE,
    "token revoked": BY_TOKEN,
    "deactivated": EVERYTHING,
    "deactivated and activated again": EVERYTHING,
    "deleted": EVERYTHING,
}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backendai.portal.realtime.rounds.LOOK_SECONDS", 0.05)
    monkeypatch.setattr("backendai.gates.gateways.guard.LOOK_SECONDS", 0.05)
    monkeypatch.setattr("backendai.portal.realtime.guarded.RECHECK_SECONDS", 3600.0)
    monkeypatch.setattr("backendai.gates.gateways.guard.RECHECK_SECONDS", 3600.0)


@dataclass
class World:
    """Alice in two browsers and a script, with something open by each."""

    here: Stage
    other: Client
    token: str
    pair: tuple[KeyPair, str]
    code: str
    sockets: dict[str, Socket]
    apps: dict[str, Any]
    cookies: dict[str, str]

    async def ended(self) -> set[str]:
        """Return what does not let in (any more)."""
        found = {kind for kind, one in self.sockets.items() if await closed(one)}
        for kind, websocket in self.apps.items():
            served = (await self.here.ask("GET", "/page", cookie=self.cookies[kind])).status == 200
            assert served is not await cut(websocket), kind
            found |= set() if served else {kind}
        return found | await sync_to_async(self._ended_requests)() | await self._ended_code()

    def _ended_requests(self) -> set[str]:
        bearer = {"Authorization": f"Bearer {self.token}"}
        answers = {
            "this login": self.here.browser.get("/account/").status_code,
            "other login": self.other.get("/account/").status_code,
            "token": Client().get("/api/v1/me/", headers=bearer).status_code,
            "key pair": signed(*self.pair, "GET", "/api/v1/me/").status_code,
        }
        assert set(answers.values()) <= {200, 302, 401}
        return {kind for kind, status in answers.items() if status != 200}

    async def _ended_code(self) -> set[str]:
        answer = await self.here.ask("POST", "/.backendai/enter", data={"code": self.code})
        return set() if answer.status == 303 else {"code of this login"}


@pytest.mark.parametrize("action", TABLE)
async def test_an_action_ends_what_the_table_says_within_seconds_and_nothing_else(action: str) -> None:
    async with stage() as here, AsyncExitStack() as stack:
        world = await make_world(here, stack)
        await sync_to_async(ACTIONS[action])(world)
        await asyncio.sleep(0.3)  # several looks
        assert await world.ended() == TABLE[action]


async def make_world(here: Stage, stack: AsyncExitStack) -> World:
    other = Client()
    await sync_to_async(other.force_login)(here.cast.alice)
    _, token = await sync_to_async(create_token)(here.cast.alice, "script")
    by_token = Credential(token=digest_of(token))
    credentials = {"this login": here.credential(), "other login": login_of(other), "token": by_token}
    headers = {
        "this login": page_of(here.browser),
        "other login": page_of(other),
        "token": [PORTAL, (b"authorization", f"Bearer {token}".encode())],
    }
    sockets, apps, cookies = {}, {}, {}
    for kind, credential in credentials.items():
        one = sockets[f"socket of {kind}"] = await stack.enter_async_context(socket(EVENTS_SOCKET, headers[kind]))
        assert await one.message() == {"type": "hello"}
        entered = await here.ask("POST", "/.backendai/enter", data={"code": await here.code(credential=credential)})
        cookies[f"app of {kind}"] = cookie = entered.headers["Set-Cookie"].split(";")[0]
        apps[f"app of {kind}"] = websocket = await here.websocket(cookie)
        assert await websocket.receive_str() == "welcome"
    pair = await sync_to_async(create_key_pair)(here.cast.alice, "signs")
    return World(here, other, token, pair, await here.code(), sockets, apps, cookies)


def login_of(client: Client) -> Credential:
    return Credential(login=client.session.session_key or "")


def page_of(client: Client) -> list[Header]:
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
    return [PORTAL, (b"origin", b"http://portal.example"), (b"cookie", cookie.encode())]


async def closed(one: Socket) -> bool:
    while not await one.is_quiet():  # what stays open may say something meanwhile
        event = await one.event()
        if event["type"] == "websocket.close":
            return bool(event["code"] == 4003)
    return False


async def cut(websocket: Any) -> bool:
    try:
        await websocket.send_str("still there?")
        return (await asyncio.wait_for(websocket.receive(), patient(5))).data != "STILL THERE?"
    except ConnectionError:
        return True


def sign_out(world: World) -> None:
    assert world.here.browser.post("/logout/").status_code == 302


def change_password(world: World) -> None:
    new = "a quite different password"
    form = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    prove(world.here.browser)
    assert world.here.browser.post("/account/password/", form).status_code == 302


def sign_out_elsewhere(world: World) -> None:
    assert world.here.browser.post("/account/security/sign-out/").status_code == 302


def set_password(world: World) -> None:
    path = f"/manage/users/{world.here.cast.alice.pk}/password/"
    assert administrator(world).post(path, {"password": "given by the administrator"}).status_code == 302


def change_by_administrator(**over: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        dana, path = administrator(world), f"/manage/users/{world.here.cast.alice.pk}/change/"
        if "domain" in over:
            Membership.objects.filter(user=world.here.cast.alice).delete()  # a person changes domains without projects
        answer = dana.post(path, sent(dana.get(path).context["form"], **over))
        assert answer.status_code == 302, answer.context["form"].errors

    return change


def administrator(world: World) -> Client:
    dana = Client()
    dana.force_login(world.here.cast.dana)
    return dana


def deactivate(world: World) -> None:
    assert set_active(world.here.cast.dana.pk, world.here.cast.alice, False, now=timezone.now())


def deactivate_and_activate(world: World) -> None:
    deactivate(world)
    assert set_active(world.here.cast.dana.pk, world.here.cast.alice, True, now=timezone.now())


def lose_factors(world: World) -> None:
    Authenticator.objects.create(user=world.here.cast.alice, type="totp", data={"secret": "sealed"})
    assert reset_factors(world.here.cast.dana.pk, world.here.cast.alice, now=timezone.now()) == 1


def delete(world: World) -> None:
    world.here.session.delete()
    world.here.cast.alice.delete()


ACTIONS: dict[str, Callable[[World], Any]] = {
    "nothing": lambda world: None,
    "sign-out": sign_out,
    "password changed here": change_password,
    "signed out everywhere else": sign_out_elsewhere,
    "password set by an administrator": set_password,
    "role changed": change_by_administrator(role="admin"),
    "domain changed": lambda world: change_by_administrator(domain=world.here.cast.charlie.domain_id)(world),
    "second factors taken away": lose_factors,
    "token revoked": lambda world: AccessToken.objects.all().delete(),
    "deactivated": deactivate,
    "deactivated and activated again": deactivate_and_activate,
    "deleted": delete,
}

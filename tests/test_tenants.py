"""Hundreds of requests (2,000 with --all) from people of another domain, on every address and with every foreign id:
what they get back tells nothing of what is not theirs, and changes nothing of it."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from asgiref.sync import sync_to_async
from django.test import Client
from django.urls import reverse

from backendai.domain.accounts.models import User
from backendai.domain.accounts.services import create_person
from backendai.domain.cluster.models import Agent
from backendai.domain.storage.models import FolderGrant
from backendai.portal.realtime.routing import websocket_urlpatterns
from tests.cast import PASSWORD, Cast
from tests.realtime.sockets import fake_gateway, page, socket
from tests.test_census import PRIVATE_NAME, PRIVATE_OUTPUT, TABLE, Policy, World, made_world

SKIPPED = (Policy.PUBLIC, Policy.NODE, Policy.SHUT)
LEFT_OUT = ("logout/", "account/password", "api/docs/")  # they end logins, or say the same to everybody


@pytest.fixture
def world(cast: Cast) -> Iterator[World]:
    """The world of the census, something of Alice's in every table, for one test: threads of it look too."""
    with made_world(cast) as world:
        yield world


class Request(NamedTuple):
    """What is asked, and its words: an answer may repeat them."""

    method: str
    path: str
    query: dict[str, str]
    body: dict[str, Any]

    @property
    def words(self) -> str:
        return f"{self.path} {self.query} {json.dumps(self.body)}".lower()


def secrets_of(world: World) -> list[str]:
    """What nobody from elsewhere may read: names, ids and words of Alice's things."""
    alice = world.cast.alice
    rows = (
        world.session,
        world.kernel,
        world.token,
        world.agent,
        world.job,
        world.invitation,
        alice,
        world.cast.project,
    )
    ids = [*(str(row.pk) for row in rows), *(str(pk) for pk in alice.folders.values_list("pk", flat=True))]
    names = [PRIVATE_NAME, PRIVATE_OUTPUT.decode(), alice.email, alice.key_pairs.get().access_key, world.agent.name]
    return [text.lower() for text in (*ids, *names)]


def requests_to(world: World, dice: random.Random) -> Iterator[Request]:
    """Yield requests for ever: every route and method in turn, with foreign ids in the path, the query and the body."""
    session, kernel, project = str(world.session.pk), str(world.kernel.pk), str(world.cast.project.pk)
    alice, agent = world.cast.alice.email, world.agent.name
    queries: list[dict[str, str]] = [
        {}, {"owner": alice}, {"q": PRIVATE_NAME}, {"name": PRIVATE_NAME}, {"kernel": kernel}, {"project": project},
        {"like": session}, {"email": alice}, {"page": "1", "view": "finished"}, {"resource_group": "default"},
        {"message": PRIVATE_NAME}, {"first": "2030-01-01", "last": "2030-01-02", "by": "user"}, {"export": "csv"},
    ]  # fmt: skip
    launch = {"image": "python", "resources": {"cpu": "0.1", "mem": "64m"}}
    bodies: list[dict[str, Any]] = [
        {}, launch | {"owner": alice}, launch | {"project": project}, launch | {"agents": [agent]},
        launch | {"type": "batch", "startup_command": "true", "depends_on": [PRIVATE_NAME]},
        launch | {"type": "batch", "startup_command": "true", "depends_on": [session]}, {"force": True},
        {"email": alice, "project": project}, {"user": alice, "role": "admin"}, {"name": "eves-own"},
        {"resource_group": "default", "project": project},
        {"name": "eves-folder", "project": project}, {"email": alice, "rights": "edit"}, {"name": PRIVATE_NAME},
        {"from_user": alice, "to_user": alice}, {"path": "stolen"}, {"source": "a", "target": "b"}, {"rights": "view"},
        {"replaces": session, "owner": alice, "image": "python", "project": project, "resource_group": "default"},
    ]  # fmt: skip
    routes = [
        (method, route)
        for route, (policy, methods) in TABLE.items()
        for method in methods.split()
        if policy not in SKIPPED and not route.startswith(LEFT_OUT)
    ]
    for method, route in itertools.cycle(routes):
        path = world.path(route)
        if dice.random() < 0.2:  # another id of hers, where this one stands
            path = path.replace(session, dice.choice([kernel, str(world.token.pk), project]))
        yield Request(method, path, dice.choice(queries), dice.choice(bodies) if method != "GET" else {})


def send(client: Client, request: Request) -> Any:
    if request.method == "GET":
        return client.get(request.path, request.query)
    path = f"{request.path}?{'&'.join(f'{name}={value}' for name, value in request.query.items())}"
    if request.path.startswith("/api/"):
        return client.generic(request.method, path, json.dumps(request.body), content_type="application/json")
    fields = {name: value for name, value in request.body.items() if isinstance(value, str)}
    return client.post(path, fields)


@pytest.mark.django_db
# Of each of the two. ``bin/test`` asks half of the routes, and the census each of them as a stranger.
@pytest.mark.parametrize(
    "number", [110, pytest.param(250, marks=pytest.mark.ci), pytest.param(1_000, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("role", [User.Role.USER, User.Role.ADMIN])
def test_requests_from_another_domain_learn_and_change_nothing(
    world: World, role: str, number: int, settings: Any
) -> None:
    settings.RATE_API = settings.RATE_LAUNCH = settings.RATE_LAUNCH_BURST = 10**6  # "too fast" would hide what is told
    dice, secrets, before = random.Random(f"{role}"), secrets_of(world), hers(world)
    eve = create_person("eve@example.com", password=PASSWORD, project=world.cast.elsewhere, role=role)
    client, statuses = Client(), Counter[int]()
    beginning = 0 if role == User.Role.USER else number  # together they go through every route
    requests = itertools.islice(requests_to(world, dice), beginning, beginning + number)
    client.force_login(eve)
    own = ""
    for request in requests:
        answer = send(client, request)
        if answer.status_code == 401 or reverse("account_login") in answer.get("Location", ""):
            client.force_login(eve)  # an earlier action ended what she was signed in by
            answer = send(client, request)
        text = b"".join(answer).decode() if answer.streaming else answer.content.decode(errors="replace")
        if world.agent.name in request.words and answer.status_code == 201:
            secrets = [secret for secret in secrets if secret != str(world.agent.pk)]  # her session tells it
        told = [secret for secret in secrets if secret in text.lower() and secret not in request.words + own]
        if answer.status_code == 302:  # the next page confirms it, with the name that she gave
            own = request.words
        elif 'id="messages"' in text:
            own = ""
        assert not told, (request, answer.status_code, told)
        assert answer.status_code < 500, (request, text[:300])
        statuses[answer.status_code] += 1
    assert hers(world) == before
    assert statuses[404] > number // 4, "most of it is not there for strangers"
    assert statuses[200] > number // 20, "and lists answer, without what is hers"


def hers(world: World) -> list[Any]:
    """Everything of Alice's that a stranger must not change."""
    alice = world.cast.alice
    return [
        list(alice.compute_sessions.order_by("pk").values()),
        list(world.session.kernels.values()),
        list(User.objects.filter(pk=alice.pk).values("email", "role", "is_active", "domain", "policy")),
        list(alice.access_tokens.values_list("pk", flat=True)),
        list(alice.folders.order_by("pk").values()),
        list(FolderGrant.objects.order_by("pk").values("folder", "user", "rights", "accepted_at")),
        list(alice.memberships.values("project", "role")),
        list(Agent.objects.order_by("pk").values("pk", "schedulable", "resource_group")),
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.asyncio
async def test_websockets_with_foreign_ids_are_closed_before_anything_is_said(world: World) -> None:
    foreign = [str(world.session.pk), str(world.kernel.pk), str(world.token.pk)]
    queries = [f"?kernel={world.kernel.pk}", "?tail=5", f"?kernel={world.session.pk}"]
    headers = await sync_to_async(page)(world.cast.charlie)
    routes = [str(pattern.pattern) for pattern in websocket_urlpatterns if "session_id" in str(pattern.pattern)]
    async with fake_gateway() as (gateway, url):
        gateway.more_log.set()
        await Agent.objects.aupdate(gateway_url=url)
        for route, pk, query in itertools.product(routes, foreign, queries):
            async with socket("/" + route.replace("<uuid:session_id>", pk) + query, headers) as one:
                assert one.refused == (4003, "Session not found."), (route, pk, query)

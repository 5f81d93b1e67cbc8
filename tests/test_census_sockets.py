"""Every websocket lets in whom its declared policy names, and pages of no other origin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from asgiref.sync import sync_to_async

from backendai.domain.cluster.models import Agent
from tests.cast import make_cast
from tests.realtime.sockets import PORTAL, fake_gateway, page, socket
from tests.test_census import SOCKETS, Policy, World, made_world


@pytest.fixture
def committed_world(transactional_db: None) -> Iterator[World]:
    with made_world(make_cast()) as world:
        yield world


@pytest.mark.django_db(transaction=True)
@pytest.mark.asyncio
@pytest.mark.parametrize("route", SOCKETS)
async def test_it_opens_websockets_to_whom_the_policy_names(committed_world: World, route: str) -> None:
    world = committed_world
    async with fake_gateway() as (gateway, url):
        gateway.more_log.set()
        await Agent.objects.aupdate(gateway_url=url)
        for who in ("nobody", "charlie", "bob", "alice", "dana"):
            headers = await sync_to_async(headers_of)(world, who)
            async with socket(world.path(route), headers) as one:
                if SOCKETS[route] is Policy.NOWHERE:
                    assert not one.accepted
                elif who == "nobody" or (SOCKETS[route] is Policy.VISIBLE and who in ("charlie", "bob")):
                    assert one.refused is not None and one.refused[0] == 4003, who
                else:
                    assert (await one.event())["type"] == "websocket.send", who
            foreign = [*(one for one in headers if one[0] != b"origin"), (b"origin", b"http://evil.example")]
            async with socket(world.path(route), foreign) as one:
                assert not one.accepted


def headers_of(world: World, who: str) -> list[tuple[bytes, bytes]]:
    if who == "nobody":
        return [PORTAL, (b"origin", b"http://portal.example")]
    return page(getattr(world.cast, who))

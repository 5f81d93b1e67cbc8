"""Endpoints that were created since the app proxy last read its book."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import DatabaseError

from backendai.domain.serving.services.tokens import create_token
from backendai.gates.appproxy.endpoints import service as service_module
from backendai.gates.appproxy.endpoints import table_cache as keeper_module
from tests.appproxy.endpoint_stage import Stage, endpoint_stage
from tests.serving.world import a_revision, make_endpoint

pytestmark = pytest.mark.django_db(transaction=True)

STRANGE = "nothing-0123456789ab.apps.localhost"
FOLDER = "files-0123456789ab.apps.localhost"


@pytest.fixture(autouse=True)
def looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> list[int]:
    """Return a list that grows with every look at the database: one at the start, then those that requests ask for."""
    settings.DATA_DIR = tmp_path
    found, read = list[int](), keeper_module.read_sign
    monkeypatch.setattr(service_module, "LOOK_SECONDS", 600.0)
    monkeypatch.setattr(keeper_module, "read_sign", lambda: found.append(0) or read())
    return found


async def code_of(answer: aiohttp.ClientResponse) -> tuple[int, str]:
    return answer.status, (await answer.json())["error"]["code"]


async def a_new_one(here: Stage, name: str) -> tuple[str, str]:
    """Create another endpoint, which sleeps; returns its host name and a token."""

    def create() -> tuple[str, str]:
        endpoint = make_endpoint(here.cast.alice, name, revision=a_revision(), minimum=0)
        _, text = create_token(endpoint, here.cast.alice, "new")
        return f"{endpoint.label}.{settings.APPS_DOMAIN}", text

    return await sync_to_async(create)()


def test_an_endpoint_is_known_from_the_moment_in_which_it_is_created(looks: list[int]) -> None:
    async def scene() -> None:
        async with endpoint_stage(0) as here:
            await here.until(lambda: looks, steps=False)
            host, text = await a_new_one(here, "new")
            wakes = {"Host": host, "Authorization": f"Bearer {text}", "X-Scale-Up-Timeout": "1"}
            assert await code_of(await here.ask(headers=wakes)) == (503, "no-replica")
            host, _ = await a_new_one(here, "newer")
            assert await code_of(await here.ask(headers={"Host": host, "Authorization": ""})) == (401, "token-refused")

    uvloop.run(scene())


def test_a_name_without_an_endpoint_is_looked_for_once(looks: list[int]) -> None:
    async def scene() -> None:
        async with endpoint_stage(0) as here:
            await here.until(lambda: looks, steps=False)
            answers = [await here.ask(headers={"Host": STRANGE}) for _ in range(3)]
            assert [(one.status, (await one.json())["code"]) for one in answers] == [(401, "not-entered")] * 3
            assert len(looks) == 2
            cookie = {"Host": STRANGE.replace("nothing", "app"), "Cookie": "backendai-app=of-a-browser"}
            await here.ask(headers=cookie)
            assert len(looks) == 2

    uvloop.run(scene())


def test_without_a_database_a_caller_of_an_unknown_endpoint_shall_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with endpoint_stage(0) as here:

            def away() -> Any:
                raise DatabaseError("the database is away")

            monkeypatch.setattr(keeper_module, "read_sign", away)
            for _ in range(2):
                answer = await here.ask(headers={"Host": STRANGE})
                assert await code_of(answer) == (503, "endpoint-not-known")
                assert answer.headers["Retry-After"] == "10"

    uvloop.run(scene())


def test_a_request_to_a_folder_is_never_looked_for_among_endpoints(looks: list[int]) -> None:
    async def scene() -> None:
        async with endpoint_stage(0) as here:
            await here.until(lambda: looks, steps=False)
            answer = await here.ask(headers={"Host": FOLDER, "Authorization": "Bearer of-a-script"})
            assert answer.status != 503
            assert len(looks) == 1

    uvloop.run(scene())

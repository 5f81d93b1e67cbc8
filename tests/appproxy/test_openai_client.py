"""OpenAI's own client at the address that all endpoints share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest
import uvloop

from tests.appproxy.endpoint_stage import Stage, endpoint_stage

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def own_data_folder(tmp_path: Path, settings: Any) -> None:
    settings.DATA_DIR = tmp_path


def client_of(here: Stage, key: str, *, path: str = "") -> openai.AsyncOpenAI:
    """Return a client for the path of a plain address, or for the name of the common address."""
    return openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{here.port}{path or '/v1'}",
        api_key=key,
        default_headers={} if path else {"Host": "models.apps.localhost"},
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
    )


async def chat(client: openai.AsyncOpenAI, model: str = "chat") -> str:
    """Return the text of a streamed answer."""
    messages: Any = [{"role": "user", "content": "Hello"}]
    stream = await client.chat.completions.create(model=model, messages=messages, stream=True)
    return "".join([piece.choices[0].delta.content or "" async for piece in stream])


def test_it_lists_models_and_streams_chats_from_both_replicas() -> None:
    async def scene() -> None:
        async with endpoint_stage(2) as here, client_of(here, here.text) as client:
            assert [one.id async for one in client.models.list()] == ["chat"]
            texts = {await chat(client) for _ in range(20)}
            assert texts == {"1 two words ", "2 two words "}

    uvloop.run(scene())


def test_it_needs_no_name_below_the_domain_of_apps() -> None:
    async def scene() -> None:
        async with endpoint_stage() as here:
            for path in ("/v1", f"/endpoints/{here.endpoint.label}/v1"):
                async with client_of(here, here.text, path=path) as client:
                    assert await chat(client) == "1 two words "

    uvloop.run(scene())


def test_it_takes_refusals_for_errors_of_its_own() -> None:
    async def scene() -> None:
        async with endpoint_stage() as here, client_of(here, here.text) as client, client_of(here, "no") as stranger:
            with pytest.raises(openai.NotFoundError) as missing:
                await chat(client, "other")
            assert missing.value.code == "model-not-found"
            with pytest.raises(openai.AuthenticationError) as refused:
                await chat(stranger)
            assert refused.value.code == "token-refused"

    uvloop.run(scene())

"""What a stranger can make the web server do by opening a websocket: answer 403, and read nothing."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import pytest
import uvicorn
import yaml
from aiohttp import WSMsgType, WSServerHandshakeError
from asgiref.sync import sync_to_async
from django.conf import settings
from django.test import Client
from uvicorn.main import main
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from backendai.ops.run.fleet import Choice, web_program
from backendai.portal.realtime.routing import websocket_application
from tests.cast import Cast
from tests.patience import patient

ROOT = Path(__file__).parents[2]


def options_of(command: list[str]) -> dict[str, Any]:
    """Return how uvicorn understands a command line."""
    arguments = command[command.index("backendai.asgi:application") :]
    return main.make_context("uvicorn", arguments).params


def single_machine() -> dict[str, Any]:
    return options_of(list(web_program(Choice("127.0.0.1", 8080, Path("/nowhere"), 1, "docker")).command))


def compose() -> dict[str, Any]:
    command = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["web"]["command"]
    numbers = re.compile(r"\$\{\w+:-(\d+)\}")
    return options_of([numbers.sub(r"\1", word) for word in command])


@pytest.mark.parametrize("options", [single_machine, compose])
def test_the_web_server_inflates_no_message_and_limits_its_size(options: Any) -> None:
    told = options()
    assert told["ws_per_message_deflate"] is False
    assert told["ws_max_size"] == 2**20


@pytest.mark.parametrize(
    ("proxies", "seen"), [("", "127.0.0.1"), ("127.0.0.1", "6.6.6.6"), ("10.9.8.0/24", "127.0.0.1")]
)
def test_only_named_proxies_say_where_a_request_comes_from(
    monkeypatch: pytest.MonkeyPatch, proxies: str, seen: str
) -> None:
    monkeypatch.setenv("BACKENDAI_PROXIES", proxies)
    told = single_machine()["forwarded_allow_ips"]
    assert compose()["forwarded_allow_ips"] == "${BACKENDAI_PROXIES:-}"
    addresses = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        addresses.append(scope["client"][0])

    scope: Any = {"type": "http", "client": ("127.0.0.1", 1), "headers": [(b"x-forwarded-for", b"6.6.6.6")]}
    asyncio.run(ProxyHeadersMiddleware(application, told)(scope, None, None))  # type: ignore[arg-type]
    assert addresses == [seen]


@asynccontextmanager
async def served() -> AsyncIterator[int]:
    """Serve the websockets as ``bin/up`` does; yields the port."""
    told = {name: value for name, value in single_machine().items() if name.startswith("ws")}
    server = uvicorn.Server(uvicorn.Config(websocket_application, lifespan="off", log_config=None, **told))
    listener = socket.create_server(("127.0.0.1", 0))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    yield listener.getsockname()[1]
    server.should_exit = True
    await running


@pytest.mark.django_db(transaction=True)
@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/ws/events/", f"/ws/sessions/{UUID(int=1)}/terminal/"])
async def test_a_stranger_is_answered_403_before_the_socket_opens(path: str) -> None:
    async with served() as port, aiohttp.ClientSession() as client:
        address = f"http://127.0.0.1:{port}"
        with pytest.raises(WSServerHandshakeError) as refused:
            await client.ws_connect(f"{address}{path}", origin=address, compress=15)
        assert refused.value.status == 403


@pytest.mark.django_db(transaction=True)
@pytest.mark.asyncio
async def test_who_is_signed_in_sends_no_compressed_and_no_long_messages(cast: Cast) -> None:
    browser = Client()
    await sync_to_async(browser.force_login)(cast.alice)
    cookie = browser.cookies[settings.SESSION_COOKIE_NAME].value
    headers = {"Cookie": f"{settings.SESSION_COOKIE_NAME}={cookie}"}
    async with served() as port, aiohttp.ClientSession() as client:
        address = f"http://127.0.0.1:{port}"
        one = await client.ws_connect(f"{address}/ws/events/", origin=address, compress=15, headers=headers)
        assert (await one.receive_json())["type"] == "hello"
        assert not one.compress
        await one.send_bytes(bytes(2**20 + 1))
        frame = await one.receive(timeout=patient(5))
        assert (frame.type, frame.data) == (WSMsgType.CLOSE, 1009)

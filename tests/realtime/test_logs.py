"""Following a kernel's output in the browser."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.utils.translation import gettext, override

from backendai.base.wire.messages import KernelState
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.records.logs import save_log
from tests.cast import Cast
from tests.factories import make_running_session, make_session, report_of
from tests.patience import patient
from tests.realtime.sockets import fake_gateway, page, script, socket

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]


@pytest.fixture
def running(cast: Cast) -> ComputeSession:
    return make_running_session(cast.alice)


def address(session: Any, query: str = "") -> str:
    return f"/ws/sessions/{session.pk}/logs/{query}"


def end(session: ComputeSession, content: bytes, *, truncated: bool = False) -> None:
    kernel = session.kernels.select_related("agent").get()
    save_log(kernel.agent, kernel.pk, kernel.generation, content, truncated=truncated)
    kernel_reported(kernel.agent, report_of(kernel, KernelState.TERMINATED, exit_code=0))


async def test_it_follows_a_running_kernel_to_its_end(cast: Cast, running: ComputeSession) -> None:
    headers = await sync_to_async(page)(cast.alice)
    async with fake_gateway() as (gateway, url):
        await Agent.objects.aupdate(gateway_url=url)
        async with socket(address(running, "?tail=20"), headers) as log:
            assert await log.bytes_until(b"\n") == b"first \xff\n"
            gateway.more_log.set()
            assert await log.bytes_until(b"d\n") == b"second\n"
            assert await log.closing() == (4000, "The output has ended.")
        assert dict(gateway.requests[-1].query) == {"follow": "1", "tail": "20"}
        assert gateway.ticket("log").kernel_id == (await running.kernels.aget()).pk


async def test_it_lets_go_of_the_node_when_the_reader_leaves(cast: Cast, running: ComputeSession) -> None:
    headers = await sync_to_async(page)(cast.alice)
    async with fake_gateway() as (gateway, url):
        await Agent.objects.aupdate(gateway_url=url)
        async with socket(address(running), headers) as log:
            await log.bytes_until(b"\n")
        await asyncio.wait_for(gateway.log_reader_left.wait(), patient(5))


async def test_it_sends_the_kept_log_of_a_kernel_that_ended(cast: Cast, running: ComputeSession) -> None:
    content = b"line\n" * 50_000
    await sync_to_async(end)(running, content, truncated=True)
    headers = await sync_to_async(script)(cast.alice)
    async with socket(address(running), headers) as log:
        assert await log.message() == {"type": "truncated"}
        assert b"".join([await log.frame() for _ in range(4)]) == content
        assert (await log.closing())[0] == 4000
    async with socket(address(running, "?tail=2"), headers) as log:
        await log.message()
        assert await log.frame() == b"line\nline\n"


async def test_it_takes_the_kept_log_when_the_node_has_let_go(cast: Cast, running: ComputeSession) -> None:
    await sync_to_async(terminate_session)(running, cast.alice)
    kernel = await running.kernels.select_related("agent").aget()
    await sync_to_async(save_log)(kernel.agent, kernel.pk, kernel.generation, b"kept", truncated=False)
    headers = await sync_to_async(page)(cast.alice)
    async with fake_gateway() as (gateway, url):
        gateway.log_status = 404
        await Agent.objects.aupdate(gateway_url=url)
        async with socket(address(running), headers) as log:
            assert await log.frame() == b"kept"


async def test_it_says_when_there_is_nothing_yet(cast: Cast) -> None:
    pending = await sync_to_async(make_session)(cast.alice)
    headers = await sync_to_async(page)(cast.alice)
    async with socket(address(pending), headers) as log:
        assert await log.closing() == (4004, "The kernel has not started yet.")


@pytest.mark.parametrize("wish", ["accept-language", "cookie"])
async def test_it_refuses_in_the_language_of_the_browser(cast: Cast, running: ComputeSession, wish: str) -> None:
    *headers, (_, login) = await sync_to_async(page)(cast.bob)
    headers.append((b"cookie", login + f"; {settings.LANGUAGE_COOKIE_NAME}=ko".encode() if wish == "cookie" else login))
    headers.append((b"accept-language", b"ko" if wish == "accept-language" else b"en"))
    with override("ko"):
        korean = gettext("Session not found.")
    assert korean != "Session not found."
    async with socket(address(running), headers) as log:
        assert log.refused == (4003, korean)


@pytest.mark.parametrize("status", [403, 503])
async def test_it_hides_what_the_node_says_about_its_faults(cast: Cast, running: ComputeSession, status: int) -> None:
    headers = await sync_to_async(page)(cast.alice)
    async with fake_gateway() as (gateway, url):
        gateway.log_status = status
        await Agent.objects.aupdate(gateway_url=url)
        async with socket(address(running), headers) as log:
            assert await log.closing() == (1011, "The agent cannot read the output now.")


@pytest.mark.parametrize("who", ["bob", "charlie"])
async def test_it_refuses_strangers(cast: Cast, running: ComputeSession, who: str) -> None:
    await sync_to_async(end)(running, b"private")
    headers = await sync_to_async(page)(getattr(cast, who))
    async with socket(address(running), headers) as log:
        assert log.refused == (4003, "Session not found.")


@pytest.mark.parametrize("door", ["logs", "terminal"])
async def test_it_does_not_follow_a_node_that_sends_it_elsewhere(
    cast: Cast, running: ComputeSession, door: str
) -> None:
    headers = await sync_to_async(page)(cast.alice)
    async with fake_gateway() as (gateway, url), fake_gateway() as (inner, inner_url):
        gateway.redirect = f"{inner_url}/kernels/secret/log"
        await Agent.objects.aupdate(gateway_url=url)
        async with socket(f"/ws/sessions/{running.pk}/{door}/", headers) as opened:
            assert await opened.closing() == (1011, "The agent does not answer.")
        assert len(gateway.requests) == 1
        assert inner.requests == []


async def test_it_sends_what_an_app_has_written(cast: Cast, running: ComputeSession) -> None:
    headers = await sync_to_async(page)(cast.alice)
    async with fake_gateway() as (gateway, url):
        await Agent.objects.aupdate(gateway_url=url)
        async with socket(address(running, "?app=jupyterlab"), headers) as log:
            assert await log.closing() == (4004, "This app has no output.")
        assert not gateway.requests
        await Image.objects.aupdate(services="jupyterlab:http:[8888]")
        gateway.more_log.set()
        async with socket(address(running, "?app=jupyterlab"), headers) as log:
            await log.bytes_until(b"d\n")
            assert (await log.closing())[0] == 4000
        assert dict(gateway.requests[-1].query) == {"app": "jupyterlab"}
        gateway.log_status = 404
        async with socket(address(running, "?app=jupyterlab"), headers) as log:
            assert (await log.closing())[0] == 4004

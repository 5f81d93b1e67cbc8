"""Calls of an agent's threads that share a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Semaphore
from time import sleep
from uuid import UUID, uuid4

import pytest

from backendai.agent.counts import registry
from backendai.agent.portal.bundling import Bundles, BundlingClient
from backendai.agent.portal.client import PortalRefused
from backendai.base.wire.bundles import LARGEST_BUNDLED_LOG
from backendai.base.wire.messages import KernelReport, KernelState, SyncDown, SyncUp
from tests.agent.http_portal import NODE_TOKEN, HttpPortal
from tests.agent.portal import make_spec
from tests.patience import patient

UP = SyncUp(boot_id="b", version="1", backend="simulated", architecture="x86_64", gateway_url="", capacity={})


class Held:
    """Sends nothing before it may; ``sent`` is what went together."""

    def __init__(self, reply: Callable[[int], int] = lambda number: -number) -> None:
        self.sent: list[list[int]] = []
        self.begun, self.may = Semaphore(0), Event()
        self._reply = reply

    def send(self, questions: Sequence[int]) -> list[int]:
        self.sent.append(list(questions))
        self.begun.release()
        self.may.wait(patient(10))
        return [self._reply(one) for one in questions]


def ask_while_one_is_under_way(held: Held, number: int, most: int = 64) -> list[Future[int]]:
    """Return the answers to 0, which goes alone, and to those that are asked meanwhile."""
    bundles = Bundles(held.send, most=most)
    with ThreadPoolExecutor(number + 1) as pool:
        answers = [pool.submit(bundles.ask, 0)]
        held.begun.acquire()
        answers += [pool.submit(bundles.ask, one) for one in range(1, number + 1)]
        while len(bundles._waiting) < number:
            sleep(0.001)
        held.may.set()
    return answers


def test_what_is_asked_while_a_call_is_under_way_goes_together() -> None:
    held = Held()
    answers = ask_while_one_is_under_way(held, 9)
    assert [one.result() for one in answers] == [-number for number in range(10)]
    assert [len(some) for some in held.sent] == [1, 9]


def test_a_bundle_holds_so_many_at_most() -> None:
    held = Held()
    answers = ask_while_one_is_under_way(held, 9, most=4)
    assert [one.result() for one in answers] == [-number for number in range(10)]
    assert [len(some) for some in held.sent] == [1, 4, 4, 1]


def test_an_error_reaches_all_who_asked_and_nobody_after_them() -> None:
    held = Held(lambda number: 1 // number)
    answers = ask_while_one_is_under_way(held, 1)
    with pytest.raises(ZeroDivisionError):
        answers[0].result()
    assert answers[1].result() == 1


class TakesBundles(HttpPortal):
    def sync(self, up: SyncUp) -> SyncDown:
        return super().sync(up).model_copy(update={"takes_bundles": True})


@pytest.fixture
def portal() -> Iterator[TakesBundles]:
    portal = TakesBundles()
    yield portal
    portal.close()


@pytest.fixture
def client(portal: TakesBundles) -> Iterator[BundlingClient]:
    client = BundlingClient(portal.url, NODE_TOKEN)
    client.sync(UP)
    yield client
    client.close()


def running(kernel_id: UUID) -> KernelReport:
    return KernelReport(kernel_id=kernel_id, generation=1, state=KernelState.RUNNING)


def test_calls_and_bundles_are_counted(portal: TakesBundles, client: BundlingClient) -> None:
    calls = [{"kind": "kernels", "result": "answered"}, {"kind": "kernels", "result": "refused"}]

    def numbers() -> list[float]:
        asked = [("bundle_length_count", dict[str, str]()), *(("portal_calls_total", one) for one in calls)]
        return [registry.get_sample_value(f"backendai_agent_{name}", labels) or 0 for name, labels in asked]

    before = numbers()
    client.fetch_spec(portal.want(make_spec()).kernel_id)
    assert client.fetch_spec(uuid4()) is None
    assert [now - then for now, then in zip(numbers(), before, strict=True)] == [2, 1, 1]


def test_each_question_of_a_bundle_gets_its_own_answer(portal: TakesBundles, client: BundlingClient) -> None:
    specs = [portal.want(make_spec()) for _ in range(3)]
    stranger = uuid4()
    asked = [specs[0].kernel_id, stranger, running(specs[1].kernel_id), running(stranger), specs[2].kernel_id]
    answers = client._ask_together(asked)
    assert answers[0] == specs[0] and answers[4] == specs[2]
    assert answers[1] is None and answers[2] is True
    assert len(portal.bundles) == 1 and portal.states(specs[1].kernel_id) == ["RUNNING"]


def test_a_bundle_that_fails_is_asked_one_by_one(portal: TakesBundles, client: BundlingClient) -> None:
    spec = portal.want(make_spec())
    assert client.fetch_spec(spec.kernel_id) == spec
    with pytest.raises(PortalRefused):
        client.report(running(uuid4()))
    assert not portal.bundles, "a lone question needs no bundle"
    client._headers = {"Authorization": "Node wrong"}
    assert len({*client._ask_together([spec.kernel_id, running(spec.kernel_id)])}) == 1
    with pytest.raises(PortalRefused):
        client.fetch_spec(spec.kernel_id)


@pytest.mark.parametrize("size", [0, 15, *range(LARGEST_BUNDLED_LOG - 2, LARGEST_BUNDLED_LOG + 3), 16 * 2**10, 2**20])
def test_a_log_of_any_size_arrives_byte_for_byte(portal: TakesBundles, client: BundlingClient, size: int) -> None:
    kernel_id, log = uuid4(), (b"\x00\xff\n" * (size // 3 + 1))[:size]
    client.put_log(kernel_id, 1, log, truncated=True)
    assert portal.logs[kernel_id] == (log, True)

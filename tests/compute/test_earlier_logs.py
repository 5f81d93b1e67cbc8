"""The logs of earlier starts of a kernel stay beside the newest one."""

from __future__ import annotations

import base64
from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.test import Client
from django.utils import timezone

from backendai.base.wire.bundles import BundledLog
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import EarlierLog, Kernel, KernelLog
from backendai.domain.compute.services.records.logs import MOST_EARLIER, save_log, save_logs, saved_log
from backendai.domain.compute.services.records.retention import delete_logs_beyond_share, delete_old_logs
from tests.api.callers import Caller
from tests.cast import Cast
from tests.factories import make_agent, make_running_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def kernel(cast: Cast) -> Kernel:
    found: Kernel = make_running_session(cast.alice, make_agent()).kernels.get()
    return found


def agent_of(kernel: Kernel) -> Agent:
    return Agent.objects.get(pk=kernel.agent_id)


def start(kernel: Kernel, generation: int) -> None:
    Kernel.objects.filter(pk=kernel.pk).update(generation=generation)
    kernel.refresh_from_db()


def write(kernel: Kernel, generation: int, text: bytes, *, bundled: bool = False) -> None:
    start(kernel, generation)
    if bundled:
        log = BundledLog(kernel_id=kernel.pk, generation=generation, content=base64.b64encode(text), truncated=False)
        assert save_logs(agent_of(kernel), [log], now=timezone.now()) == [True]
    else:
        save_log(agent_of(kernel), kernel.pk, generation, text, truncated=False)


def end(kernel: Kernel) -> None:
    Kernel.objects.filter(pk=kernel.pk).update(status="TERMINATED")
    type(kernel.session).objects.filter(pk=kernel.session_id).update(status="TERMINATED", ended_at=timezone.now())


@pytest.mark.parametrize("bundled", [False, True])
def test_each_start_has_its_log(kernel: Kernel, cast: Cast, bundled: bool) -> None:
    write(kernel, 1, b"first\n", bundled=bundled)
    write(kernel, 1, b"first, whole\n", bundled=bundled)
    write(kernel, 2, b"second\n", bundled=bundled)
    write(kernel, 3, b"third\n", bundled=bundled)
    assert [saved_log(kernel, number) for number in (1, 2, 3, None, 4)] == [
        (b"first, whole\n", False), (b"second\n", False), (b"third\n", False), (b"third\n", False), None,
    ]  # fmt: skip
    end(kernel)
    address, caller = f"/api/v1/sessions/{kernel.session_id}/logs/", Caller(cast.alice)
    assert caller.get(address, generation=2).content == b"second\n"
    assert caller.get(address).content == b"third\n"
    assert caller.get(address, generation=9).status_code == 404
    assert Caller(cast.charlie).get(address, generation=1).status_code == 404
    client = Client()
    client.force_login(cast.alice)
    page = client.get(f"/sessions/{kernel.session_id}/").content.decode()
    assert f"?kernel={kernel.pk}&amp;generation=1" in page and "generation=3" not in page


def test_only_so_many_are_kept(kernel: Kernel) -> None:
    for number in range(1, MOST_EARLIER + 5):
        write(kernel, number, b"x" * number)
    kept = list(EarlierLog.objects.values_list("generation", flat=True))
    assert kept == list(range(4, MOST_EARLIER + 4)) and KernelLog.objects.count() == 1


def test_they_are_deleted_by_age_and_before_the_last_log_of_a_session(kernel: Kernel, settings: LazySettings) -> None:
    write(kernel, 1, b"1" * 60)
    write(kernel, 2, b"2" * 60)
    settings.KEEP_LOGS, settings.LOG_BYTES_PER_OWNER = timedelta(days=1), 50
    EarlierLog.objects.update(saved_at=timezone.now() - timedelta(days=2))
    assert delete_old_logs(timezone.now()) == 0 == delete_logs_beyond_share(timezone.now()), "the session lives"
    end(kernel)
    assert delete_old_logs(timezone.now()) == 1 and not EarlierLog.objects.exists()
    write(kernel, 3, b"3" * 60)
    assert delete_logs_beyond_share(timezone.now()) >= 1 and not EarlierLog.objects.exists()

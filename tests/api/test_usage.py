"""What a session used, over REST: whose it is, over which time, of which kernel."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.usage.models import UsageSample
from tests.api.callers import SESSIONS, Caller
from tests.cast import Cast
from tests.factories import make_running_session

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]


@pytest.fixture
def session(cast: Cast) -> ComputeSession:
    """Two kernels that were measured half a minute ago."""
    session = make_running_session(cast.alice, cluster_size=2, resources={"cpu": 1, "mem": "512m"})
    for kernel in session.kernels.all():
        sample(kernel)
    return session


def sample(kernel: Kernel) -> None:
    at = timezone.now() - timedelta(seconds=30)
    UsageSample.objects.create(kernel=kernel, at=at, seconds=10.0, cpu=0.5, mem_bytes=2**28, net_rx=100)


def path_of(session: ComputeSession) -> str:
    return f"{SESSIONS}{session.pk}/usage/"


def test_a_session_tells_its_use_to_who_may_see_it(cast: Cast, session: ComputeSession) -> None:
    body = Caller(cast.alice).get(path_of(session)).json()
    assert body["averages"] == {"slots": {"cpu": 0.5, "mem": 0.5}, "covered_seconds": 10.0}
    assert body["held"] == {"cpu": 2.0, "mem": 2**30}
    (point,) = body["points"]
    assert (point["used"], point["rates"]) == ({"cpu": 1.0, "mem": 2.0**29}, {"net_rx": 20.0})
    assert Caller(cast.bob).get(path_of(session)).status_code == 404


def test_it_tells_of_one_kernel_and_of_the_time_that_was_asked_for(cast: Cast, session: ComputeSession) -> None:
    alice, kernel = Caller(cast.alice), session.kernels.all()[0]
    (point,) = alice.get(path_of(session), kernel=kernel.pk).json()["points"]
    assert point["used"]["cpu"] == 0.5
    early = timezone.now() - timedelta(minutes=5)
    assert alice.get(path_of(session), until=early.isoformat()).json()["points"] == []
    assert alice.get(path_of(session), kernel=uuid4()).status_code == 404


@pytest.mark.parametrize("asked", [{"seconds": "1"}, {"points": "0"}, {"points": "100000"}, {"kernel": "first"}])
def test_what_makes_no_sense_is_refused(cast: Cast, session: ComputeSession, asked: dict[str, str]) -> None:
    assert Caller(cast.alice).get(path_of(session), **asked).status_code == 400


def test_an_ended_session_tells_of_its_last_hour(cast: Cast, session: ComputeSession) -> None:
    ended_at = timezone.now()
    ComputeSession.objects.filter(pk=session.pk).update(ended_at=ended_at)
    UsageSample.objects.update(at=ended_at - timedelta(minutes=59))
    assert len(Caller(cast.alice).get(path_of(session)).json()["points"]) == 1

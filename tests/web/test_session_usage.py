"""What a session really uses, in its panel and by itself: numbers, charts, choices, and nothing of others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.status import Status
from backendai.domain.usage.models import UsageSample
from backendai.portal.web.session.usage import HEIGHT, Usage, usage_of
from tests.cast import Cast
from tests.factories import make_running_session, make_session
from tests.pages import markup
from tests.web.conftest import HTMX

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
GIB = 2**30


def sample(kernel: Kernel, ago: float, seconds: float = 10.0, **values: Any) -> None:
    given = {"cpu": 0.5, "mem_bytes": GIB // 4, "net_rx": 1024 * seconds, "net_tx": 0} | values
    moment = timezone.now() - timedelta(seconds=ago)
    UsageSample.objects.create(kernel=kernel, at=moment, seconds=seconds, **given)


def path_of(session: ComputeSession) -> str:
    return reverse("web:session_usage", args=[session.pk])


def shown(client: Client, session: ComputeSession, **asked: Any) -> Usage:
    return client.get(path_of(session), asked, **HTMX).context["usage"]


@pytest.fixture
def session(cast: Cast) -> ComputeSession:
    """Two kernels that have run for two days."""
    session = make_running_session(cast.alice, cluster_size=2, resources={"cpu": 1, "mem": "512m"})
    ComputeSession.objects.update(started_at=timezone.now() - timedelta(days=2))
    session.refresh_from_db()
    return session


def test_the_panel_says_what_is_used_of_what_was_given(cast: Cast, browse: Browse, session: ComputeSession) -> None:
    for kernel in session.kernels.all():
        sample(kernel, 5)
        sample(kernel, 300, cpu=1.0)
    page = markup(browse(cast.alice).get(reverse("web:session", args=[session.pk])))
    assert "<strong>1</strong> of 2" in page and "<strong>512 MiB</strong> of 1 GiB" in page
    assert "mean 1.5 · peak 2" in page
    assert "↓ 2 KiB/s ↑ 0 B/s" in page
    assert "hx-preserve" in page and "every 15s" in page


def test_a_direction_that_the_node_cannot_see_is_no_zero(cast: Cast, browse: Browse, session: ComputeSession) -> None:
    sample(session.kernels.first(), 5, io_read=2048 * 10)
    (disks,) = [chart for chart in shown(browse(cast.alice), session).charts if chart.key == "io"]
    assert disks.used == "↓ 2 KiB/s ↑ –"


def test_columns_stand_where_and_as_high_as_they_should_whenever_one_looks(session: ComputeSession) -> None:
    kernels = list(session.kernels.all())
    minute = timezone.now().replace(second=0, microsecond=0)
    for at, cpu in ((-1795, 0.25), (5, 0.5), (50, 1.0), (70, 0.5)):
        moment = minute + timedelta(seconds=at)
        UsageSample.objects.create(kernel=kernels[0], at=moment, seconds=10, cpu=cpu, mem_bytes=0)
    for later in (75, 90, 110):
        asked, now = {"kernel": str(kernels[0].pk)}, minute + timedelta(seconds=later)
        told = usage_of(session, kernels, asked, now=now)
        assert told is not None
        cpu, *_ = told.charts
        columns = [(column.x, column.height) for column in cpu.columns]
        assert columns == [(280.0, HEIGHT / 4), (580.0, 0.75 * HEIGHT), (590.0, HEIGHT / 2)]
        assert (cpu.used, cpu.held, cpu.percent) == ("0.5", "1", 50)
        assert cpu.about == "mean 0.5 · peak 0.75"


def test_kernels_are_shown_together_or_one_alone(cast: Cast, browse: Browse, session: ComputeSession) -> None:
    one, other = session.kernels.all()
    sample(one, 5, cpu=0.75)
    sample(other, 5, cpu=0.25)
    client = browse(cast.alice)
    assert [shown(client, session, **asked).charts[0].used for asked in ({}, {"kernel": str(other.pk)})] == [
        "1",
        "0.25",
    ]
    foreign = make_running_session(cast.bob).kernels.get()
    assert shown(client, session, kernel=str(foreign.pk)).kernel_id is None


@pytest.mark.parametrize("asked", [{"window": "forever"}, {"kernel": "first"}, {"window": "", "kernel": ""}])
def test_choices_that_do_not_exist_are_the_usual_ones(
    cast: Cast, browse: Browse, session: ComputeSession, asked: dict[str, str]
) -> None:
    told = shown(browse(cast.alice), session, **asked)
    assert (told.window, told.kernel_id) == ("1h", None)


def test_a_session_that_has_just_begun_shows_a_shorter_time(cast: Cast, browse: Browse) -> None:
    assert shown(browse(cast.alice), make_running_session(cast.alice)).window == "15m"


def test_old_samples_that_are_far_apart_leave_no_gaps(cast: Cast, browse: Browse, session: ComputeSession) -> None:
    one, _ = session.kernels.all()
    for number in range(12):
        sample(one, 300 * number + 5, 300.0, is_thinned=True)
    told = shown(browse(cast.alice), session, kernel=str(one.pk))
    assert len(told.charts[0].columns) == told.width / 10 == 12


def test_without_a_sample_it_says_so(cast: Cast, browse: Browse, session: ComputeSession) -> None:
    answer = browse(cast.alice).get(path_of(session), **HTMX)
    assert answer.status_code == 200
    assert "No measurement yet" in markup(answer)
    assert [chart.used for chart in answer.context["usage"].charts] == ["", "", "", ""]


def test_of_a_session_that_has_ended_the_last_hour_is_shown_and_nobody_asks_again(
    cast: Cast, browse: Browse, session: ComputeSession
) -> None:
    one, _ = session.kernels.all()
    sample(one, 86400 + 60)
    ended_at = timezone.now() - timedelta(days=1)
    ComputeSession.objects.filter(pk=session.pk).update(status=Status.TERMINATED, ended_at=ended_at)
    client = browse(cast.alice)
    answer = client.get(path_of(session), **HTMX)
    assert (answer.status_code, len(answer.context["usage"].charts[0].columns)) == (286, 1)
    assert "The session has ended" in markup(answer)
    page = markup(client.get(reverse("web:session", args=[session.pk])))
    assert 'id="resource-usage"' in page and "every 15s" not in page


def test_a_session_that_has_not_run_has_used_nothing(cast: Cast, browse: Browse) -> None:
    session, client = make_session(cast.alice), browse(cast.alice)
    assert "there is no usage" in markup(client.get(path_of(session)))
    assert 'id="resource-usage"' not in markup(client.get(reverse("web:session", args=[session.pk])))


def test_it_is_a_page_without_scripts(cast: Cast, browse: Browse, session: ComputeSession) -> None:
    page = markup(browse(cast.alice).get(path_of(session), {"window": "7d"}))
    assert "<!DOCTYPE html>" in page and '<option value="7d" selected>' in page


def test_it_costs_a_fixed_number_of_queries(
    cast: Cast, browse: Browse, django_assert_num_queries: Callable[..., Any]
) -> None:
    client = browse(cast.alice)
    for size in (1, 4):
        session = make_running_session(cast.alice, cluster_size=size, resources={"cpu": "0.5", "mem": "64m"})
        for kernel in session.kernels.all():
            sample(kernel, 5)
        with django_assert_num_queries(8):  # 2 for who asks, session, kernels, slot types, 3 for the use
            client.get(path_of(session), **HTMX)


def test_the_frame_is_no_longer_than_the_life_of_the_session_and_its_edges_are_named(
    cast: Cast, browse: Browse
) -> None:
    client, session, now = browse(cast.alice), make_running_session(cast.alice), timezone.now()
    since = now - timedelta(minutes=2)
    ComputeSession.objects.update(started_at=since, ended_at=now, status=Status.TERMINATED)
    kernel = session.kernels.get()
    for ago in (110, 60, 5):
        sample(kernel, ago)
    told = shown(client, session)
    assert (told.since, told.until, told.window) == (since, now, "15m")
    cpu = told.charts[0]
    assert cpu.top == cpu.held and told.width == 120
    assert cpu.columns[0].x < 20 and cpu.columns[-1].x > 100, "they fill the frame"
    page = markup(client.get(path_of(session), **HTMX))
    assert f'<span><time datetime="{since.isoformat()}" data-exact="short">' in page
    ComputeSession.objects.update(started_at=now - timedelta(hours=5))
    assert shown(client, session).window == "6h", "the whole life of what has ended"

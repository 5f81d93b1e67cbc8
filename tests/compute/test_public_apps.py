"""Public apps whose time is up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from backendai.domain.activity.models import AuditEntry
from backendai.domain.activity.notices import NoticeKind, choices_of
from backendai.domain.cluster.site import change_site
from backendai.domain.compute.models import ComputeSession, PublicApp, PublicFor, SessionNotice
from backendai.domain.compute.services.apps.public import close_expired_apps, open_to_everybody, public_services
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.portal.loops.mail_texts import mail_of
from backendai.portal.web.news.lines import headline, sentence
from tests.cast import Cast
from tests.factories import make_image, make_running_session

pytestmark = pytest.mark.django_db
NOW = timezone.now()


@pytest.fixture
def session(cast: Cast) -> ComputeSession:
    make_image(labels={"ai.backend.service-ports": "jupyterlab:http:[8888],tensorboard:http:[6006]"})
    change_site(cast.dana, {"public_apps": True}, now=NOW)
    return make_running_session(cast.alice)


def publish(cast: Cast, session: ComputeSession) -> None:
    for name, length in (("jupyterlab", PublicFor.HOUR), ("tensorboard", PublicFor.SESSION)):
        open_to_everybody(cast.alice, session, name, now=NOW, public_for=length)


def test_an_app_closes_by_itself_and_its_owner_is_told(cast: Cast, session: ComputeSession) -> None:
    publish(cast, session)
    assert close_expired_apps(NOW + timedelta(minutes=59)) == 0
    later = NOW + timedelta(hours=1)
    assert list(public_services(session, later)) == ["tensorboard"], "nobody has to have closed it"
    assert [close_expired_apps(later), close_expired_apps(later)] == [1, 0]
    assert [row.service for row in PublicApp.objects.all()] == ["tensorboard"]
    notice = SessionNotice.objects.select_related("session", "owner").get(kind=NoticeKind.APP_CLOSED)
    assert (notice.owner, notice.due_at) == (cast.alice, later)
    assert headline(notice) == "Public access has ended"
    assert sentence(notice) == "Public access to jupyterlab has ended: its time is up."
    assert sentence(notice) in mail_of(notice)[1]
    entry = AuditEntry.objects.order_by("-pk")[0]
    assert (entry.action, entry.actor_id, entry.target_id) == ("app.close-to-others", None, str(session.pk))
    assert entry.details == {"services": ["jupyterlab"], "reason": "time is up"}


def test_a_later_end_counts(cast: Cast, session: ComputeSession) -> None:
    publish(cast, session)
    open_to_everybody(cast.alice, session, "jupyterlab", now=NOW + timedelta(minutes=30), public_for=PublicFor.DAY)
    assert close_expired_apps(NOW + timedelta(hours=2)) == 0


def test_the_end_of_an_app_is_no_news_when_its_session_has_ended(cast: Cast, session: ComputeSession) -> None:
    publish(cast, session)
    terminate_session(session, cast.alice)
    ComputeSession.objects.update(status="TERMINATED")
    assert close_expired_apps(NOW + timedelta(days=2)) == 1
    assert not SessionNotice.objects.filter(kind=NoticeKind.APP_CLOSED).exists()


def test_the_pass_asks_once_when_nothing_is_over(session: ComputeSession, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        assert close_expired_apps(NOW) == 0


def test_it_is_told_under_the_bell_and_not_by_a_card(cast: Cast) -> None:
    channels = choices_of(cast.alice)[NoticeKind.APP_CLOSED]
    assert channels["bell"] and not channels["card"]

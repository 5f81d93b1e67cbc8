"""What the owner of a run is told when it has ended: where the person chose it, and once."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from backendai.domain.activity.notices import choose
from backendai.domain.pipelines.presentation import RUNS
from backendai.domain.pipelines.services.changing import retry_failed
from backendai.portal.loops.mail_texts import run_mail
from backendai.portal.web.news.bell import counts_of, lines_of
from tests.cast import Cast
from tests.pipelines.world import ARRAY, index_of, launch, play

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _mail_server(settings: Any) -> None:
    settings.EMAIL_URL, settings.PORTAL_URL = "smtp://mail.example.org", "https://lab.example.org"


def test_a_mail_is_sent_once_for_each_end_that_was_asked_for(cast: Cast) -> None:
    choose(cast.alice, {"failed": {"email": True}})
    run = launch(cast.alice, **ARRAY, name="sweep", array=3)
    play(run, lambda session: "task-failed" if index_of(session) == 1 else "task-finished")
    assert RUNS.has_mails(timezone.now())
    assert [RUNS.send_mails(timezone.now, run_mail), RUNS.send_mails(timezone.now, run_mail)] == [1, 0]
    [sent] = mail.outbox
    assert (sent.to, sent.subject) == (["alice@example.com"], "sweep has failed")
    assert f"https://lab.example.org/runs/{run.pk}/failures/" in sent.body and "failed: 1" in sent.body.lower()
    retry_failed(run, cast.alice, now=timezone.now())
    play(run, lambda _: "task-failed")
    assert RUNS.send_mails(timezone.now, run_mail) == 1, "it ended once more"
    retry_failed(run, cast.alice, now=timezone.now())
    play(run)
    assert not RUNS.has_mails(timezone.now()), "nobody asked for mails of successes"


def test_the_bell_heeds_the_choice(cast: Cast) -> None:
    play(launch(cast.alice, **ARRAY, array=2))
    assert counts_of(cast.alice)["unseen"] == 1 and len(lines_of(cast.alice)) == 1
    choose(cast.alice, {"finished": {"bell": False}})
    assert counts_of(cast.alice)["unseen"] == 0 and not lines_of(cast.alice)

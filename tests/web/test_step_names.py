"""What the steps of the scheduler are called on pages."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import override

from backendai.base.core.messages import Message
from backendai.domain.accounts.models import User
from backendai.domain.compute.services.placing.waits import Waiting, note_waits
from backendai.domain.compute.services.records.start_times import STAGES
from backendai.portal.web.frame.step_names import name_of_step
from backendai.scheduler.capacity.filters import FILTERS
from backendai.scheduler.explaining.trace import QUEUE_PASSED
from backendai.scheduler.plan import Pass, Trail
from tests.cast import Cast
from tests.factories import make_session

_TRAIL = Trail(1, Pass(1, "fifo", "concentrated"), (), (("node-1", 0),)).steps  # what comes before and after
STEPS = {"amounts", "run", *STAGES} | {one.step for one in (*_TRAIL, *QUEUE_PASSED, *FILTERS)}


@pytest.mark.parametrize("step", sorted(STEPS))
def test_every_step_has_a_name_of_its_own_in_every_language(step: str) -> None:
    assert name_of_step(step) != step, "codes are for machines"
    assert "-" not in name_of_step(step)
    assert [other for other in STEPS if name_of_step(other) == name_of_step(step)] == [step]
    with override("ko"):
        assert not name_of_step(step).isascii()
        assert [other for other in STEPS if name_of_step(other) == name_of_step(step)] == [step]
        assert name_of_step("gone-since") == "gone-since"


@pytest.mark.django_db
def test_the_history_and_the_info_box_say_them_in_the_language_of_the_page(
    cast: Cast, browse: Callable[[User], Client]
) -> None:
    session = make_session(cast.alice)
    ruled_out = Message("{counts} of {came} agents ruled out.", counts=3, came=3)
    steps = [
        {"step": "limits", "result": "SUCCESS", "message": "The limits allow the requested resources."},
        {"step": "slots", "result": "FAILURE", "message": ruled_out.data(), "error_code": "no-room"},
    ]
    note_waits([Waiting(session.pk, "no-room", "No agent has room.", {}, steps=steps)], now=timezone.now())
    client = browse(cast.alice)
    cast.alice.language = "ko"
    cast.alice.save()
    for page in ("web:history", "web:session_info"):
        text = client.get(reverse(page, args=[session.pk])).content.decode()
        assert "<strong>에이전트의 여유 자원</strong>" in text
        assert "에이전트 3개 중 3개를 제외했습니다." in text
        assert "ruled out" not in text

"""What pages show of the ends of logs, and why there is no log."""

from __future__ import annotations

import gzip
from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.utils import timezone

from backendai.base.wire.messages import KernelState
from backendai.domain.compute.models import ComputeSession, Kernel, KernelLog
from backendai.domain.compute.services.life.reports import kernel_reported
from backendai.domain.compute.services.records.log_ends import ends_of_logs, last_lines, why_no_logs
from backendai.domain.compute.services.records.logs import LARGEST
from tests.cast import Cast
from tests.factories import make_agent, make_running_session, make_session, report_of

pytestmark = pytest.mark.django_db
BATCH = {"session_type": "batch", "startup_command": "train"}


def keep(kernel: Kernel, text: str) -> None:
    KernelLog.objects.create(kernel=kernel, content=gzip.compress(text.encode()), size=len(text))


def ended(cast: Cast, exit_code: int | None = 3) -> ComputeSession:
    agent = make_agent()
    session = make_running_session(cast.alice, agent, **BATCH)
    kernel_reported(agent, report_of(session.kernels.get(), KernelState.TERMINATED, exit_code=exit_code))
    session.refresh_from_db()
    return session


def why(session: ComputeSession) -> str:
    return why_no_logs(list(session.kernels.select_related("session")), timezone.now())[session.kernels.get().pk]


def test_an_end_reads_as_on_a_terminal(cast: Cast) -> None:
    session = ended(cast)
    keep(session.kernels.get(), "\x1b[31mbad\x1b[0m\r\n10 %\r 50 %\r100 %\n\x1b]0;title\x07done\n")
    assert ends_of_logs([session.pk]) == {session.pk: "bad\n100 %\ndone"}


def test_the_last_lines_are_those_of_the_kernel_that_failed(cast: Cast) -> None:
    session = ended(cast)
    kernel = session.kernels.get()
    assert last_lines(session, [kernel]) == ""
    keep(kernel, "\n".join(f"line {number}" for number in range(100)))
    assert last_lines(session, [kernel]).splitlines() == [f"line {number}" for number in range(92, 100)]
    good = ended(cast, exit_code=0)
    keep(good.kernels.get(), "fine")
    assert last_lines(good, list(good.kernels.all())) == ""


def test_it_says_why_there_is_no_log(cast: Cast, settings: LazySettings) -> None:
    silent = ended(cast)
    assert why(silent) == "The program printed nothing."
    assert why(make_session(cast.alice, **BATCH)) == "The session never ran, so there is no log."
    assert why(ended(cast, exit_code=None)) == "Its log could not be read when it ended."
    keep(ended(cast).kernels.get(), "x" * 100)
    settings.LOG_BYTES_PER_OWNER = LARGEST + 50
    assert why(silent).startswith("The program printed nothing, or its log was deleted")
    Kernel.objects.update(ended_at=timezone.now() - settings.KEEP_LOGS - timedelta(days=1))
    assert why(silent) == "Its log was deleted 90 days after the end."

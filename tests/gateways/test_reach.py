"""Who may reach which kernel for which purpose."""

from __future__ import annotations

from typing import get_args

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from backendai.base.wire.tickets import Purpose
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.status import Status
from backendai.gates.gateways.reach import reach, still_visible
from backendai.gates.gateways.targets import Denied
from tests.cast import Cast
from tests.factories import make_agent, make_running_session

pytestmark = pytest.mark.django_db
PURPOSES = get_args(Purpose)


@pytest.fixture
def session(cast: Cast) -> ComputeSession:
    return make_running_session(cast.alice, make_agent())


def code_of(*args: object, **wanted: object) -> str:
    with pytest.raises(Denied) as denied:
        reach(*args, **wanted)  # type: ignore[arg-type]
    return denied.value.code


@pytest.mark.parametrize("purpose", PURPOSES)
def test_the_owner_reaches_the_main_kernel_in_one_query(cast: Cast, session: ComputeSession, purpose: Purpose) -> None:
    with CaptureQueriesContext(connection) as queries:
        kernel = reach(cast.alice, purpose, session_id=session.pk)
        assert kernel.rank == 0 and kernel.session == session and kernel.agent is not None
    assert len(queries) == 1


@pytest.mark.parametrize("purpose", PURPOSES)
def test_strangers_learn_nothing(cast: Cast, session: ComputeSession, purpose: Purpose) -> None:
    kernel = session.kernels.get()
    for stranger in (cast.bob, cast.charlie):
        assert code_of(stranger, purpose, session_id=session.pk) == "no-session"
        assert code_of(stranger, purpose, kernel_id=kernel.pk) == "no-session"
        assert not still_visible(stranger, session.pk)
    assert still_visible(cast.alice, session.pk) and not still_visible(None, session.pk)


def test_a_shell_is_for_the_owner_alone(cast: Cast, session: ComputeSession) -> None:
    assert reach(cast.dana, "terminal", session_id=session.pk)
    assert code_of(cast.dana, "shell", session_id=session.pk) == "no-session"


@pytest.mark.parametrize("purpose", PURPOSES)
def test_only_the_log_is_read_of_what_does_not_run(cast: Cast, session: ComputeSession, purpose: Purpose) -> None:
    Kernel.objects.update(status=Status.TERMINATING)
    if purpose == "log":
        assert reach(cast.alice, purpose, session_id=session.pk)
    else:
        assert code_of(cast.alice, purpose, session_id=session.pk) == "not-running"


@pytest.mark.parametrize(("purpose", "reached"), [("execute", False), ("app", True), ("terminal", True)])
def test_the_kind_of_a_session_says_what_it_offers(
    cast: Cast, session: ComputeSession, purpose: Purpose, reached: bool
) -> None:
    ComputeSession.objects.update(session_type="batch")
    if reached:
        assert reach(cast.alice, purpose, session_id=session.pk)
    else:
        assert code_of(cast.alice, purpose, session_id=session.pk) == "not-for-this-type"


def test_another_generation_and_kernels_of_other_sessions_are_refused(cast: Cast, session: ComputeSession) -> None:
    kernel = session.kernels.get()
    other = make_running_session(cast.alice, make_agent()).kernels.get()
    assert reach(cast.alice, "app", kernel_id=kernel.pk, generation=kernel.generation) == kernel
    assert code_of(cast.alice, "app", kernel_id=kernel.pk, generation=kernel.generation + 1) == "not-running"
    assert code_of(cast.alice, "app", session_id=session.pk, kernel_id=other.pk) == "no-kernel"

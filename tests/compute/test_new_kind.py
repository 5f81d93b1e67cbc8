"""A new kind of sessions is a row of the table: every room below the pages takes it from there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.core.session_kinds import KINDS, USUAL_KIND
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.status import Status
from backendai.domain.planning.snapshot import read_snapshot
from backendai.portal.web.frame.kind_words import kinds_to_launch, words_of
from backendai.scheduler.decide import decide
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_session

pytestmark = pytest.mark.django_db


def test_a_row_of_the_table_is_enough_to_launch_and_place_a_new_kind(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = replace(USUAL_KIND, name="seminar", clusters=False)
    monkeypatch.setitem(KINDS, kind.name, kind)
    make_agent()
    group = make_group()
    ResourceGroup.objects.update(allowed_session_types=[*group.allowed_session_types, kind.name])
    session = make_session(cast.alice, session_type=kind.name)
    assert (session.status, session.kind) == (Status.PENDING, kind)
    plan = decide(read_snapshot(make_group(), timezone.now()))
    assert [one.session_id for one in plan.placements] == [session.pk]
    with pytest.raises(UserError) as refused:
        make_session(cast.alice, session_type=kind.name, cluster_size=2)
    assert refused.value.field == "cluster_size", "what the row does not have is refused"
    assert words_of("seminar").title == "Seminar"
    assert "seminar" in [name for name, *_ in kinds_to_launch()]

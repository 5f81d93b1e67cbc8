"""How a node becomes one: what a join token allows, and what it does not."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from backendai.activity.models import AuditEntry
from backendai.cluster.models import Agent, JoinToken
from backendai.cluster.services import agent_of_token, create_join_token, join_agent
from backendai.core.errors import NotFound, UserError
from backendai.wire.messages import JoinUp
from tests.factories import make_group

pytestmark = pytest.mark.django_db


def join(token: str, name: str) -> tuple[Agent, str]:
    return join_agent(JoinUp(token=token, name=name, gateway_url="http://127.0.0.1:1"))


def test_it_takes_a_token_once() -> None:
    token = create_join_token(make_group())
    agent, own = join(token, "n1")
    assert agent_of_token(own) == agent
    with pytest.raises(NotFound):
        join(token, "n2")
    assert Agent.objects.count() == 1


def test_it_leaves_a_token_unused_when_the_node_cannot_join() -> None:
    join(create_join_token(make_group()), "n1")
    token = create_join_token(make_group())
    with pytest.raises(UserError):
        join(token, "n1")
    assert join(token, "n2")[0].name == "n2"


def test_it_lets_two_nodes_that_race_with_one_token_not_both_in(monkeypatch: pytest.MonkeyPatch) -> None:
    token = create_join_token(make_group())
    stale = JoinToken.objects.select_related("resource_group").get()
    join(token, "n1")
    monkeypatch.setattr("django.db.models.query.QuerySet.first", lambda rows: stale)
    with pytest.raises(NotFound):
        join(token, "n2")


def test_it_refuses_an_expired_token_and_an_unknown_one() -> None:
    for token in (create_join_token(make_group(), expires_at=timezone.now() - timedelta(seconds=1)), "join_guess"):
        with pytest.raises(NotFound):
            join(token, "n1")


def test_it_lets_a_known_name_return_by_the_token_for_such_names_and_writes_it_down() -> None:
    token = create_join_token(make_group(), name_prefix="local", reusable=True)
    (first, before), (second, after) = join(token, "local"), join(token, "local")
    assert (first.pk, agent_of_token(before)) == (second.pk, None)
    assert agent_of_token(after) == second
    actions = AuditEntry.objects.order_by("id").values_list("action", flat=True)
    assert list(actions) == ["join-token.create", "agent.join", "agent.return"]
    with pytest.raises(UserError):
        join(token, "gpu-1")

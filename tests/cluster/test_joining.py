"""How a node becomes one: what a join token allows, and what it does not."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from pydantic import ValidationError

from backendai.base.core.errors import NotFound, UserError
from backendai.base.wire.messages import JoinUp
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.joining import create_join_token, join_agent
from backendai.domain.cluster.models import Agent, JoinToken
from backendai.domain.cluster.services import agent_of_token
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


def test_a_reusable_token_takes_over_no_agent_of_another_resource_group() -> None:
    theirs, mine = make_group("theirs"), make_group("mine")
    agent, own = join(create_join_token(theirs), "gpu-1")
    with pytest.raises(UserError, match="belongs to another resource group"):
        join(create_join_token(mine, name_prefix="gpu-1", reusable=True), "gpu-1")
    assert agent_of_token(own) == agent
    assert join(create_join_token(theirs, name_prefix="gpu", reusable=True), "gpu-1")[0] == agent


def test_an_agent_that_is_heard_is_taken_over_by_its_own_token_only() -> None:
    group = make_group()
    token = create_join_token(group, name_prefix="gpu", reusable=True)
    agent, own = join(token, "gpu-1")
    Agent.objects.update(last_seen_at=timezone.now() - timedelta(seconds=50))
    with pytest.raises(UserError, match="seen within the last minute"):
        join(token, "gpu-1")
    assert agent_of_token(own) == agent
    assert join(create_join_token(group, agent=agent), "gpu-1")[0] == agent
    Agent.objects.update(last_seen_at=timezone.now() - timedelta(seconds=61))
    assert join(token, "gpu-1")[0] == agent


def test_two_machines_that_take_one_new_name_at_once_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    group = make_group()
    join(create_join_token(group), "n1")
    monkeypatch.setattr(Agent.objects, "filter", lambda **_: Agent.objects.none())
    with pytest.raises(UserError, match="Another machine has just joined"):
        join(create_join_token(group), "n1")


@pytest.mark.parametrize(
    "url",
    [
        "http://x:99999",
        "http://x:0",
        "http://[",
        'http://x"><script>',
        "http://169.254.169.254:80",
        "http://[fe80::1]:80",
        "http://0.0.0.0:1",
        "http://224.0.0.1",
        "http://-:1",
        "http://:80",
    ],
)
def test_an_address_that_no_gateway_has_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        JoinUp(token="t", name="n", gateway_url=url)


@pytest.mark.parametrize("url", ["", "http://gpu_1.lab:8400", "https://10.0.0.5/gateways/1", "http://[2001:db8::1]:80"])
def test_an_address_that_a_gateway_may_have_is_taken(url: str) -> None:
    assert JoinUp(token="t", name="n", gateway_url=url).gateway_url == url


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

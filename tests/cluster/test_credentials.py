"""Credentials of agents: taken away, made anew for one node, and join tokens."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from backendai.base.core.errors import NotFound, UserError
from backendai.base.wire.messages import JoinUp
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.agents import change_agent, renew_credential, revoke_credential, revoke_join_token
from backendai.domain.cluster.joining import create_join_token, join_agent
from backendai.domain.cluster.models import Agent, JoinToken
from backendai.domain.cluster.services import agent_of_token, record_sync
from backendai.domain.compute.services.life.retiring import retire_agent
from tests.cast import Cast
from tests.controller.clocks import sync_of
from tests.factories import make_group

pytestmark = pytest.mark.django_db


def join(token: str, name: str = "gpu-1") -> tuple[Agent, str]:
    return join_agent(JoinUp(token=token, name=name, gateway_url="http://10.0.0.5:9000"))


@pytest.fixture
def prefix_token(db: None) -> str:
    return create_join_token(make_group(), name_prefix="gpu-", reusable=True)


def test_a_revoked_agent_is_refused_and_comes_back_only_with_a_token_of_its_own(cast: Cast, prefix_token: str) -> None:
    agent, text = join(prefix_token)
    join(prefix_token, "gpu-2")
    revoke_credential(cast.dana, agent, now=timezone.now())
    assert agent_of_token(text) is None
    with pytest.raises(UserError, match="was revoked"):
        join(prefix_token)
    own = renew_credential(cast.dana, agent, now=timezone.now())
    with pytest.raises(UserError, match="for agent gpu-1 only"):
        join(own, "gpu-2")
    back, fresh = join(own)
    assert (back.pk, back.revoked_at, agent_of_token(fresh)) == (agent.pk, None, back)
    with pytest.raises(NotFound):
        join(own)


def test_renewing_leaves_the_old_credential_until_the_node_has_the_new_one(cast: Cast, prefix_token: str) -> None:
    agent, before = join(prefix_token)
    own = renew_credential(cast.dana, agent, now=timezone.now())
    newer = renew_credential(cast.dana, agent, now=timezone.now())
    assert agent_of_token(before) == agent
    with pytest.raises(NotFound):
        join(own)
    _, after = join(newer)
    assert (agent_of_token(before), agent_of_token(after)) == (None, agent)
    late = renew_credential(cast.dana, agent, now=timezone.now() - timedelta(hours=25))
    with pytest.raises(NotFound):
        join(late)


def test_an_agent_that_is_gone_for_good_is_refused_and_its_name_is_not_taken_by_others(
    cast: Cast, prefix_token: str
) -> None:
    agent, text = join(prefix_token)
    record_sync(agent, sync_of(), now=timezone.now())
    stale = Agent.objects.get(pk=agent.pk)
    retire_agent(cast.dana, agent, now=timezone.now())
    record_sync(stale, sync_of(), now=timezone.now())  # was under way meanwhile
    agent.refresh_from_db()
    assert (agent.status, agent_of_token(text)) == (Agent.Status.TERMINATED, None)
    with pytest.raises(UserError, match="was revoked"):
        join(prefix_token)
    back, _ = join(renew_credential(cast.dana, agent, now=timezone.now()))
    assert (back.pk, back.status) == (agent.pk, Agent.Status.LOST)


def test_a_join_token_shows_its_beginning_alone_and_can_be_taken_back(cast: Cast) -> None:
    text = create_join_token(make_group(), actor_id=cast.dana.pk)
    token = JoinToken.objects.get()
    assert text.startswith(token.hint)
    assert len(token.hint) <= 10
    with pytest.raises(NotFound):
        revoke_join_token(cast.alice, token.pk)
    revoke_join_token(cast.dana, token.pk)
    with pytest.raises(NotFound):
        join(text)
    assert text not in str(list(AuditEntry.objects.values()))


def test_switches_are_written_down_with_old_and_new_values(cast: Cast, prefix_token: str) -> None:
    agent, _ = join(prefix_token)
    change_agent(cast.dana, agent, {"schedulable": False, "max_kernels": 8})
    change_agent(cast.dana, agent, {"schedulable": False, "max_kernels": 8})
    entry = AuditEntry.objects.get(action="agent.change")
    assert entry.details["changes"] == {"schedulable": [True, False], "max_kernels": [None, 8]}
    with pytest.raises(UserError, match="0 to 10000"):
        change_agent(cast.dana, agent, {"max_kernels": -1})

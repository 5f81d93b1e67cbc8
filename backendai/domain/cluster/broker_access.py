"""Manages the accounts of agents at the broker, as the database says."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from django.conf import settings
from django.db import transaction

from backendai.base.core.errors import NotFound
from backendai.base.wire.broker import accounts as broker_accounts
from backendai.base.wire.broker.accounts import BrokerAway, NoAccounts, Settled
from backendai.base.wire.broker.messages import BrokerDown
from backendai.base.wire.broker.queues import without_account
from backendai.domain.activity.services import audit
from backendai.domain.cluster.models import Agent

logger = logging.getLogger(__name__)

_LONGEST_BACKLOG = 100  # a node that listens has next to none; of older hints its sync knows


def give_broker_access(agent: Agent, digest: str) -> BrokerDown:
    """Save the hash of the agent's password, create its broker account, and return address and account.

    If the broker is unreachable, the repair pass creates the account later. If the portal may not create accounts, all
    agents share the address in the settings. Waits for the broker, so not in a transaction.
    """
    if not settings.NODE_BROKER_URL:
        return BrokerDown()
    _note_digest(agent, digest)
    try:
        broker_accounts.make_account(agent.name, digest)
    except NoAccounts as error:
        logger.warning("agent %s shares the broker's password with all others: %s", agent.name, error)
        return BrokerDown(url=settings.NODE_BROKER_URL)
    except BrokerAway as error:
        logger.info("the broker account of agent %s is made later: %s", agent.name, error)
    return BrokerDown(url=without_account(settings.NODE_BROKER_URL), username=broker_accounts.account_name(agent.name))


def end_broker_access(agents: Iterable[Agent]) -> None:
    """Delete these agents' broker accounts once the transaction has committed; their connections are cut.

    Call it in the transaction that revokes or renews the credential. If the broker is unreachable, the repair pass
    deletes them later.
    """
    had = [agent for agent in agents if agent.broker_digest]
    if not had:
        return
    Agent.objects.filter(pk__in=[agent.pk for agent in had]).update(broker_digest="")
    for agent in had:
        agent.broker_digest = ""
    names = [agent.name for agent in had]
    transaction.on_commit(lambda: _drop(names))


def wanted_accounts() -> dict[str, str]:
    """Return the password hashes, by name, of the agents that should have a broker account."""
    having = Agent.objects.registered().exclude(broker_digest="").order_by()
    return dict(having.values_list("name", "broker_digest"))


def settle_broker_access() -> Settled:
    """Make the broker's accounts match the database, and delete hints that nobody reads.

    Raises NoAccounts and BrokerAway.
    """
    if not settings.NODE_BROKER_URL:
        return Settled([], [])
    names = list(Agent.objects.order_by().values_list("name", flat=True))
    broker_accounts.trim_queues(names, longest=_LONGEST_BACKLOG)
    return broker_accounts.settle_accounts(wanted_accounts)


def _note_digest(agent: Agent, digest: str) -> None:
    """Save the hash. Raises NotFound if the agent's token was renewed or revoked in the meantime."""
    if agent.broker_digest == digest:
        return
    with transaction.atomic():
        still = Agent.objects.registered().filter(pk=agent.pk, token_digest=agent.token_digest)
        if not still.update(broker_digest=digest):
            raise NotFound("This agent's token is no longer valid.", code="unknown-node")
        audit(None, "agent.broker-account", "agent", [agent.pk], name=agent.name)
    agent.broker_digest = digest


def _drop(names: list[str]) -> None:
    try:
        broker_accounts.drop_accounts(names)
    except (BrokerAway, NoAccounts) as error:
        logger.warning("the broker accounts of %s are taken away later: %s", ", ".join(names), error)

"""Which node may sign in at the broker, and as whom. The database says so; the broker's accounts follow."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from django.conf import settings
from django.db import transaction

from backendai.activity.services import audit
from backendai.cluster.models import Agent
from backendai.core.errors import NotFound
from backendai.wire import broker_accounts
from backendai.wire.broker_accounts import BrokerAway, NoAccounts, Settled
from backendai.wire.broker_messages import BrokerDown
from backendai.wire.queues import without_account

logger = logging.getLogger(__name__)

_LONGEST_BACKLOG = 100  # a node that listens has next to none; of older hints its sync knows


def give_broker_access(agent: Agent, digest: str) -> BrokerDown:
    """Note the hash of the password that this node has made, make its account and return where and as whom it signs in.

    A broker that is away gets the account from the repair pass. At one that lets the portal make none, all nodes share
    the address of the settings. Speaks with the broker: not for a transaction.
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
    """Take these nodes' accounts away once the transaction has committed; their connections are cut. For anyone who
    revokes or renews a node's token, in the same transaction. A broker that is away is told by the repair pass."""
    had = [agent for agent in agents if agent.broker_digest]
    if not had:
        return
    Agent.objects.filter(pk__in=[agent.pk for agent in had]).update(broker_digest="")
    for agent in had:
        agent.broker_digest = ""
    names = [agent.name for agent in had]
    transaction.on_commit(lambda: _drop(names))


def wanted_accounts() -> dict[str, str]:
    """Return the hash of the password by name for every node that should have an account."""
    having = Agent.objects.registered().exclude(broker_digest="").order_by()
    return dict(having.values_list("name", "broker_digest"))


def settle_broker_access() -> Settled:
    """Make the accounts at the broker what the database says, and drop hints that nobody takes.
    Raises NoAccounts and BrokerAway."""
    if not settings.NODE_BROKER_URL:
        return Settled([], [])
    names = list(Agent.objects.order_by().values_list("name", flat=True))
    broker_accounts.trim_queues(names, longest=_LONGEST_BACKLOG)
    return broker_accounts.settle_accounts(wanted_accounts)


def _note_digest(agent: Agent, digest: str) -> None:
    """Write the hash down; raises NotFound when the node's token has been renewed or taken away meanwhile."""
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

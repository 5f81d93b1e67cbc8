"""Makes the agents' accounts at the broker match the database. This also restores accounts that the broker has lost."""

from __future__ import annotations

import logging
from datetime import datetime

from backendai.base.wire.broker.accounts import BrokerAway, NoAccounts
from backendai.domain.cluster.broker_access import settle_broker_access

logger = logging.getLogger(__name__)


def settle_accounts(now: datetime) -> int:
    """Create, correct and delete accounts of agents at the broker; returns how many. 0 while the broker is unreachable
    or has no accounts."""
    try:
        settled = settle_broker_access()
    except (BrokerAway, NoAccounts) as error:
        logger.info("broker accounts stay as they are: %s", error)  # doctor explains the cause
        return 0
    if settled.made:
        logger.info("broker accounts made: %s", ", ".join(settled.made))
    if settled.dropped:
        logger.info("broker accounts taken away: %s", ", ".join(settled.dropped))
    return len(settled.made) + len(settled.dropped)

"""Keeps the agents' accounts at the broker as the database says, also after the broker lost them."""

from __future__ import annotations

import logging
from datetime import datetime

from backendai.cluster.broker_access import settle_broker_access
from backendai.wire.broker_accounts import BrokerAway, NoAccounts

logger = logging.getLogger(__name__)


def settle_accounts(now: datetime) -> int:
    """Create missing accounts and delete those of removed agents; returns how many."""
    try:
        settled = settle_broker_access()
    except (BrokerAway, NoAccounts) as error:
        logger.info("broker accounts stay as they are: %s", error)  # doctor says what that means
        return 0
    if settled.made:
        logger.info("broker accounts made: %s", ", ".join(settled.made))
    if settled.dropped:
        logger.info("broker accounts taken away: %s", ", ".join(settled.dropped))
    return len(settled.made) + len(settled.dropped)

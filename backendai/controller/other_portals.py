"""Notices a second portal: the copy of a database and its secrets that uses the same broker.

Each repair pass writes a random mark into the broker and into the database. A mark in the broker that is not the
database's was written by another portal, or by this one before its database was restored: then by the next pass it is
its own again. Two portals find each other's mark in every pass.
"""

from __future__ import annotations

import logging
import secrets
from datetime import datetime

from django.conf import settings

from backendai.cluster.epochs import STRANGERS_ARE_REAL, note_mark, read_mark
from backendai.wire.broker_accounts import BrokerAway
from backendai.wire.portal_marks import swap_mark

logger = logging.getLogger(__name__)


def watch_for_others(now: datetime) -> int:
    """Leave a new mark and look whose was there; a rule of the repair pass. Returns 0: it puts nothing right. Nothing
    is learnt while the broker is away."""
    expected, mark = read_mark(), secrets.token_hex(16)
    try:
        found = swap_mark(mark)
    except BrokerAway as error:
        logger.info("nobody can look for another portal: %s", error)
        return 0
    strangers = note_mark(mark, is_strange=found not in ("", expected))
    if strangers == STRANGERS_ARE_REAL:
        logger.error(
            "another portal with the deployment name %s uses the same broker: stop one of the two", settings.DEPLOYMENT
        )
    return 0

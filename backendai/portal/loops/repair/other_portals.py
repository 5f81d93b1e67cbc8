"""Detects a second portal: a copy of a database and its secrets that uses the same broker.

Each repair pass writes a random mark to the broker and to the database. If the marks differ at the next pass, another
portal has written to the broker, or this portal's database was restored. After a restore the marks agree again one pass
later. With two portals they differ at every pass.
"""

from __future__ import annotations

import logging
import secrets
from datetime import datetime

from django.conf import settings

from backendai.base.wire.broker.accounts import BrokerAway
from backendai.base.wire.broker.portal_marks import swap_mark
from backendai.domain.cluster.epochs import STRANGERS_ARE_REAL, note_mark, read_mark

logger = logging.getLogger(__name__)


def watch_for_others(now: datetime) -> int:
    """Write a new mark and compare the previous one with the database's. Without the broker nothing is checked. Returns
    0, as this rule of the repair pass repairs nothing."""
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

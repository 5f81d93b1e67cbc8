"""Can the portal hear its nodes at all? Where it cannot, their silence says nothing about them.

A node is known by its syncs alone, and these come in by the portal's web door. When the web processes are down or hung,
or no repair pass has looked for a while, every node is silent at once and none of them need be dead: to end what runs
on them would kill the work of a whole lab. So whatever counts a node's silence, or waits for a word from a node, counts
from the moment since which nodes can be heard without a break (``Hearing``).

One node that was heard of lately proves the door: then another one's silence is its own. When there is none, perhaps
because the platform has one agent only, the door is asked itself. The control worker knocks as a node would, with a
token that nobody has: a refusal comes only from a web process that is at work and has looked into the database. A
heartbeat that web processes write would prove less: that they live, not that anybody reaches them. A door that does
not answer the knock proves nothing, and then no node is given up. Where the control worker reaches the portal by
another address than its users do, that address is the setting ``DOOR_URL``; with a wrong one nodes are given up only
while others are heard.
"""

from __future__ import annotations

import http.client
import logging
from datetime import datetime
from http import HTTPStatus
from urllib.parse import urlsplit

from django.conf import settings

from backendai.cluster.services import last_heard_at, note_hearing

logger = logging.getLogger(__name__)

_KNOCK = "/node/v1/sync"
_PATIENCE_SECONDS = 5.0


def listen(now: datetime) -> int:
    """Note whether nodes can be heard now; returns 0, for nothing is put right by it."""
    newest = last_heard_at()
    # Well before the first one counts as lost: else the one that was heard of first would be, and the last not yet.
    heard = newest is None or now - newest < settings.AGENT_LOST_AFTER / 2
    can_hear = heard or door_answers(settings.DOOR_URL)
    if not can_hear:
        logger.warning("no node is heard of, and the portal's own door does not answer: no node is given up meanwhile")
    note_hearing(now=now, can_hear=can_hear, longest_gap=3 * settings.REPAIR_INTERVAL)
    return 0


def door_answers(address: str) -> bool:
    """Return whether the node API at this address of the portal answers a stranger within a few seconds."""
    parts = urlsplit(address)
    make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = make(parts.hostname or "", parts.port, timeout=_PATIENCE_SECONDS)
    try:
        connection.request("POST", parts.path.rstrip("/") + _KNOCK, headers={"Authorization": "Node knock"})
        return connection.getresponse().status < HTTPStatus.INTERNAL_SERVER_ERROR
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()

"""Records whether agents can reach the portal. While they cannot, their silence does not mean that they are lost.

The portal knows of agents only by their syncs, which its web server receives. While the web processes are down or hang,
or no repair pass runs, every agent is silent, although all may be alive. Ending their sessions would destroy the work
of a whole lab. So every rule that measures an agent's silence, or waits for its report, counts only from the time since
which agents could reach the portal without a break (``Reachability``).

A recent sync of one agent proves that the web server works; other silent agents are then really silent. Without a
recent sync, as in a platform with one agent, the control worker asks the web server itself, with a token that does not
exist. Only a working web process that has read the database refuses such a token. A heartbeat of web processes would
not prove that they can be reached. Without an answer no agent is marked lost.

``DOOR_URL`` is the address to ask, if the control worker reaches the portal at another address than users. With a wrong
address, agents are marked lost only while other agents sync.
"""

from __future__ import annotations

import http.client
import logging
from datetime import datetime
from http import HTTPStatus
from urllib.parse import urlsplit

from django.conf import settings

from backendai.domain.cluster.services import last_heard_at, record_reachability

logger = logging.getLogger(__name__)

CREDENTIAL = "Node knock"  # of no agent
_KNOCK = "/node/v1/sync"
_PATIENCE_SECONDS = 5.0


def watch_reachability(now: datetime) -> int:
    """Record whether agents can reach the portal now. Returns 0, as this rule of the repair pass repairs nothing."""
    newest = last_heard_at()
    # Half the limit: if all agents are silent, this must be known before the first of them counts as lost.
    heard = newest is None or now - newest < settings.AGENT_LOST_AFTER / 2
    is_reachable = heard or door_answers(settings.DOOR_URL)
    if not is_reachable:
        logger.warning("no agent has synced, and the portal does not answer itself: no agent is marked lost meanwhile")
    record_reachability(now=now, is_reachable=is_reachable, longest_gap=3 * settings.REPAIR_INTERVAL)
    return 0


def door_answers(address: str) -> bool:
    """Return whether the node API at this address of the portal answers within five seconds."""
    parts = urlsplit(address)
    make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = make(parts.hostname or "", parts.port, timeout=_PATIENCE_SECONDS)
    try:
        connection.request("POST", parts.path.rstrip("/") + _KNOCK, headers={"Authorization": CREDENTIAL})
        return connection.getresponse().status < HTTPStatus.INTERNAL_SERVER_ERROR
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()

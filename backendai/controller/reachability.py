"""Whether agents can reach the portal. Where they cannot, their silence says nothing about them.

The portal knows agents by their syncs alone, which come in through its web server. While the web processes are down or
hang, or no repair pass has run for a while, every agent is silent at once, and all of them may be alive: ending their
sessions would destroy the work of a whole lab. So every rule that measures an agent's silence, or waits for its
report, counts from the moment since which agents could reach the portal without a break (``Reachability``).

One agent that synced lately proves that the web server works: the silence of another one is its own. When none did,
perhaps because the platform has one agent only, the control worker asks the web server itself, as an agent does, with a
token that does not exist. Only a working web process that has read the database answers with a refusal. A heartbeat
written by web processes would prove less: that they live, not that they can be reached. While there is no answer, no
agent is marked lost. ``DOOR_URL`` is the address to ask, if the control worker reaches the portal at another one than
users; with a wrong address, agents are marked lost only while others sync.
"""

from __future__ import annotations

import http.client
import logging
from datetime import datetime
from http import HTTPStatus
from urllib.parse import urlsplit

from django.conf import settings

from backendai.cluster.services import last_heard_at, record_reachability

logger = logging.getLogger(__name__)

_KNOCK = "/node/v1/sync"
_PATIENCE_SECONDS = 5.0


def watch_reachability(now: datetime) -> int:
    """Record whether agents can reach the portal now; returns 0, as it repairs nothing."""
    newest = last_heard_at()
    # Half the limit: when all are silent, this has to show before the agent that was heard of first counts as lost.
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
        connection.request("POST", parts.path.rstrip("/") + _KNOCK, headers={"Authorization": "Node knock"})
        return connection.getresponse().status < HTTPStatus.INTERNAL_SERVER_ERROR
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()

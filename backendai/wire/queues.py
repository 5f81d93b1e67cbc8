"""Names of the queues, and the spelling of the broker's address; used on both sides of the broker."""

from __future__ import annotations

CONTROL_QUEUE = "control"


def node_queue(agent_name: str) -> str:
    """Return the queue that only this node's worker consumes."""
    return f"node.{agent_name}"


def broker_address(redis_url: str) -> str:
    """Return the spelling that Celery wants: ``unix:///path?db=0`` becomes ``redis+socket:///path``."""
    return redis_url.replace("unix://", "redis+socket://", 1)

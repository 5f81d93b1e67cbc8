"""How many simulated nodes get their identities: from the disk, or from the portal with one reusable join token."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backendai.agent.portal.client import PortalClient, PortalRefused, PortalUnreachable
from backendai.base.core.errors import UserError
from backendai.base.wire.messages import JoinDown, JoinUp

logger = logging.getLogger(__name__)

_FILE = "fleet.json"
_AT_ONCE = 8
_REST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class FleetCredentials:
    """Who the nodes are: name → token, and what the portal told them when they joined."""

    portal_url: str
    deployment: str
    public_key: str
    tokens: dict[str, str]


def node_names(prefix: str, number: int) -> list[str]:
    """Return ``sim-0001`` and so on."""
    return [f"{prefix}-{place:04}" for place in range(1, number + 1)]


def ensure_fleet_joined(
    data: Path, names: Sequence[str], *, portal_url: str, join_token: str, gateway_url: str
) -> FleetCredentials:
    """Return the credentials of all these nodes; those that have none at this portal join, and all are kept on disk.

    Waits for a portal that does not answer yet. A UserError when there is no token, or the portal refuses it.
    """
    kept = _load(data, portal_url)
    strangers = [name for name in names if kept is None or name not in kept.tokens]
    if not strangers and kept is not None:
        return kept
    if not join_token:
        raise UserError(f"{len(strangers)} nodes have not joined this portal: give --token.", code="not-joined")
    answers = _join_all(strangers, portal_url, join_token, gateway_url)
    first = answers[0]
    tokens = (kept.tokens if kept else {}) | {answer.name: answer.token for answer in answers}
    joined = FleetCredentials(portal_url, first.deployment, first.public_key, tokens)
    _save(data, joined)
    return joined


def forget_fleet(data: Path) -> None:
    """Remove what was kept: the portal does not know these nodes any more."""
    (data / _FILE).unlink(missing_ok=True)


def _join_all(names: Collection[str], portal_url: str, token: str, gateway_url: str) -> list[JoinDown]:
    client, started_at = PortalClient(portal_url), time.monotonic()

    def join(name: str) -> JoinDown:
        while True:
            try:
                return client.join(JoinUp(token=token, name=name, gateway_url=gateway_url))
            except PortalUnreachable as error:
                logger.info("waiting for the portal: %s", error.message)
                time.sleep(_REST_SECONDS)

    try:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="join") as threads:
            answers = list(threads.map(join, names))
    except PortalRefused as error:
        raise UserError(f"The portal refuses to let these nodes join: {error.message}", code="refused") from error
    finally:
        client.close()
    logger.info("%d nodes joined %s in %.1f s", len(answers), portal_url, time.monotonic() - started_at)
    return answers


def _load(data: Path, portal_url: str) -> FleetCredentials | None:
    try:
        content = json.loads((data / _FILE).read_text())
        content.pop("broker_url", None)  # what an earlier version kept
        kept = FleetCredentials(**content)
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return None
    return kept if kept.portal_url == portal_url else None


def _save(data: Path, credentials: FleetCredentials) -> None:
    draft = data / f"{_FILE}.new"
    content: dict[str, Any] = asdict(credentials)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(data / _FILE)

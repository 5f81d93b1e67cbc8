"""Gets an agent's credentials: from its disk, or from the portal with a join token."""

from __future__ import annotations

import logging
import random
import time
from uuid import UUID

from backendai.agent.portal.client import PortalClient, PortalRefused, PortalUnreachable
from backendai.agent.settings.config import NodeSettings
from backendai.agent.settings.credentials import Credentials, load_credentials, save_credentials
from backendai.base.core.errors import UserError
from backendai.base.wire.messages import JoinUp

logger = logging.getLogger(__name__)

_LONGEST_REST = 60.0
_ADVICE = "Check the address after --join, and that the portal listens for other machines."
_NOBODY = UUID(int=0)


def ensure_joined(settings: NodeSettings, *, portal_url: str, gateway_url: str) -> Credentials:
    """Return this agent's credentials; joins if it has none, or the portal does not know them and a token is set.

    Retries while the portal does not answer. Raises UserError without a token, or if the portal rejects the token.
    """
    kept = load_credentials(settings.data)
    if kept is not None and not (settings.join_token and _is_forgotten(kept, portal_url)):
        return kept
    if not settings.join_token:
        raise UserError(
            "This agent has not joined a portal: start it once with --join URL --token TOKEN.", code="not-joined"
        )
    credentials = _join(settings, portal_url, gateway_url)
    save_credentials(settings.data, credentials)
    logger.info("joined %s as %s", portal_url, credentials.name)
    return credentials


def _is_forgotten(kept: Credentials, portal_url: str) -> bool:
    client = PortalClient(portal_url, kept.token)
    try:
        client.fetch_spec(_NOBODY)
    except PortalRefused as error:
        return error.status in (401, 403)
    except PortalUnreachable:
        return False
    finally:
        client.close()
    return False


def _join(settings: NodeSettings, portal_url: str, gateway_url: str) -> Credentials:
    client = PortalClient(portal_url)
    rest = 0.5
    try:
        while True:
            try:
                down = client.join(JoinUp(token=settings.join_token, name=settings.name, gateway_url=gateway_url))
                return Credentials(portal_url, down.name, down.token, down.deployment, down.public_key)
            except PortalUnreachable as error:
                logger.warning("waiting for the portal: %s %s Trying again in %.0f s.", error.message, _ADVICE, rest)
            except PortalRefused as error:
                text = "The portal refuses to let this agent join: {reason}"
                raise UserError(text, reason=error.message, code="refused") from error
            time.sleep(rest * random.uniform(0.5, 1.0))
            rest = min(rest * 2, _LONGEST_REST)
    finally:
        client.close()

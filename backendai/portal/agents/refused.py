"""Rejects agents with an unknown token each time, and logs each agent once an hour."""

from __future__ import annotations

import logging
import re
import time

from django.http import HttpRequest, JsonResponse

from backendai.portal.loops.repair.reachability import CREDENTIAL

logger = logging.getLogger(__name__)

SENTENCE = "This agent's credential is revoked or unknown: an administrator must renew it on the agent's page."
CODE = "unknown-node"
_AGAIN_SECONDS, _MOST = 3600.0, 1000
_NAME = re.compile(r"[a-z0-9-]{1,63}")
_logged: dict[tuple[str, str], float] = {}


def refuse(request: HttpRequest) -> JsonResponse:
    """Return the rejection. Django does not log the response, as a rejected agent repeats its request."""
    if request.headers.get("Authorization") != CREDENTIAL:  # the portal's own question whether it can be reached
        _log_once(request)
    answer = JsonResponse({"code": CODE, "detail": SENTENCE}, status=401)
    answer._has_been_logged = True  # type: ignore[attr-defined]
    return answer


def _log_once(request: HttpRequest) -> None:
    # The agent itself sends this name without proof, so the name is only logged.
    header = request.headers.get("Node-Name", "")
    name = header if _NAME.fullmatch(header) else "(no name)"
    address = str(request.META.get("REMOTE_ADDR", ""))[:64]
    now = time.monotonic()
    if now - _logged.get((name, address), -_AGAIN_SECONDS) < _AGAIN_SECONDS:
        return
    if len(_logged) >= _MOST:
        _logged.clear()
    _logged[name, address] = now
    logger.warning("agent %s at %s is refused: its credential is revoked or unknown", name, address)

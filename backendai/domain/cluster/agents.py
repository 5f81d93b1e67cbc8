"""Changes the settings and credentials of agents for administrators."""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction

from backendai.base.core.errors import NotFound, UserError
from backendai.base.core.messages import Message
from backendai.base.paths.installation import COMMAND
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.cluster.broker_access import end_broker_access
from backendai.domain.cluster.joining import create_join_token
from backendai.domain.cluster.models import Agent, JoinToken, ResourceGroup

RETURN_WITHIN = timedelta(hours=24)
MOST_KERNELS = 10_000
SWITCHES = ("schedulable", "max_kernels")
_PREFIX = re.compile(r"([a-z0-9][a-z0-9-]{0,61})?\Z")


def change_agent(actor: User, agent: Agent, values: Mapping[str, Any]) -> Agent:
    """Change ``schedulable`` and ``max_kernels`` (None: the group's limit) of an agent, as far as ``values`` has them.

    Running sessions continue. Raises UserError that names the field.
    """
    most = values.get("max_kernels")
    if most is not None and not 0 <= most <= MOST_KERNELS:
        text = Message(
            "{most} kernels: enter 0 to {most_kernels}, or leave it empty for the limit of the group.",
            most=most,
            most_kernels=MOST_KERNELS,
        )
        raise UserError(text, field="max_kernels", code="invalid-number", limit=MOST_KERNELS)
    changes = {name: [getattr(agent, name), values[name]] for name in SWITCHES if name in values}
    changes = {name: change for name, change in changes.items() if change[0] != change[1]}
    if changes:
        with transaction.atomic():
            for name, (_, new) in changes.items():
                setattr(agent, name, new)
            agent.save(update_fields=list(changes))
            audit(actor.pk, "agent.change", "agent", [agent.pk], name=agent.name, changes=changes)
    return agent


def revoke_credential(actor: User, agent: Agent, *, now: datetime) -> None:
    """Revoke the credential of an agent: portal and broker refuse it, and it counts as unreachable.

    Its sessions continue until the group's grace period for lost agents is over. It can return only with a join token
    made for it.
    """
    with transaction.atomic():
        agent.token_digest, agent.revoked_at = f"revoked-{secrets.token_hex(24)}", now
        agent.save(update_fields=["token_digest", "revoked_at"])
        end_broker_access([agent])
        JoinToken.objects.filter(agent=agent).delete()
        audit(actor.pk, "agent.revoke", "agent", [agent.pk], name=agent.name)


def renew_credential(actor: User, agent: Agent, *, now: datetime) -> str:
    """Create a join token with which only this agent gets a new credential; return its text.

    It is valid once, within a day. The old credential is refused as soon as the agent has joined.
    """
    with transaction.atomic():
        JoinToken.objects.filter(agent=agent).delete()
        return create_join_token(agent.resource_group, agent=agent, expires_at=now + RETURN_WITHIN, actor_id=actor.pk)


def make_join_token(
    actor: User,
    group: ResourceGroup,
    *,
    now: datetime,
    name_prefix: str = "",
    reusable: bool = False,
    expires_at: datetime | None = None,
) -> str:
    """Create a join token; return its text, which is shown once. Raises UserError that names the field."""
    if expires_at is not None and expires_at <= now:
        raise UserError("The expiry is in the past.", field="expires_at", code="invalid-date")
    check_prefix(name_prefix)
    return create_join_token(
        group, name_prefix=name_prefix, reusable=reusable, expires_at=expires_at, actor_id=actor.pk
    )


def check_prefix(name_prefix: str) -> None:
    """Raise UserError for a prefix that no agent name can have."""
    if not _PREFIX.match(name_prefix):
        text = Message(
            "{name_prefix} is not a name prefix: use a-z, 0-9 and dashes, at most 62.", name_prefix=repr(name_prefix)
        )
        raise UserError(text, field="name_prefix", code="invalid-name")


def join_command(token: str, *, name: str = "", name_prefix: str = "") -> str:
    """Return the shell command with which a machine joins with this token.

    The agent gets the ``name``, or the prefix with its host name. The token is a variable, as everybody on a machine
    can read the arguments of its programs.
    """
    named = name
    if name_prefix and not name:
        named = f'"{name_prefix.rstrip("-")}-$(hostname -s)"'
    words = [f"BACKENDAI_JOIN_TOKEN={token} {COMMAND} agent", "--join", portal_address()[0]]
    return " ".join([*words, *(("--name", named) if named else ())])


def portal_address() -> tuple[str, bool]:
    """Return the portal's address for other machines, and whether it is a guess.

    Without a configured address, it is the one from which this machine would reach others.
    """
    parts = urlsplit(settings.PORTAL_URL)
    if parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        return str(settings.PORTAL_URL), False
    return f"{parts.scheme}://{_own_address()}:{parts.port or settings.PORT}", True


def guessed_address() -> str:
    """Return the portal's address if it is a guess, else an empty text."""
    address, is_guess = portal_address()
    return address if is_guess else ""


def is_closed_to_others() -> bool:
    """Return whether the portal listens on this machine only, and no address of a proxy before it is set."""
    return bool(settings.LISTENS_HERE_ONLY) and portal_address()[1]


def _own_address() -> str:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only chooses a route
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()


def revoke_join_token(actor: User, token_id: int) -> None:
    """Delete a join token; agents that joined with it stay. Raises NotFound."""
    with transaction.atomic():
        token = JoinToken.objects.visible_to(actor).select_related("resource_group").filter(pk=token_id).first()
        if token is None:
            raise NotFound("Join token not found.")
        group = token.resource_group.name
        audit(actor.pk, "join-token.revoke", "join-token", [token.pk], resource_group=group, hint=token.hint)
        token.delete()

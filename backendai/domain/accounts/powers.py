"""Lists everything that acts for a person without them. A deactivation counts it for the audit log.

Each is refused where it is used, by a look at ``is_active``: invitations in ``services/invitations.py``, public apps in
``domain/compute/services/apps/public.py``. ``tests/test_ends.py`` tries all.
Rows of rooms above are named by text. ``tests/test_powers.py`` refuses a model with a user that is neither listed here
nor known there as one that does not act.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.apps import apps
from django.db.models import Q

from backendai.base.core.messages import Message
from backendai.domain.accounts.models import User


def _lasting(now: datetime) -> Q:
    return Q(expires_at=None) | Q(expires_at__gt=now)


@dataclass(frozen=True, slots=True)
class Power:
    """Rows of ``model`` that act for a person. ``person``: the lookup of the person; ``live``: which of the rows act.

    ``restored`` powers are refused while the person is not active, and act again after an activation. The others are
    ended for good.
    """

    name: Message
    model: str
    person: str
    live: Callable[[datetime], Q]
    restored: bool = True

    def held(self, user: User, now: datetime) -> int:
        """Return how many of them act for this person."""
        model: Any = apps.get_model(self.model)
        return int(model._base_manager.filter(self.live(now), **{self.person: user}).count())


POWERS: Sequence[Power] = (
    Power(Message("sign-ins"), "accounts.Login", "user", lambda now: Q(), restored=False),
    Power(Message("access tokens"), "accounts.AccessToken", "user", _lasting, restored=False),
    Power(
        Message("allowed computers"),
        "accounts.DeviceRequest",
        "user",
        lambda now: Q(state="allowed", expires_at__gt=now),
        restored=False,
    ),
    Power(Message("secrets of key pairs"), "accounts.KeyPair", "user", lambda now: ~Q(secret=""), restored=False),
    Power(Message("opened apps"), "appproxy.AppGrant", "user", _lasting, restored=False),
    Power(Message("opened folders"), "appproxy.FilesGrant", "user", _lasting, restored=False),
    Power(Message("SSH keys"), "accounts.SshKey", "user", lambda now: Q()),
    Power(Message("SSH keys of sessions"), "compute.SessionSshKey", "session__owner", lambda now: Q()),
    Power(
        Message("invitations"),
        "accounts.Invitation",
        "invited_by",
        lambda now: _lasting(now) & Q(accepted_at=None, revoked_at=None),
    ),
    Power(
        Message("public apps"),
        "compute.PublicApp",
        "opened_by",
        lambda now: Q(closes_at=None) | Q(closes_at__gt=now),
    ),
    Power(Message("shared sessions"), "compute.SessionShare", "created_by", lambda now: Q(session__ended_at=None)),
    Power(Message("endpoints"), "serving.Endpoint", "owner", lambda now: Q(wish="run")),
    Power(
        Message("tokens of endpoints"),
        "serving.EndpointToken",
        "endpoint__owner",
        lambda now: _lasting(now) & Q(revoked_at=None) & ~Q(endpoint__wish="deleted"),
    ),
    Power(
        Message("pending sessions"), "compute.ComputeSession", "owner", lambda now: Q(status="PENDING"), restored=False
    ),
    Power(Message("runs"), "pipelines.Run", "owner", lambda now: Q(ended_at=None)),
)


def powers_of(user: User, now: datetime) -> list[tuple[Power, int]]:
    """Return what acts for this person now, each with the number of its rows. One query for each entry of the list."""
    return [(power, held) for power in POWERS if (held := power.held(user, now))]

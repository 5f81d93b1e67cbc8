"""Limits of system sessions: the amounts of one session, and the number of live ones per owner."""

from __future__ import annotations

from collections.abc import Sequence

from backendai.base.core.errors import Conflict, UserError
from backendai.base.core.session_kinds import KINDS
from backendai.base.core.slots import MILLI, Slots, amount_in_words
from backendai.domain.accounts.models import Domain, User
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.requests.amounts import minimum_of
from backendai.domain.compute.services.requests.limits import lock_holders
from backendai.domain.compute.services.requests.roles import CheckedRole
from backendai.domain.compute.status import Status

(KIND,) = [name for name, kind in KINDS.items() if not kind.counts]
AMOUNTS = Slots({"cpu": MILLI // 10, "mem": 128 * 2**20 * MILLI})
_USUAL_LIMIT = 1


def check_small(roles: Sequence[CheckedRole]) -> None:
    """Raise UserError if a role requests more than the maximum of a system session."""
    for role in roles:
        for name, amount in role.slots.items():
            most = max(AMOUNTS[name], minimum_of(role.image)[name])
            if amount > most:
                raise UserError(
                    "A system session has at most {most}.",
                    most=amount_in_words(name, most),
                    field=f"resources.{name}",
                    code="above-maximum",
                )


def check_system_sessions(owner: User) -> None:
    """Raise Conflict if the owner has too many live system sessions.

    Call at the end of the transaction that writes a session, as this session counts, too. Locks the owner's system
    sessions until the transaction ends.
    """
    lock_holders([f"system:{owner.pk}"])
    policies = [
        *User.objects.filter(pk=owner.pk).values_list("policy__max_system_sessions", flat=True),
        *Domain.objects.filter(users=owner).values_list("policy__max_system_sessions", flat=True),
    ]
    limit = min((most for most in policies if most is not None), default=_USUAL_LIMIT)
    there = ComputeSession.objects.live().filter(owner=owner, session_type=KIND).exclude(status=Status.TERMINATING)
    number = there.count()
    if number > limit:
        raise Conflict(
            "You have {number} of at most {limit} system sessions: terminate one, or wait until it ends by itself.",
            number=number - 1,
            limit=limit,
            code="too-many-system-sessions",
        )

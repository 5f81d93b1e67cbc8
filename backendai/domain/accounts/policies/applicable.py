"""Finds the resource policies of a session. The session counts against its key pair, user, project and domain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import CharField, F, QuerySet, Value
from django.db.models.functions import Cast

from backendai.base.core.messages import Message
from backendai.base.core.slots import INFINITY, format_amount
from backendai.domain.accounts.models import Domain, KeyPair, Project, ResourcePolicy, User
from backendai.domain.accounts.policies.rules import thousandths

KEY_PAIR, USER, PROJECT, DOMAIN = SCOPES = ("key-pair", "user", "project", "domain")
HOLDER_WORDS = {
    "key_pairs": Message("key pair"),
    "users": "user",
    "projects": "project",
    "domains": "domain",
    "invitations": "invitation",
}
_SEVERAL = {
    "key pair": Message("key pairs"),
    "user": Message("users"),
    "project": Message("projects"),
    "domain": Message("domains"),
    "invitation": Message("invitations"),
}


@dataclass(frozen=True, slots=True)
class Limited:
    """A holder of sessions with a policy; ``name`` is its name in texts."""

    key: str
    scope: str
    name: str
    policy: ResourcePolicy

    @property
    def label(self) -> str:
        """The holder in words: ``user alice@example.com``."""
        return f"{self.scope.replace('-', ' ')} {self.name}"


def key_of(scope: str, identity: object) -> str:
    """Return the key of a holder, by which its limits, weight and usage are stored."""
    return f"{scope}:{identity}"


def limited_holders(keys: Collection[str]) -> list[Limited]:
    """Return the holders that have a policy, the narrowest scope first.

    One query, and a second one if there are any.
    """
    rows = sorted(_rows_with_policy(keys), key=lambda row: (SCOPES.index(row[0]), row[2]))
    if not rows:
        return []
    policies = ResourcePolicy.objects.in_bulk({policy_id for *_, policy_id in rows})
    return [
        Limited(key_of(scope, _identity(scope, pk)), scope, name, policies[policy_id])
        for scope, pk, name, policy_id in rows
    ]


def limits_of_launch(user: User, project: Project, key_pair: KeyPair | None) -> list[Limited]:
    """Return the holders of a launch that have a policy, the narrowest scope first.

    One query if there are any, else none.
    """
    holders: list[tuple[str, Any, str]] = [
        (USER, user, user.email),
        (PROJECT, project, project.name),
        (DOMAIN, project.domain, project.domain.name),
    ]
    if key_pair:
        holders.insert(0, (KEY_PAIR, key_pair, key_pair.access_key))
    wanted = {row.policy_id for _, row, _ in holders if row.policy_id is not None}
    policies = ResourcePolicy.objects.in_bulk(wanted) if wanted else {}
    return [
        Limited(key_of(scope, row.pk), scope, name, policies[row.policy_id])
        for scope, row, name in holders
        if row.policy_id in policies
    ]


def strictest(limited: Sequence[Limited], field: str) -> tuple[int, Limited] | None:
    """Return the smallest limit for ``field`` and its holder, or None if no policy limits it."""
    numbers = [(number, holder) for holder in limited if (number := getattr(holder.policy, field)) is not None]
    return min(numbers, key=lambda one: one[0], default=None)


def lowest_of_user(user: User, field: str) -> int | None:
    """Return the smaller limit for ``field`` of the user's and the domain's policy; None: unlimited. Two queries."""
    numbers = [
        *User.objects.filter(pk=user.pk).values_list(f"policy__{field}", flat=True),
        *Domain.objects.filter(users=user).values_list(f"policy__{field}", flat=True),
    ]
    return min((number for number in numbers if number is not None), default=None)


def held_text(policy: ResourcePolicy) -> str:
    """Return in words the amounts that a holder of this policy may have at once:

    ``cpu 8, mem 64 GiB, nothing else``.
    """
    amounts = thousandths(policy.slots, field="slots")
    named: list[str] = [f"{name} {format_amount(name, amount)}" for name, amount in sorted(amounts.items())]
    others = [Message("nothing else")] if policy.unnamed_slots == ResourcePolicy.Unnamed.LIMITED else []
    return Message.joined([*named, *others], ", ") or INFINITY


def counted(numbers: Iterable[tuple[int, str]]) -> Message:
    """Return numbers with their kinds as text, without zeros: ``2 users, 1 project``."""
    parts = [
        Message("{number} {kind}", number=number, kind=Message(word) if number == 1 else _SEVERAL[word])
        for number, word in numbers
        if number
    ]
    return Message.joined(parts, ", ")


def holders_text(policy: Any) -> str:
    """Return as text how many holders of each kind have the policy:

    ``2 users, 1 project``. The policy comes from ``with_holders``.
    """
    numbers = [(getattr(policy, f"number_of_{kind}"), word) for kind, word in HOLDER_WORDS.items()]
    return counted(numbers) or Message("nobody")


def _rows_with_policy(keys: Collection[str]) -> QuerySet[Any, Any]:
    ids: dict[str, set[str]] = defaultdict(set)
    for key in keys:
        scope, _, identity = key.partition(":")
        ids[scope].add(identity)
    first, *others = [
        model.objects.filter(pk__in=ids[scope], policy__isnull=False)
        .order_by()
        .values_list(
            Value(scope, output_field=CharField()),
            Cast("pk", CharField()),
            Cast(F(name), CharField()),
            "policy_id",
        )
        for scope, model, name in (
            (KEY_PAIR, KeyPair, "access_key"),
            (USER, User, "email"),
            (PROJECT, Project, "name"),
            (DOMAIN, Domain, "name"),
        )
    ]
    united: QuerySet[Any, Any] = first.union(*others, all=True)
    return united


def _identity(scope: str, pk: str) -> str:
    # SQLite casts a UUID to its bare digits.
    return str(UUID(pk)) if scope in (USER, PROJECT) else pk

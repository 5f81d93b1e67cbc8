"""Which resource policies hold for whom. A session counts against its key pair, user, project and domain alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import CharField, F, QuerySet, Value
from django.db.models.functions import Cast

from backendai.accounts.models import Domain, KeyPair, Project, ResourcePolicy, User
from backendai.activity.services import audit
from backendai.core.errors import Conflict

KEY_PAIR, USER, PROJECT, DOMAIN = SCOPES = ("key-pair", "user", "project", "domain")
_WORDS = {"key_pairs": "key pair", "users": "user", "projects": "project", "domains": "domain"}


@dataclass(frozen=True, slots=True)
class Limited:
    """A holder of sessions that has a policy; ``name`` is for people."""

    key: str
    scope: str
    name: str
    policy: ResourcePolicy

    @property
    def label(self) -> str:
        """The holder in words: ``user alice@example.com``."""
        return f"{self.scope.replace('-', ' ')} {self.name}"


def key_of(scope: str, identity: object) -> str:
    """Return the key under which a holder's limits, weight and use are kept."""
    return f"{scope}:{identity}"


def limited_holders(keys: Collection[str]) -> list[Limited]:
    """Return those of these holders that have a policy, the narrowest scope first. One query, and a second one when
    there are any."""
    rows = sorted(_rows_with_policy(keys), key=lambda row: (SCOPES.index(row[0]), row[2]))
    if not rows:
        return []
    policies = ResourcePolicy.objects.in_bulk({policy_id for *_, policy_id in rows})
    return [
        Limited(key_of(scope, _identity(scope, pk)), scope, name, policies[policy_id])
        for scope, pk, name, policy_id in rows
    ]


def limits_of_launch(user: User, project: Project, key_pair: KeyPair | None) -> list[Limited]:
    """Return those of a launch's holders that have a policy, the narrowest scope first. The rows say so themselves (the
    project with its domain): one query when there are any, none when there are not."""
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
    """Return the smallest number that these policies set for ``field`` and whose it is; None: nobody limits it."""
    numbers = [(number, holder) for holder in limited if (number := getattr(holder.policy, field)) is not None]
    return min(numbers, key=lambda one: one[0], default=None)


def delete_policy(actor_id: UUID | None, policy: ResourcePolicy) -> None:
    """Delete a policy that nobody has; raises a Conflict that counts who has it."""
    with transaction.atomic():
        users = {word: getattr(policy, field).count() for field, word in _WORDS.items()}
        if any(users.values()):
            text = ", ".join(f"{number} {word}{'s' if number > 1 else ''}" for word, number in users.items() if number)
            raise Conflict(
                f"Policy {policy.name!r} still holds for {text}; give them another one first.",
                code="policy-in-use",
                used_by={word.replace(" ", "-"): number for word, number in users.items() if number},
            )
        audit(actor_id, "resource-policy.delete", "resource-policy", [policy.pk], name=policy.name)
        policy.delete()


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

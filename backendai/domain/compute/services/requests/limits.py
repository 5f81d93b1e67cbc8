"""Where a person may launch, and the limits of policies, which are checked under a lock: of pending amounts at
launches, of held amounts at placements.

Launches and placements lock their holders; freeing slots needs no lock. Holders share a fixed number of locks, so that
no transaction takes many.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Count, F, Q, QuerySet, Sum, TextField, Value
from django.db.models.functions import Cast

from backendai.base.core.errors import Conflict, UserError
from backendai.base.core.messages import Message
from backendai.base.core.session_kinds import KINDS, kinds_with
from backendai.base.core.slots import MILLI, Slots, amount_in_words, format_amount
from backendai.base.db import advisory_locks
from backendai.base.db.bulk import among, id_of, raw_id
from backendai.base.db.per_request import once
from backendai.domain.accounts.acting import projects_to_act_in
from backendai.domain.accounts.models import Domain, KeyPair, Project, ResourcePolicy, User
from backendai.domain.accounts.policies.applicable import (
    DOMAIN,
    KEY_PAIR,
    PROJECT,
    USER,
    Limited,
    key_of,
    limited_holders,
    limits_of_launch,
)
from backendai.domain.accounts.policies.rules import thousandths
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import Allocation, ComputeSession
from backendai.domain.compute.services.requests.amounts import minimum_of
from backendai.domain.compute.services.requests.roles import CheckedRole
from backendai.domain.compute.services.status.ledger import slots_of
from backendai.domain.compute.status import PLACED, Status
from backendai.scheduler.limits import Limits
from backendai.scheduler.plan import Reason
from backendai.scheduler.snapshot import Holder, LimitView

_COLUMNS = {KEY_PAIR: "access_key", USER: "owner_id", PROJECT: "project_id", DOMAIN: "project__domain_id"}
_IDS = (_COLUMNS[USER], _COLUMNS[PROJECT])
_LOCKS, _PATIENCE = 1024, "8s"
_ALL = 2**31 - 1
_COUNTED, _OF_COUNTED = (Q(**{f"{to}session_type__in": kinds_with("counts")}) for to in ("", "kernel__session__"))
_FEW, _MANY = 8, 30  # numbers of holders above which other queries are used


def limit_views(limited: Sequence[Limited]) -> dict[str, LimitView]:
    """Return the limits of these holders, and the amounts that they hold in all resource groups. Two queries."""
    if not limited:
        return {}
    keys = [holder.key for holder in limited]
    slots, sessions = _held_by_each(keys) if len(keys) <= _FEW else (_slots_held(keys), _sessions_held(keys))
    return {holder.key: _view(holder, slots[holder.key], sessions[holder.key]) for holder in limited}


def beyond_limits(limited: Sequence[Limited], asked: Slots) -> Reason | None:
    """Return why a policy would never allow these amounts, even without other sessions; None if all policies allow
    them. No query."""
    keys = {holder.scope: holder.key for holder in limited}
    holder = Holder(keys.get(USER, ""), keys.get(KEY_PAIR, ""), keys.get(PROJECT, ""), keys.get(DOMAIN, ""))
    unused = {one.key: _view(one, {}, 0) for one in limited}
    return Limits(unused).slots_reason(holder, tuple(asked.items()))


def waiting_of(keys: Collection[str]) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Return the requested amounts and the number of pending sessions, by holder. One query."""
    columns, condition = _columns_and_condition(keys, "")
    rows = ComputeSession.objects.pending().filter(_COUNTED, condition).order_by().values_list(*columns, *_AMOUNTS)
    slots: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    sessions: dict[str, int] = defaultdict(int)
    for *identities, text, size, of_all, number in rows.annotate(number=Count("pk")):
        for key in _keys(identities):
            sessions[key] += number
            for slot, amount in _total(text, size, of_all):
                slots[key][slot] += amount * number
    return slots, sessions


def check_pending(limited: Sequence[Limited], owner_id: UUID) -> None:
    """Raise Conflict if a holder's pending sessions exceed a limit. Call at the end of the transaction that writes the
    session, as this session counts, too. The holders are locked until the transaction ends."""
    limited = [holder for holder in limited if _limits_pending(holder.policy)]
    if not limited:
        return
    lock_holders(holder.key for holder in limited)
    for holder in limited:
        _check_pending_of(holder, owner_id)


def recheck(session_ids: Sequence[UUID]) -> set[UUID]:
    """Return the ids of pending sessions that cannot be placed because of a limit. Checked in the given order.

    Call in the transaction that places them, as their limited holders stay locked until it ends. Two queries without
    limits; else six, two of them for the locks.
    """
    pending = ComputeSession.objects.pending().filter(_COUNTED, pk__in=among(session_ids)).order_by()
    holders = {_holder_of(*row) for row in pending.values_list(*_COLUMNS.values()).distinct()}
    limited = limited_holders({key for holder in holders for key in holder.keys})
    limited = [holder for holder in limited if _limits_held(holder.policy)]
    if not limited:
        return set()
    lock_holders(holder.key for holder in limited)
    columns, theirs = _columns_and_condition([holder.key for holder in limited], "")
    asking = {
        pk: (_holder_of(*identities), _total(slots, size, of_all))
        for pk, slots, size, of_all, *identities in pending.filter(theirs).values_list("pk", *_AMOUNTS, *columns)
    }
    limits, left_out = Limits(limit_views(limited)), set()
    for session_id in filter(asking.__contains__, session_ids):
        holder, asked = asking[session_id]
        if limits.sessions_reason(holder) or limits.slots_reason(holder, asked):
            left_out.add(session_id)
        else:
            limits.count(holder, asked)
    return left_out


def lock_holders(keys: Iterable[str]) -> None:
    """Lock the limits of these holders until the transaction ends. SQLite needs no lock, as it has only one writer.
    Waits at most 8 s for each lock."""
    if connection.vendor != "postgresql":
        return
    # All transactions lock in one order, so that no deadlock occurs.
    numbers = sorted({zlib.crc32(key.encode()) % _LOCKS for key in keys})
    with connection.cursor() as cursor:
        # Waits, as many launches may queue for one lock.
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [_PATIENCE])
        cursor.execute(
            "SELECT pg_advisory_xact_lock(%s, number) FROM unnest(%s::int[]) AS number",
            [advisory_locks.HOLDER, numbers],
        )


def _view(limited: Limited, held: Mapping[str, int], sessions: int) -> LimitView:
    amounts = thousandths(limited.policy.slots, field="slots")
    return LimitView(
        scope=limited.scope,
        name=limited.name,
        slots=Slots(amounts),
        unnamed_limited=limited.policy.unnamed_slots == ResourcePolicy.Unnamed.LIMITED,
        max_sessions=limited.policy.max_sessions,
        used=Slots(held),
        sessions=sessions,
        forbidden=frozenset(name for name, amount in amounts.items() if not amount),
    )


def _held_by_each(keys: Collection[str]) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Return held amounts and numbers of placed sessions by holder, for at most ``_FEW`` holders. The database computes
    the sums, which saves a row for each user of a domain. Two queries."""
    scopes, identities = zip(*map(_scope_and_identity, keys), strict=True)
    slots: dict[str, dict[str, int]] = {key: {} for key in keys}
    for slot, *sums in _sums_of(scopes, *identities):
        for key, amount in zip(keys, sums, strict=True):
            if amount is not None:
                slots[key][slot] = amount
    _, *numbers = _counts_of(scopes, *identities)[0]
    return slots, dict(zip(keys, numbers, strict=True))


def _sums_of(scopes: Sequence[str], *identities: Any) -> QuerySet[Any, Any]:
    """Return a query with one row for each slot: the slot, and the amount that each holder holds."""
    # PostgreSQL runs a subquery with a limit first, and so finds the few sessions; with a join it would scan all
    # kernels. The status of the kernels also helps its planner, as no other kernels hold slots.
    own = _COUNTED & reduce(or_, _each(scopes, identities, ""))
    sessions = ComputeSession.objects.live().filter(own).order_by().values("pk")
    rows = Allocation.objects.filter(kernel__status__in=PLACED, kernel__session__in=sessions[:_ALL]).order_by()
    each = _each(scopes, identities, "kernel__session__")
    sums = {f"of_{number}": Sum("amount", filter=own) for number, own in enumerate(each)}
    by_slot: QuerySet[Any, Any] = rows.values_list("slot").annotate(**sums)
    return by_slot


def _counts_of(scopes: Sequence[str], *identities: Any) -> QuerySet[Any, Any]:
    """Return a query with one row: a constant, and the number of placed sessions of each holder."""
    theirs = _each(scopes, identities, "")
    counts = {f"of_{number}": Count("pk", filter=own) for number, own in enumerate(theirs)}
    rows = _placed().filter(reduce(or_, theirs))
    one: QuerySet[Any, Any] = rows.annotate(all=Value(1)).values_list("all").annotate(**counts)
    return one


def _each(scopes: Sequence[str], identities: Sequence[Any], prefix: str) -> list[Q]:
    pairs = zip(scopes, identities, strict=True)
    return [Q(**{f"{prefix}{_COLUMNS[scope]}": identity}) for scope, identity in pairs]


def _placed() -> QuerySet[Any]:
    """Return the sessions that hold slots, found among the live ones."""
    return ComputeSession.objects.live().filter(_COUNTED, status__one_of=PLACED).order_by()


def _scope_and_identity(key: str) -> tuple[str, Any]:
    scope, _, text = key.partition(":")
    return scope, UUID(text) if scope in (USER, PROJECT) else int(text) if scope == DOMAIN else text


def _slots_held(keys: Collection[str]) -> dict[str, dict[str, int]]:
    columns, condition = _columns_and_condition(keys, "kernel__session__")
    rows = Allocation.objects.of_live().filter(_OF_COUNTED, condition).order_by().values_list(*columns, "slot")
    held: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for *identities, slot, amount in rows.annotate(sum=Sum("amount")):
        for key in _keys(identities):
            held[key][slot] += amount
    return held


def _sessions_held(keys: Collection[str]) -> dict[str, int]:
    columns, condition = _columns_and_condition(keys, "")
    held: dict[str, int] = defaultdict(int)
    for *identities, number in _placed().filter(condition).values_list(*columns).annotate(number=Count("pk")):
        for key in _keys(identities):
            held[key] += number
    return held


def _columns_and_condition(keys: Collection[str], prefix: str) -> tuple[list[Any], Q]:
    """Return the columns that identify a session's holders, and the condition for sessions of these holders. Users and
    projects are raw ids. For many holders the condition is empty, as a long list costs more than reading all
    sessions."""
    columns = [raw_id(f"{prefix}{column}") if column in _IDS else f"{prefix}{column}" for column in _COLUMNS.values()]
    if len(keys) > _MANY:
        return columns, Q()
    condition = Q(pk__in=[])
    for scope, column in _COLUMNS.items():
        identities = [identity for kind, _, identity in (key.partition(":") for key in keys) if kind == scope]
        if identities:
            condition |= Q(**{f"{prefix}{column}__in": identities})
    return columns, condition


def _keys(identities: Sequence[Any]) -> tuple[str, ...]:
    return _holder_of(*identities).keys


@lru_cache(maxsize=4096)
def _holder_of(access_key: str, owner_id: UUID | str, project_id: UUID | str, domain_id: int) -> Holder:
    """Return a session's holder keys from its values of ``_COLUMNS``; ``access_key`` may be empty."""
    return Holder(
        key_pair=key_of(KEY_PAIR, access_key) if access_key else "",
        user=key_of(USER, id_of(owner_id)),
        project=key_of(PROJECT, id_of(project_id)),
        domain=key_of(DOMAIN, domain_id),
    )


@lru_cache(maxsize=4096)
def _total(slots: str, kernels: int, of_all: str | None) -> tuple[tuple[str, int], ...]:
    # An empty column is SQL's NULL, or JSON's null in rows of older releases.
    return tuple((slots_of(of_all) if of_all not in (None, "null") else slots_of(slots) * kernels).items())


# The request of all kernels of a session: the amounts of one and their number, or the sum if they differ.
_AMOUNTS = (Cast("slots", TextField()), F("cluster_size"), Cast("total_slots", TextField()))


def _limits_pending(policy: ResourcePolicy) -> bool:
    return policy.max_pending_sessions is not None or bool(policy.max_pending_slots)


def _limits_held(policy: ResourcePolicy) -> bool:
    limited = policy.unnamed_slots == ResourcePolicy.Unnamed.LIMITED
    return limited or policy.max_sessions is not None or bool(policy.slots)


def _check_pending_of(holder: Limited, owner_id: UUID) -> None:
    pending = ComputeSession.objects.pending().filter(
        _COUNTED, **{_COLUMNS[holder.scope]: holder.key.partition(":")[2]}
    )
    if holder.scope == KEY_PAIR:  # all its sessions have one owner, by whom an index finds them
        pending = pending.filter(owner=owner_id)
    # One row for each distinct request, as many sessions request the same.
    rows = list(pending.order_by().values_list(*_AMOUNTS).annotate(number=Count("pk")))
    number, limit = sum(row[-1] for row in rows), holder.policy.max_pending_sessions
    if limit is not None and number > limit:
        text = Message(
            "{number} sessions of {holder} are already pending; at most {limit} are allowed.",
            number=number - 1,
            holder=holder.label,
            limit=limit,
        )
        raise _too_much(holder, text, what="sessions", number=number - 1, limit=limit)
    waiting = sum((Slots(dict(_total(*asked))) * count for *asked, count in rows), Slots())
    for name, most in thousandths(holder.policy.max_pending_slots, field="max_pending_slots").items():
        if waiting[name] > most:
            total, allowed = format_amount(name, waiting[name]), format_amount(name, most)
            text = Message(
                "With this session {name} {total} would wait for {holder}, and at most {allowed} may.",
                name=name,
                total=total,
                holder=holder.label,
                allowed=allowed,
            )
            raise _too_much(holder, text, what=name, number=total, limit=allowed)


def _too_much(holder: Limited, text: str, **details: Any) -> Conflict:
    return Conflict(text, code="pending-limit", scope=holder.scope, name=holder.name, **details)


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


def _projects(actor: Any, owner: Any) -> QuerySet[Any, Any]:
    return projects_to_act_in(actor, owner).select_related("domain")


def _groups(owner: Any) -> QuerySet[Any, Any]:
    return ResourceGroup.objects.visible_to(owner).filter(is_active=True)


def _key_pair(owner: Any) -> QuerySet[Any, Any]:
    return KeyPair.objects.visible_to(owner).main_first()[:1]


def projects_open(owner: User, actor: User) -> Sequence[Project]:
    """Return the owner's projects where the actor can launch sessions for the owner. Sorted by name, with domains
    loaded."""
    return once(("projects-open", owner.pk, actor.pk), lambda: list(_projects(actor, owner)))


def groups_open(owner: User) -> Sequence[ResourceGroup]:
    """Return the active resource groups that the owner can use through a project or a key pair. Sorted by name."""
    return once(("groups-open", owner.pk), lambda: list(_groups(owner)))


def key_pair_of(owner: User) -> KeyPair | None:
    """Return the key pair to which launches of the owner count by default; None if there is none."""
    return once(("key-pair", owner.pk), lambda: next(iter(_key_pair(owner)), None))


def limits_on(owner: User, project: Project, key_pair: KeyPair | None) -> list[Limited]:
    """Return the holders of a launch that have a policy, the narrowest first."""
    holders = (owner.pk, project.pk, key_pair and key_pair.pk)
    return once(("limits-on", *holders), lambda: limits_of_launch(owner, project, key_pair))

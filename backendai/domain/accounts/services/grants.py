"""Checks granted policies and share weights: a grant cannot exceed the actor's own limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import models

from backendai.base.core.errors import NotAllowed, UserError
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Domain, PolicyDefault, ResourcePolicy, User
from backendai.domain.accounts.policies.rules import thousandths
from backendai.domain.accounts.roles import Rank, rank_of

LEAST_WEIGHT, LARGEST_WEIGHT = 0.01, 1000


def check_policy_of_user(actor: User, policy: ResourcePolicy | None) -> None:
    """Raise NotAllowed if the policy allows more than the actor's own. ``policy`` None means no limits."""
    _check(actor, policy, actor.policy, Message("your own policy"))


def check_policy_of_project(actor: User, policy: ResourcePolicy | None, domain: Domain) -> None:
    """Raise NotAllowed if a project's policy allows more than its domain's. ``policy`` None means no limits."""
    _check(actor, policy, domain.policy, Message("the domain's policy"))


def default_policy(holder: str) -> ResourcePolicy | None:
    """Return the default policy of new holders of this kind, or None."""
    default = PolicyDefault.objects.filter(holder=holder).select_related("policy").first()
    return default.policy if default else None


def check_weight(weight: float, *, field: str = "share_weight") -> None:
    """Raise UserError for a share weight outside the allowed range."""
    if not LEAST_WEIGHT <= weight <= LARGEST_WEIGHT:
        text = Message(
            "A share weight is from {least_weight} to {largest_weight}.",
            least_weight=LEAST_WEIGHT,
            largest_weight=LARGEST_WEIGHT,
        )
        raise UserError(text, field=field, code="invalid-weight")


def _check(actor: User, policy: ResourcePolicy | None, own: ResourcePolicy | None, words: str) -> None:
    if rank_of(actor) == Rank.SUPERADMIN:
        return
    if wider := wider_fields(policy, own):
        given = Message("Policy {policy}", policy=repr(policy.name)) if policy else Message("No policy")
        fields = ", ".join(name.replace("_", " ") for name in wider)
        text = Message("{given} allows more than {words}, in: {fields}.", given=given, words=words, fields=fields)
        raise NotAllowed(text, field="policy", code="above-own-limits", wider=wider)


_NO_LIMITS = {"id", "name", "created_at", "unnamed_slots"}


def wider_fields(given: ResourcePolicy | None, own: ResourcePolicy | None) -> list[str]:
    """Return the names of the limits in which ``given`` allows more than ``own``. None is a policy without limits."""
    if own is None or (given is not None and given.pk == own.pk):
        return []
    if given is None:
        given = ResourcePolicy(name="none")
    fields = [field for field in ResourcePolicy._meta.concrete_fields if field.name not in _NO_LIMITS]
    return [field.name for field in fields if _is_wider(field, given, own)]


def _is_wider(field: models.Field[Any, Any], given: ResourcePolicy, own: ResourcePolicy) -> bool:
    theirs, mine = getattr(given, field.name), getattr(own, field.name)
    if field.name == "slots":
        return _slots_are_wider(given, own)
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        return _amounts_are_wider(theirs, mine, field.name)
    if mine is None or theirs == mine:
        return False
    if isinstance(field, models.IntegerField | models.DurationField):
        return theirs is None or theirs > mine
    return True  # a kind of limit that cannot be compared: only the very same will do


def _slots_are_wider(given: ResourcePolicy, own: ResourcePolicy) -> bool:
    limited = ResourcePolicy.Unnamed.LIMITED
    mine, theirs = thousandths(own.slots, field="slots"), thousandths(given.slots, field="slots")
    if own.unnamed_slots == limited and given.unnamed_slots != limited:
        return True
    others = 0 if own.unnamed_slots == limited else None  # of what one's own policy does not name
    for name in mine.keys() | theirs.keys():
        most = mine.get(name, others)
        amount = theirs.get(name, 0 if given.unnamed_slots == limited else None)
        if most is not None and (amount is None or amount > most):
            return True
    return False


def _amounts_are_wider(theirs: Mapping[str, str], mine: Mapping[str, str], field: str) -> bool:
    given = thousandths(theirs, field=field)
    return any(given.get(name) is None or given[name] > most for name, most in thousandths(mine, field=field).items())

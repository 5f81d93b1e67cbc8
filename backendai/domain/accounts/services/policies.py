"""Creates, changes and deletes resource policies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from backendai.base.core.errors import Conflict, UserError
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import PolicyDefault, ResourcePolicy
from backendai.domain.accounts.policies.applicable import HOLDER_WORDS, counted
from backendai.domain.activity.changes import plain_value
from backendai.domain.activity.services import audit

_DEFAULT_FOR = "default_for"


def defaults_of(policy: ResourcePolicy) -> list[str]:
    """Return the kinds of holders for which this is the default policy."""
    return sorted(policy.default_for.values_list("holder", flat=True))


def set_defaults(policy: ResourcePolicy, kinds: Collection[str]) -> None:
    """Make the policy the default for exactly these kinds of holders, in the caller's transaction."""
    policy.default_for.exclude(holder__in=kinds).delete()
    for kind in sorted(kinds):
        PolicyDefault.objects.update_or_create(holder=kind, defaults={"policy": policy})


def write_policy(actor_id: UUID | None, policy: ResourcePolicy, values: Mapping[str, Any]) -> ResourcePolicy:
    """Save these fields of a new or stored resource policy, and return the policy.

    ``default_for``: the kinds of new holders that get it. Raises UserError that names the field, or Conflict for a
    taken name.
    """
    is_new = policy._state.adding
    old = {} if is_new else _shown(policy, values)
    for name in values.keys() - {_DEFAULT_FOR}:
        setattr(policy, name, values[name])
    try:
        with transaction.atomic():
            policy.save()
            if _DEFAULT_FOR in values:
                set_defaults(policy, values[_DEFAULT_FOR])
            new = _shown(policy, values)
            changes = {name: [old.get(name), value] for name, value in new.items() if old.get(name) != value}
            if changes:
                action = f"resource-policy.{'create' if is_new else 'change'}"
                audit(actor_id, action, "resource-policy", [policy.pk], name=policy.name, changes=changes)
    except ValidationError as error:
        field, texts = next(iter(error.message_dict.items()))
        raise UserError(texts[0], field=field, code="invalid-limit") from error
    except IntegrityError as error:
        text = Message("A policy named {policy} already exists.", policy=repr(policy.name))
        raise Conflict(text, field="name", code="name-taken") from error
    return policy


def delete_policy(actor_id: UUID | None, policy: ResourcePolicy) -> None:
    """Delete a policy that nobody uses and that is not a default. Raises Conflict with the number of holders."""
    with transaction.atomic():
        if kinds := defaults_of(policy):
            words = [PolicyDefault.Holder(kind).label for kind in kinds]
            text = Message(
                "Policy {policy} is the default for new {words}; choose another default, or none, first.",
                words=words,
                policy=repr(policy.name),
            )
            raise Conflict(text, code="policy-is-default", default_for=kinds)
        users = {word: getattr(policy, field).count() for field, word in HOLDER_WORDS.items()}
        if any(users.values()):
            raise Conflict(
                "Policy {policy} is still assigned to {text}; assign another one first.",
                policy=repr(policy.name),
                text=counted((number, word) for word, number in users.items()),
                code="policy-in-use",
                used_by={word.replace(" ", "-"): number for word, number in users.items() if number},
            )
        audit(actor_id, "resource-policy.delete", "resource-policy", [policy.pk], name=policy.name)
        policy.delete()


def _shown(policy: ResourcePolicy, names: Iterable[str]) -> dict[str, Any]:
    """Return these fields as the audit log records them."""
    fields = {name: plain_value(getattr(policy, name)) for name in names if name != _DEFAULT_FOR}
    return fields | ({_DEFAULT_FOR: defaults_of(policy)} if _DEFAULT_FOR in names else {})

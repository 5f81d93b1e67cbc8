"""Checks granted policies and share weights: a grant cannot exceed the actor's own limits."""

from __future__ import annotations

from backendai.base.core.errors import NotAllowed, UserError
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Domain, PolicyDefault, ResourcePolicy, User
from backendai.domain.accounts.policies.comparison import wider_fields
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

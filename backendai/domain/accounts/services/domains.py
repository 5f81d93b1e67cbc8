"""Creates, changes and deletes domains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction

from backendai.base.core.errors import Conflict
from backendai.base.core.messages import Message
from backendai.domain.accounts.models import Domain, ResourcePolicy, User
from backendai.domain.accounts.references import refuse_while_used
from backendai.domain.accounts.roles import Action, check_domain
from backendai.domain.accounts.rules import clean_name
from backendai.domain.accounts.services.grants import check_weight
from backendai.domain.activity.changes import plain_value
from backendai.domain.activity.services import audit


def create_domain(actor: User, name: str, *, policy: ResourcePolicy | None = None, share_weight: float = 1.0) -> Domain:
    check_domain(actor, Action.CREATE_DOMAIN, None)
    check_weight(share_weight)
    with transaction.atomic():
        domain = Domain(name=clean_name(name), policy=policy, share_weight=share_weight)
        _save(domain)
        audit(actor.pk, "domain.create", "domain", [domain.pk], name=domain.name)
    return domain


def change_domain(actor: User, domain: Domain, wishes: Mapping[str, Any]) -> Domain:
    """Change ``name``, ``is_active``, ``policy`` or ``share_weight`` of a domain, and return it."""
    check_domain(actor, Action.CHANGE_DOMAIN, domain)
    with transaction.atomic():
        domain = Domain.objects.select_for_update(of=("self",)).select_related("policy").get(pk=domain.pk)
        new = {name: clean_name(value) if name == "name" else value for name, value in wishes.items()}
        changes = {name: [getattr(domain, name), new[name]] for name in new if new[name] != getattr(domain, name)}
        for name in changes:
            setattr(domain, name, new[name])
        if "share_weight" in changes:
            check_weight(domain.share_weight)
        if changes:
            _save(domain, list(changes))
            told = {name: [plain_value(value) for value in values] for name, values in changes.items()}
            audit(actor.pk, "domain.change", "domain", [domain.pk], name=domain.name, changes=told)
    return domain


def delete_domain(actor: User, domain: Domain) -> None:
    """Delete an unused domain. Raises Conflict that counts its people, projects and other users."""
    check_domain(actor, Action.DELETE_DOMAIN, domain)
    with transaction.atomic():
        domain = Domain.objects.select_for_update().get(pk=domain.pk)
        refuse_while_used(domain, "domain")
        audit(actor.pk, "domain.delete", "domain", [domain.pk], name=domain.name)
        domain.delete()


def _save(domain: Domain, changed: list[str] | None = None) -> None:
    try:
        with transaction.atomic():
            domain.save(update_fields=changed)
    except IntegrityError as error:
        text = Message("A domain named {domain} already exists.", domain=repr(domain.name))
        raise Conflict(text, field="name", code="name-taken") from error

"""What owners do with endpoints: create, scale, stop, start, delete, update, roll back."""

from __future__ import annotations

from dataclasses import asdict, fields
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F, Max
from django.utils import timezone

from backendai.base.core.errors import Conflict, UserError
from backendai.base.core.messages import Message
from backendai.base.wire.broker.hints import hint_on_commit
from backendai.base.wire.broker.queues import CONTROL_QUEUE
from backendai.domain.accounts.models import User
from backendai.domain.activity.services import audit
from backendai.domain.compute.services.requests.check import Checked
from backendai.domain.serving.models import AutoScalingRule, DesiredState, Endpoint, Revision
from backendai.domain.serving.moves import note
from backendai.domain.serving.services.checks import (
    PATIENCE,
    check_access,
    check_endpoint,
    check_numbers,
    check_patience,
    check_public,
    check_queries,
    check_revision,
    check_rules,
    check_shares,
    check_sleep,
    check_update,
)
from backendai.domain.serving.services.quota import check_maximum, check_maximum_of, check_number
from backendai.domain.serving.spec import EndpointSpec, RevisionSpec

SETTABLE = frozenset(one.name for one in fields(EndpointSpec)) - {"name", "revision", "project", "resource_group"}


def create_endpoint(user: User, spec: EndpointSpec) -> Endpoint:
    """Return a new endpoint, whose first replicas the next pass starts. Raises UserError, Conflict for a name
    that the project has."""
    checked = check_endpoint(user, spec)
    now = timezone.now()
    try:
        with transaction.atomic():
            endpoint = Endpoint.objects.create(
                name=spec.name,
                owner=user,
                project=checked.project,
                resource_group=checked.group,
                **_settings(spec),
                desired=spec.minimum,
                scaled_at=now,
                created_at=now,
            )
            endpoint.current = _write_revision(endpoint, user, spec.revision, checked, 1, now)
            endpoint.save(update_fields=["current"])
            note(endpoint.pk, "created", now=now, after=spec.minimum, message=_created(user, spec.minimum))
            audit(user.pk, "endpoint.create", "endpoint", [endpoint.pk], name=spec.name, image=spec.revision.image)
            check_number(checked.limited, endpoint)
            _hint()
    except IntegrityError as error:
        text = Message(
            "Project {project} has an endpoint named {name}: choose another name.",
            project=checked.project.name,
            name=repr(spec.name),
        )
        raise Conflict(text, field="name", code="name-taken") from error
    return endpoint


def _created(user: User, number: int) -> Message:
    if number == 0:
        return Message("Created by {user} without replicas: the first request starts one.", user=user.email)
    if number == 1:
        return Message("Created by {user} with 1 replica.", user=user.email)
    return Message("Created by {user} with {number} replicas.", user=user.email, number=number)


def update_endpoint(endpoint: Endpoint, user: User, spec: RevisionSpec, *, allow_gap: bool = False) -> Revision:
    """Return a new revision, which replaces the current one step by step. ``allow_gap``: an old replica may end before
    its successor serves. Raises UserError."""
    _refuse_deleted(endpoint)
    place = {"project": str(endpoint.project_id), "resource_group": endpoint.resource_group.name}
    checked = check_revision(endpoint.owner, spec, **place)
    check_maximum(checked.limited, checked.total, endpoint.maximum)
    now = timezone.now()
    with transaction.atomic():
        Endpoint.objects.select_for_update().get(pk=endpoint.pk)
        last = endpoint.revisions.aggregate(last=Max("number"))["last"] or 0
        revision = _write_revision(endpoint, user, spec, checked, last + 1, now)
        _begin(
            endpoint,
            revision,
            user,
            now,
            Message("{user} began the update to revision {revision}.", user=user.email, revision=revision.number),
            allow_gap,
        )
    return revision


def roll_back(endpoint: Endpoint, user: User, number: int) -> None:
    """Let an earlier revision replace the others. Raises UserError when there is none of this number."""
    _refuse_deleted(endpoint)
    revision = endpoint.revisions.filter(number=number).first()
    if revision is None:
        known = ", ".join(str(one) for one in endpoint.revisions.values_list("number", flat=True)[:10])
        raise UserError(
            "Revision {number} not found; available: {known}.",
            number=number,
            known=known,
            field="revision",
            code="unknown-revision",
        )
    now = timezone.now()
    with transaction.atomic():
        Revision.objects.filter(pk=revision.pk).update(failed_starts=0, retry_at=None, last_error="")
        _begin(
            endpoint,
            revision,
            user,
            now,
            Message("{user} went back to revision {revision}.", user=user.email, revision=number),
            False,
        )


def change_endpoint(endpoint: Endpoint, user: User, **values: Any) -> None:
    """Change limits, numbers and access; ``asleep_after`` in seconds. Raises UserError."""
    _refuse_deleted(endpoint)
    if unknown := sorted(values.keys() - SETTABLE):
        raise UserError("{unknown} cannot be changed.", unknown=unknown[0], field=unknown[0], code="not-changeable")
    after = {name: values.get(name, getattr(endpoint, name)) for name in SETTABLE}
    check_numbers(after["minimum"], after["maximum"], after["target"])
    if after["maximum"] > endpoint.maximum:
        check_maximum_of(endpoint, after["maximum"])
    check_public(bool(values.get("is_public")))
    check_access(after["origins"], after["affinity"])
    check_shares(after["warm_up"], after["canary"])
    check_patience(**{name: after[name] for name in PATIENCE})
    check_update(after["max_surge"], after["max_unavailable"])
    if "asleep_after" in values:
        check_sleep(values["asleep_after"])
    told = {name: value for name, value in values.items() if _as_asked(endpoint, name) != value}
    written = {name: timedelta(seconds=value) if name == "asleep_after" else value for name, value in told.items()}
    with transaction.atomic():
        Endpoint.objects.filter(pk=endpoint.pk).update(**written, version=F("version") + 1)
        audit(user.pk, "endpoint.change", "endpoint", [endpoint.pk], name=endpoint.name, **told)
        _hint()


def _as_asked(endpoint: Endpoint, name: str) -> Any:
    value = getattr(endpoint, name)
    return value.total_seconds() if isinstance(value, timedelta) else value


def set_wish(endpoint: Endpoint, user: User, wish: DesiredState) -> None:
    """Start, stop or delete the endpoint: a stopped one has no replicas and keeps its address. Raises Conflict."""
    _refuse_deleted(endpoint)
    if wish == DesiredState.RUN and not endpoint.owner.is_active:
        text = Message(
            "{owner} is deactivated: the endpoint starts when the account is activated again.",
            owner=endpoint.owner.email,
        )
        raise Conflict(text, code="owner-inactive")
    now = timezone.now()
    values: dict[str, Any] = {"wish": wish, "version": F("version") + 1}
    if wish == DesiredState.DELETED:
        values["deleted_at"] = now
    if wish == DesiredState.RUN:
        values |= {"desired": endpoint.minimum, "scaled_at": now, "asked_at": now}
    with transaction.atomic():
        Endpoint.objects.filter(pk=endpoint.pk).update(**values)
        note(
            endpoint.pk,
            f"wish-{wish}",
            now=now,
            before=endpoint.desired,
            message=Message("Ordered by {user}.", user=user.email),
        )
        action = {DesiredState.RUN: "start", DesiredState.STOPPED: "stop", DesiredState.DELETED: "delete"}[wish]
        audit(user.pk, f"endpoint.{action}", "endpoint", [endpoint.pk], name=endpoint.name)
        _hint()


def retry_now(endpoint: Endpoint, user: User) -> None:
    """Start failed replicas again without waiting any longer."""
    with transaction.atomic():
        Revision.objects.filter(endpoint=endpoint).update(retry_at=None)
        audit(user.pk, "endpoint.retry", "endpoint", [endpoint.pk], name=endpoint.name)
        _hint()


def set_rules(endpoint: Endpoint, user: User, rules: list[AutoScalingRule]) -> None:
    """Replace the scaling rules of the endpoint. Queries of Prometheus are new from superadmins alone. Raises
    UserError.
    """
    check_rules(rules)
    check_queries(rules, user, set(endpoint.rules.values_list("query", flat=True)))
    with transaction.atomic():
        endpoint.rules.all().delete()
        for rule in rules:
            rule.pk, rule.endpoint = None, endpoint
        AutoScalingRule.objects.bulk_create(rules)
        audit(user.pk, "endpoint.rules", "endpoint", [endpoint.pk], name=endpoint.name, rules=len(rules))


def _begin(endpoint: Endpoint, revision: Revision, user: User, now: datetime, message: str, allow_gap: bool) -> None:
    gap = {"max_unavailable": max(endpoint.max_unavailable, 1)} if allow_gap else {}
    target = None if revision.pk == endpoint.current_id else revision
    Endpoint.objects.filter(pk=endpoint.pk).update(next=target, version=F("version") + 1, **gap)
    note(endpoint.pk, "update", now=now, message=message, before=endpoint.desired, after=endpoint.desired)
    audit(user.pk, "endpoint.update", "endpoint", [endpoint.pk], name=endpoint.name, revision=revision.number)
    _hint()


def _write_revision(
    endpoint: Endpoint, user: User, spec: RevisionSpec, checked: Checked, number: int, now: datetime
) -> Revision:
    return Revision.objects.create(
        endpoint=endpoint,
        number=number,
        image=checked.image,
        command=spec.command,
        port=spec.port,
        environ=dict(spec.environ),
        mounts=[asdict(one) for one in spec.mounts],
        slots=checked.slots.to_json(),
        cluster_size=spec.cluster_size,
        cluster_mode=spec.cluster_mode,
        probe_path=spec.probe_path,
        startup_timeout=timedelta(seconds=spec.startup_timeout),
        drain_timeout=timedelta(seconds=spec.drain_timeout),
        model_name=spec.model_name,
        created_by=user,
        created_at=now,
    )


def _settings(spec: EndpointSpec) -> dict[str, Any]:
    written = {"origins": list(spec.origins), "asleep_after": timedelta(seconds=spec.asleep_after)}
    return {name: getattr(spec, name) for name in SETTABLE} | written


def _refuse_deleted(endpoint: Endpoint) -> None:
    if endpoint.wish == DesiredState.DELETED:
        raise Conflict("The endpoint is deleted: create a new one.", code="deleted")


def _hint() -> None:
    hint_on_commit("controller.run_serving", queue=CONTROL_QUEUE)

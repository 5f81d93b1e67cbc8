"""Accepting a run: read it, check every step as a launch would, and write it whole or not at all."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from backendai.base.core.errors import Conflict, KeyReused, UserError
from backendai.base.core.messages import Message
from backendai.base.core.names import check_session_name
from backendai.base.core.written_documents import WrittenDocument, read_document, written
from backendai.base.db.bulk import insert_rows
from backendai.domain.accounts.models import Project, User
from backendai.domain.activity.services import audit
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.requests.check import Checked, check_spec
from backendai.domain.compute.spec import SessionSpec
from backendai.domain.compute.spec_document import digest_of, document_of, spec_of
from backendai.domain.pipelines.documents.document import (
    ARRAY_KEYS,
    KIND,
    LARGEST,
    MOST_VALUES,
    RunDocument,
    StepDocument,
    run_document,
)
from backendai.domain.pipelines.documents.secrets import sealed_request
from backendai.domain.pipelines.documents.stored import with_secret_parameters, without_secrets
from backendai.domain.pipelines.hints import hint_runs
from backendai.domain.pipelines.models import Edge, Run, State, Step, Task
from backendai.domain.pipelines.reading import read_runs
from backendai.domain.pipelines.services.acting import act
from backendai.domain.templates.models import TemplateVersion
from backendai.domain.templates.rendering import Layer, Source, merged
from backendai.domain.templates.services.launching import from_template, version_named

LONGEST_NAME = 40
_RETRY_WAIT = "30s"  # longer than most hiccups of storage and network, shorter than a person's patience
_NOT_AGAIN = ("name", "template", "parameters")  # the request has what they say already


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A run as it is asked for: a document as text, as data, or by the name of a template, and what it is to be called.
    ``access_key``: the owner's key pair that its sessions count against; empty: the main one."""

    text: str = ""
    document: Mapping[str, Any] = field(default_factory=dict)
    template: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    access_key: str = ""


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """A run that can be written: what it says, the request of each step as the launch would check it, the text of its
    document as it is kept, and the version of the template that it is of."""

    document: RunDocument
    specs: dict[str, SessionSpec]
    checked: dict[str, Checked]
    name: str
    text: str
    template: str

    @property
    def project(self) -> Project:
        """The project for which its first step counts."""
        return next(iter(self.checked.values())).project


def array_of(spec: SessionSpec, elements: int | Mapping[str, Any], *, retries: Any = 0) -> RunSpec:
    """Return a run of so many sessions like this one, or of one for each combination of values, each retried after a
    failure: so often, or by a rule as a step has it. Raises a UserError for what only single sessions have."""
    for field_name in ("starts_at", "depends_on", "depends_when", "owner"):
        if getattr(spec, field_name):
            text = Message("An array or a session with retries has no {field}: leave it empty.", field=field_name)
            raise UserError(text, field=field_name, code="single-only")
    request = {key: value for key, value in document_of(spec).items() if key in ARRAY_KEYS and key not in _NOT_AGAIN}
    if isinstance(retries, int) and not isinstance(retries, bool):
        retries = {"times": retries, "wait": _RETRY_WAIT} if retries else None
    again = {"retry": retries} if retries else {}
    many = {"array" if isinstance(elements, int) else "matrix": elements}
    return RunSpec(document=request | again | many, name=spec.name, access_key=spec.access_key)


def check_run(user: User, wish: RunSpec) -> CheckedRun:
    """Return what such a run would write, and write nothing. Raises a UserError with field, and line and column where
    the document came as text."""
    version = _version(user, wish.template) if wish.template else None
    if version:
        wish = replace(wish, text=version.text)
    source = _source(wish)
    try:
        document = run_document(source.value, wish.parameters)
        specs = {step.name: _spec(user, step, document, wish.access_key) for step in document.steps}
        checked = dict(_checked(user, document, specs))
    except UserError as error:
        raise source.placed(error) from None
    name = _name(wish.name or document.name, checked)
    kept = _kept(wish, source.value, document.kind)
    return CheckedRun(document, specs, checked, name, kept, str(version or ""))


def create_run(user: User, wish: RunSpec, *, idempotency_key: str | None = None, now: datetime) -> tuple[Run, bool]:
    """Return a new run, or the one made earlier under the same key, and whether it is new. Raises as ``check_run``."""
    asked = [wish.text, wish.document, wish.parameters, wish.name, *filter(None, [wish.template])]
    digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()
    if idempotency_key and (earlier := _earlier(user, idempotency_key, digest)):
        return earlier, False
    found = check_run(user, wish)
    try:
        with transaction.atomic():
            run = _write(user, wish, found, digest, idempotency_key, now)
            audit(user.pk, "run.create", "run", [run.pk], name=run.name, elements=run.size)
            hint_runs()
    except IntegrityError:
        if idempotency_key and (earlier := _earlier(user, idempotency_key, digest)):
            return earlier, False
        raise
    return run, True


def _version(user: User, named: str) -> TemplateVersion:
    """Return the version of a pipeline template. Raises a UserError at ``template``."""
    version = version_named(user, named)
    if version.template.kind != KIND:
        text = Message("Template {name} launches single sessions: choose one of a pipeline.", name=str(version))
        raise UserError(text, field="template", code="other-kind")
    return version


def _source(wish: RunSpec) -> WrittenDocument:
    if wish.text:
        return read_document(wish.text, largest=LARGEST, most=MOST_VALUES)
    if not wish.document:
        raise UserError("Write the document of the run.", field="text", code="missing-document")
    return WrittenDocument(dict(wish.document))


def _spec(user: User, step: StepDocument, document: RunDocument, access_key: str) -> SessionSpec:
    prefix = _prefix(step, document)
    request = step.request
    if step.template:
        try:
            version = version_named(user, step.template, project=str(request.get("project") or ""))
            made = from_template(version, step.parameters, {})
        except UserError as error:
            raise _below(error, prefix) from None
        layers = [made.document, request]
        request = merged([Layer(Source("run"), one, {}) for one in layers]).document
    if document.workspace:
        mount = {"folder": document.workspace["folder"], "rights": "edit"}
        request = request | {"mounts": [*request.get("mounts", ()), mount]}
    try:
        return replace(spec_of(request), name="", access_key=access_key)
    except UserError as error:
        raise _below(error, prefix) from None


def _checked(user: User, document: RunDocument, specs: Mapping[str, SessionSpec]) -> Iterator[tuple[str, Checked]]:
    """Check each request once, however many steps differ in their commands and variables only."""
    known: dict[str, Checked] = {}
    for step in document.steps:
        spec = specs[step.name]
        key = digest_of(replace(spec, startup_command="", environ={}, template="", parameters={}))
        try:
            if key not in known:
                known[key] = check_spec(user, spec)
        except UserError as error:
            raise _below(error, _prefix(step, document)) from None
        yield step.name, known[key]


def _prefix(step: StepDocument, document: RunDocument) -> str:
    if document.kind == Run.Kind.ARRAY:
        return ""
    return f"{step.name}." if step.is_finally else f"steps.{step.name}."


def _below(error: UserError, prefix: str) -> UserError:
    return UserError(error.message, field=f"{prefix}{error.field or ''}".rstrip("."), code=error.code, **error.details)


def _name(asked: str, checked: Mapping[str, Checked]) -> str:
    if not asked:
        image = next(iter(checked.values())).image
        stem = "".join(one if one.isascii() and one.isalnum() else "-" for one in image.name).strip("-")[:24]
        return f"{stem or 'run'}-{uuid.uuid4().hex[:6]}"
    if len(asked) > LONGEST_NAME:
        text = Message("The name of a run has at most {most} characters.", most=LONGEST_NAME)
        raise UserError(text, field="name", code="invalid-name")
    return check_session_name(asked)


def _earlier(user: User, key: str, digest: str) -> Run | None:
    found: Run | None = Run.objects.filter(owner=user, idempotency_key=key[:128]).first()
    if found and found.digest != digest:
        raise KeyReused(
            "This idempotency key belongs to another request, which created run {found}.", found=repr(found.name)
        )
    return found


def _write(user: User, wish: RunSpec, found: CheckedRun, digest: str, key: str | None, now: datetime) -> Run:
    document = found.document
    run: Run = Run.objects.create(
        name=found.name,
        kind=document.kind,
        owner=user,
        project=found.project,
        text=found.text,
        template=found.template,
        digest=digest,
        parameters=document.parameters,
        size=document.size,
        at_once=document.at_once,
        on_failure=document.on_failure,
        workspace=document.workspace,
        idempotency_key=key[:128] if key else None,
        created_at=now,
    )
    steps = [_row(run, place, step, found.specs[step.name]) for place, step in enumerate(document.steps)]
    Step.objects.bulk_create(steps)
    by_name = {step.name: step for step in steps}
    Edge.objects.bulk_create(
        Edge(step=by_name[step.name], on=by_name[on], when=when)
        for step in document.steps
        for on, when in step.after.items()
    )
    _write_tasks([(row, step.fan.indexes) for row, step in zip(steps, document.steps, strict=True)])
    return run


def _row(run: Run, place: int, step: StepDocument, spec: SessionSpec) -> Step:
    request, secrets = sealed_request(document_of(spec))
    return Step(
        run=run,
        name=step.name,
        place=place,
        request=request,
        secrets=secrets,
        size=step.fan.size,
        values=step.fan.values,
        at_once=step.fan.at_once,
        probe=step.fan.probe,
        give_up_after=step.fan.give_up_after,
        retry=step.retry,
        is_finally=step.is_finally,
    )


def _write_tasks(steps: list[tuple[Step, list[int]]]) -> None:
    rows = [(step.pk, place, index) for step, indexes in steps for place, index in enumerate(indexes)]
    insert_rows(
        Task._meta.db_table,
        {
            "id": [uuid.uuid4() for _ in rows],
            "step_id": [row[0] for row in rows],
            "place": [row[1] for row in rows],
            "index": [row[2] for row in rows],
            "state": str(State.WAITING),
            "attempt": 0,
            "growths": 0,
            "is_excused": False,
            "code": "",
            "cause": "",
        },
    )


def _kept(wish: RunSpec, said: Mapping[str, Any], kind: str) -> str:
    """Return the text as it was sent, or, where it holds values that look like secrets, written anew without them."""
    kept = with_secret_parameters(said) if kind == Run.Kind.PIPELINE else without_secrets(said)
    return wish.text if wish.text and kept == said else written(kept)


def launch_with_retries(
    user: User, spec: SessionSpec, retry: Any, *, idempotency_key: str | None, now: datetime
) -> tuple[ComputeSession, bool]:
    """Return the session of the newest try, and whether the run is new. Raises as ``create_run``, and Conflict where
    its first session is not allowed yet: the run goes on trying."""
    run, is_new = create_run(user, array_of(spec, 1, retries=retry), idempotency_key=idempotency_key, now=now)
    if is_new:
        act(read_runs(now, [run.pk]))
    task = Task.objects.select_related("session", "step").get(step__run=run)
    if task.session is None:
        text = Message("Run {name} was created, but its session waits: {why}", name=run.name, why=task.step.message)
        raise Conflict(text, code="session-waits", run=str(run.pk))
    return task.session, is_new

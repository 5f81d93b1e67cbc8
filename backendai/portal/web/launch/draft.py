"""The draft of a launch: the values with which the form opens.

It is empty, or like a recent launch, a template, a session or an array; the page's address changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

from backendai.base.core.errors import NotFound, UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.acting import owner_named, people_to_act_for, projects_to_act_in
from backendai.domain.accounts.models import Project, User
from backendai.domain.catalog.models import Image, ResourcePreset
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.recent import parameters_of, recent_launch
from backendai.domain.compute.services.requests.session_files import launch_files_of
from backendai.domain.compute.spec_document import upgraded
from backendai.domain.compute.status import Status
from backendai.domain.pipelines.documents.secrets import Secrets, opened_files, opened_request
from backendai.domain.pipelines.documents.stored import kept_document
from backendai.domain.pipelines.models import Run, Step
from backendai.domain.templates.documents import parts_of
from backendai.domain.templates.services.launching import from_template, version_named
from backendai.portal.web.frame.requests import PageRequest
from backendai.portal.web.launch.field_table import OF_ONE_OWNER
from backendai.portal.web.launch.fields.file_fields import FileRow, rows_of_files
from backendai.portal.web.launch.fields.matrix_field import matrix_text
from backendai.portal.web.launch.fields.type_fields import FOR_ONESELF, LONGEST_ADDRESS
from backendai.portal.web.launch.form import LaunchForm
from backendai.portal.web.launch.values import files_in, free_name, initial_of

FROM, PREFIX, LIKE_RUN = "from", "p.", "like_run"


@dataclass(frozen=True, slots=True)
class LaunchDraft:
    """The values with which the launch form opens.

    ``source``: name of the recent launch or template that it repeats; empty: none. ``gone``: why a field's value can no
    longer be used; ``notes``: hints for the user; ``locked``: keys that the template fixes.
    """

    owner: User
    initial: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    gone: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    is_template: bool = False
    locked: Sequence[str] = ()

    def leave_empty(self, form: forms.Form, sent: MultiValueDict[str, str]) -> None:
        """Remove values that no longer exist from the form data. A browser would send the first choice instead."""
        for name in self.gone.keys() & {"image", "project", "resource_group"}:
            sent.setlist(name, [])
            cast(Any, form.fields[name]).empty_label = _("Choose one")

    def explain(self, form: forms.Form, chosen: Collection[str]) -> None:
        """Replace errors of the form by the reasons in ``gone``, except for fields that were ``chosen`` since."""
        for name, text in self.gone.items():
            if name in form.errors or (name == "preset" and name not in chosen):
                form.errors[name] = form.error_class([text])


def draft_of(request: PageRequest) -> LaunchDraft:
    """Return the draft that the request names; without one, an empty draft for the requested owner.

    A form that was sent brings its own values; one whose owner has changed keeps those that belong to no owner.
    """
    if request.method != "POST" and (found := _from_template(request) or _from_recent(request)):
        return found
    owner = asked_owner(request).owner
    if request.POST.get("go") == "owner":
        return LaunchDraft(owner, kept_for_another(request.POST))
    return LaunchDraft(owner, _like_run(request) or _like_session(request))


def _from_template(request: PageRequest) -> LaunchDraft | None:
    """Return the draft for ``?from=`` and ``?p.NAME=``; None without a template, or with a message if it is refused."""
    if FROM not in request.GET:
        return None
    try:
        return template_draft(request.GET, request.user)
    except UserError as error:
        messages.error(request, in_words(error.message))
        return None


def _from_recent(request: PageRequest) -> LaunchDraft | None:
    try:
        record = recent_launch(request.user, UUID(request.GET.get("recent", "")))
    except (ValueError, NotFound):
        return None
    found = _repeated(record.document, record.name, request.user)
    if run_id := record.document.get("files_of_run"):
        found.initial["files"] = files_of_run(run_id, request.user) or found.initial["files"]
    return found


def template_draft(query: QueryDict, actor: User) -> LaunchDraft:
    """Return the draft for ``?from=`` and ``?p.NAME=``.

    Raises NotFound for a template that is not visible, and UserError for an invalid parameter.
    """
    given = {name.removeprefix(PREFIX): query[name] for name in query if name.startswith(PREFIX)}
    version = version_named(actor, query.get(FROM, ""))
    made = from_template(version, given, {}, secrets=False)
    parts = parts_of(version.document)
    secrets = [one for one in parts.parameters.values() if one.is_secret]
    document = _project(_as_typed(made.document, {one.variable for one in secrets}), actor)
    found = _repeated(upgraded(document), str(version), actor)
    found.initial["template"] = f"{version.template_id}@{version.number}"
    notes = [
        _("Type the value of %(name)s in the variable %(variable)s.") % {"name": one.label, "variable": one.variable}
        for one in secrets
    ]
    return replace(found, notes=notes, is_template=True, locked=parts.locked)


def _as_typed(document: dict[str, Any], secret: set[str]) -> dict[str, Any]:
    """Return the document without values for variables of secret parameters, which the user types."""
    environ = {name: text for name, text in document.get("environ", {}).items() if text is not None or name in secret}
    return {**document, "environ": environ}


def _project(document: dict[str, Any], actor: User) -> dict[str, Any]:
    """Return the document with the id of its project, as the form needs it."""
    named = str(document.get("project") or "")
    try:
        UUID(named)
    except ValueError:
        found = Project.objects.usable_by(actor).filter(name=named).first() if named else None
        document = {key: value for key, value in document.items() if key != "project"}
        document |= {"project": str(found.pk)} if found else {}
    return document


def _repeated(document: Mapping[str, Any], name: str, actor: User) -> LaunchDraft:
    """Return the draft that repeats a request, for its owner and with a free name."""
    owner = _owner(document, actor)
    gone = gone_in(document, actor, owner or actor)
    if owner is None:
        gone["owner"] = _("The original owner no longer exists, or you may not launch for them.")
    initial = initial_of({key: value for key, value in document.items() if key not in gone})
    initial["files"] = _files(document, actor)
    if wanted := initial.get("name"):
        initial["name"] = free_name(owner or actor, wanted, int(initial.get("count") or 1))
    return LaunchDraft(owner or actor, initial, name, gone, list(_notes(document)))


def gone_in(said: Mapping[str, Any], actor: User, owner: User) -> dict[str, str]:
    """Return by field the objects of a request that no longer exist for this owner, with the reason.

    One query for each named object.
    """
    named: dict[str, tuple[Callable[[str], QuerySet[Any]], str]] = {
        "image": (
            lambda name: Image.objects.usable_by(owner).named(name),
            _("Image %(name)s no longer exists, or is not open to you."),
        ),
        "resource_group": (
            lambda name: ResourceGroup.objects.visible_to(owner).filter(is_active=True, name=name),
            _("Resource group %(name)s no longer exists, or is not open to you."),
        ),
        "preset": (
            lambda name: ResourcePreset.objects.visible_to(owner).filter(name=name),
            _("Preset %(name)s no longer exists; its amounts are filled in."),
        ),
        "project": (
            lambda name: projects_to_act_in(actor, owner).filter(pk=name),
            _("Its project no longer exists, or you are not a member."),
        ),
    }
    return {
        field: text % {"name": name}
        for field, (find, text) in named.items()
        if (name := said.get(field)) and not find(name).exists()
    }


def _files(said: Mapping[str, Any], actor: User) -> list[FileRow]:
    """Return the files with their contents, if the session that had them still exists."""
    found = launch_files_of(said["files_of"], actor) if "files_of" in said else []
    kept = {row.path: row for row in rows_of_files(found)}
    return files_in(said, kept)


def _owner(said: Mapping[str, Any], actor: User) -> User | None:
    if "owner" not in said:
        return actor
    found: User | None = people_to_act_for(actor).filter(pk=UUID(said["owner"])).first()
    return found


def _notes(said: Mapping[str, Any]) -> Iterator[str]:
    parts = [said, *said.get("roles", {}).values()]
    empty = list(
        dict.fromkeys(name for part in parts for name, value in part.get("environ", {}).items() if value is None)
    )
    if empty:
        yield _("Enter these values again; they look like secrets and are not stored: %(names)s.") % {
            "names": ", ".join(empty)
        }
    folders = [one["folder"] for one in said.get("mounts", ())]
    if len(set(folders)) < len(folders):
        yield _("A folder that was mounted in several parts is mounted in its first one alone.")
    if "starts_at" in said:
        yield _("The start time is not kept: choose another one, or the session starts as soon as possible.")


def _like_session(request: PageRequest) -> dict[str, Any]:
    """Return the form's values for the session in ``?like=``, which a pending one is replaced by; empty without one."""
    model = session_like(request)
    if model is None:
        return {}
    return initial_of(parameters_of(model)) | {
        "depends_on": list(model.depends_on.live().values_list("pk", flat=True)),
        "depends_when": model.depends_when,
        "replaces": model.pk if model.status == Status.PENDING else None,
        "files": rows_of_files(launch_files_of(model.pk, request.user)),
    }


def session_like(request: PageRequest) -> ComputeSession | None:
    """Return the session named by ``?like=`` if it is the user's own, as its variables may be secret."""
    own = ComputeSession.objects.filter(owner=request.user).select_related("image", "resource_group")
    try:
        found: ComputeSession | None = own.filter(pk=request.GET.get("like", "")).first()
    except (ValidationError, ValueError):
        return None
    return found


def _like_run(request: PageRequest) -> dict[str, Any]:
    """Return the form's values for the array in ``?like_run=``; empty unless it is the user's own, and the form can
    represent it."""
    step = _step_of(request.GET.get(LIKE_RUN, ""), request.user)
    if step is None or not is_of_the_form(step):
        return {}
    document = _request_of(step)
    values = initial_of(document) | {"files": files_in(document)}
    values["name"] = free_name(request.user, step.run.name)
    if step.values:
        values["matrix"] = _matrix_of(step)
    elif step.size > 1:
        values["array_size"] = step.size
    if times := step.retry.get("times"):
        values["retries"] = times
    return values


def files_of_run(run_id: str, actor: User) -> list[FileRow]:
    """Return the launch files of an array of the user; empty if it no longer exists."""
    step = _step_of(run_id, actor)
    return files_in(_request_of(step)) if step else []


def is_of_the_form(step: Step) -> bool:
    """Return whether the form can represent this array: its elements count from 0, or are combinations of values.

    One query.
    """
    if step.values:
        return _matrix_of(step) is not None
    last = step.tasks.order_by("-place").values_list("index", flat=True).first()
    return bool(last == step.size - 1)


def _matrix_of(step: Step) -> str | None:
    """Return the values of an array as the form's text; None if the form cannot represent them."""
    try:
        said = kept_document(step.run.text).get("matrix")
    except UserError:
        return None
    return matrix_text(said) if isinstance(said, Mapping) else None


def _step_of(run_id: str, actor: User) -> Step | None:
    own = Step.objects.filter(run__owner=actor, run__kind=Run.Kind.ARRAY).select_related("run")
    try:
        return own.filter(run=UUID(run_id)).first()
    except (ValueError, ValidationError):
        return None


def _request_of(step: Step) -> Mapping[str, Any]:
    """Return the request with its secrets and files, or without those that are no longer stored."""
    for opened in (opened_request, _with_files):
        try:
            return opened(step.request, step.secrets)
        except UserError:
            continue
    return step.request


def _with_files(request: Mapping[str, Any], secrets: Secrets) -> dict[str, Any]:
    return {**request, **opened_files(request, secrets)}


class RequestedOwner(NamedTuple):
    """The owner of the requested session. ``typed``: the given address; ``unknown``: its error."""

    owner: User
    typed: str
    unknown: str


def asked_owner(request: PageRequest) -> RequestedOwner:
    """Return the owner of the session that a launch request names.

    If the address is unknown, the owner is the requester, and ``unknown`` holds the error.
    """
    asked = request.POST if request.method == "POST" else request.GET
    typed = "" if asked.get("for_whom") == FOR_ONESELF else asked.get("owner", "")[:LONGEST_ADDRESS].strip()
    try:
        return RequestedOwner(owner_named(request.user, typed), typed, "")
    except UserError as error:
        return RequestedOwner(request.user, typed, error.message)


def kept_for_another(sent: QueryDict) -> dict[str, Any]:
    """Return initial values from a sent form after its owner has changed.

    Fields that belong to one owner are left out.
    """
    fields = {name: field for name, field in LaunchForm.base_fields.items() if name not in OF_ONE_OWNER}
    kept = {name: field.widget.value_from_datadict(sent, {}, name) for name, field in fields.items()}
    amounts = {name: text for name, text in sent.items() if name.startswith("slot.")}
    own = {} if sent.get("preset") else {"preset": ""}
    return kept | amounts | own

"""Creates, changes and deletes templates, and publishes their versions."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.errors import NotFound, UserError
from backendai.base.core.written_documents import LARGEST, written
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.launching.recent import parameters_of, recent_launch
from backendai.domain.compute.services.requests.session_files import launch_files_of
from backendai.domain.pipelines.documents.stored import copied_text
from backendai.domain.pipelines.models import Run
from backendai.domain.storage.models import Folder
from backendai.domain.templates.models import Template
from backendai.domain.templates.saving import document_to_save
from backendai.domain.templates.services.publishing import (
    activate_version,
    change_template,
    create_template,
    delete_template,
    publish_version,
)
from backendai.portal.web.account.menu import blame
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.gallery.forms import LookForm, TemplateForm, VersionForm
from backendai.portal.web.gallery.pages import SECTION, find_template, template_page
from backendai.portal.web.launch.fields.mount_fields import is_uuid

_BEGINNING = {"image": "python", "resources": {"cpu": 1, "mem": "1g"}}
_TRAINING = """\
params:
  lr: {type: number, default: 0.1, min: 0.0001, title: Learning rate}
  data: {type: folder, title: Data set}
image: python
type: batch
startup_command: python train.py --lr "$PARAM_LR"
resources: {cpu: 1, mem: 1g}
mounts:
- {folder: "${{ params.data }}", target: /data}
"""
_ACCESS = """\
params:
  model: {type: choice, choices: [small, large], default: small}
  hf_token: {type: secret, title: Token of Hugging Face}
image: python
resources: {cpu: 1, mem: 1g}
environ: {HF_TOKEN: "${{ params.hf_token }}", MODEL: "${{ params.model }}"}
"""
EXAMPLES = {
    "training": (_l("a number and a folder"), _TRAINING),
    "access": (_l("a choice and a secret"), _ACCESS),
}


@signed_in("GET", "POST")
def create(request: PageRequest) -> HttpResponse:
    """Show the form for a new template; on POST create it.

    A session, run, recent launch or template in the address fills the form.
    """
    form = TemplateForm(request.POST or None, user=request.user, initial=_initial(request))
    if request.method == "POST" and form.is_valid():
        try:
            made = create_template(request.user, form.wish(), form.cleaned_data["text"], now=timezone.now())
        except UserError as error:
            form.refuse(error)
        else:
            messages.success(request, _("Created template %(name)s.") % {"name": made.label})
            return redirect("web:template", made.pk)
    context = {"form": form, "examples": [(name, title) for name, (title, _text) in EXAMPLES.items()]} | SECTION
    return render(request, "web/gallery/new.html", context, status=422 if form.is_bound else 200)


@signed_in("GET", "POST")
def publish(request: PageRequest, template_id: UUID) -> HttpResponse:
    """Show the form for a new version; on POST publish it, and activate it if that is checked."""
    found = find_template(request, template_id, to_change=True)
    form = VersionForm(request.POST or None, initial={"text": found.current.text if found.current else ""})
    if request.method == "POST" and form.is_valid():
        said, now = form.cleaned_data, timezone.now()
        try:
            version = publish_version(request.user, found, said["text"], note=said["note"], now=now)
        except UserError as error:
            form.refuse(error)
        else:
            told = _("Published version %(number)s. Activate it to use it for new launches.")
            messages.success(request, told % {"number": version.number})
            return redirect("web:template", found.pk)
    context = {"form": form, "template": found} | SECTION
    return render(request, "web/gallery/publish.html", context, status=422 if form.is_bound else 200)


@signed_in("GET", "POST")
def change(request: PageRequest, template_id: UUID) -> HttpResponse:
    """Show the form for title, description, icon and deprecation reason; on POST save them."""
    found = find_template(request, template_id, to_change=True)
    now_said = {name: getattr(found, name) for name in ("title", "description", "icon", "deprecated")}
    form = LookForm(request.POST or None, initial=now_said)
    if request.method == "POST" and form.is_valid():
        try:
            change_template(request.user, found, form.cleaned_data, now=timezone.now())
        except UserError as error:
            blame(form, error)
        else:
            return redirect("web:template", found.pk)
    context = {"form": form, "template": found} | SECTION
    return render(request, "web/gallery/change.html", context, status=422 if form.is_bound else 200)


@signed_in("POST")
def activate(request: PageRequest, template_id: UUID) -> HttpResponse:
    """Make a version of the template the current one."""
    found = find_template(request, template_id, to_change=True)
    number = request.POST.get("version", "")
    try:
        activate_version(
            request.user, found, int(number) if number.isascii() and number.isdigit() else 0, now=timezone.now()
        )
    except UserError as error:
        return template_page(request, found, status=422, refusal=in_words(error.message))
    return redirect("web:template", found.pk)


@signed_in("POST")
def delete(request: PageRequest, template_id: UUID) -> HttpResponse:
    """Delete the template if that was confirmed. Running sessions continue."""
    found = find_template(request, template_id, to_change=True)
    if request.POST.get("confirm") != "delete":
        return redirect("web:template", found.pk)
    name = found.label
    delete_template(request.user, found)
    messages.success(request, _("Deleted template %(name)s.") % {"name": name})
    return redirect("web:templates")


def _files(request: PageRequest, session_id: UUID | str) -> dict[str, Any]:
    """Return the launch files of the user's own session; empty if they are too large for a document."""
    found = launch_files_of(session_id, request.user)
    if not found or sum(one.size for one in found) > LARGEST // 2:
        return {}
    return {"files": [{"path": one.path, "content": one.content} for one in found]}


def _with_folder_names(request: PageRequest, said: dict[str, Any]) -> dict[str, Any]:
    """Return the launch with its folders named, as nobody knows an id. One whose name is not unique keeps its id."""
    parts = [said, *said.get("roles", {}).values()]
    ids = {one["folder"] for part in parts for one in part.get("mounts", ()) if is_uuid(one["folder"])}
    if not ids:
        return said
    alike = Folder.objects.filter(pk__in=ids).values("name")
    offered = list(Folder.objects.offered_to(request.user).filter(name__in=alike).values_list("pk", "name"))
    number = Counter(name for _pk, name in offered)
    names = {str(pk): name for pk, name in offered if number[name] == 1}

    def named(part: dict[str, Any]) -> dict[str, Any]:
        mounts = [{**one, "folder": names.get(one["folder"], one["folder"])} for one in part.get("mounts", ())]
        start = {"start_in": names.get(part["start_in"], part["start_in"])} if part.get("start_in") else {}
        return part | ({"mounts": mounts} if mounts else {}) | start

    roles = {"roles": {name: named(role) for name, role in said["roles"].items()}} if said.get("roles") else {}
    return named(said) | roles


def _initial(request: PageRequest) -> dict[str, Any]:
    """Return the initial document of a new template. Ignores sources that are missing or not the user's own."""
    if (name := request.GET.get("example", "")) in EXAMPLES:
        return {"text": EXAMPLES[name][1]}
    try:
        if text := request.GET.get("session"):
            own = ComputeSession.objects.filter(owner=request.user).select_related("image", "resource_group")
            if (session := own.filter(pk=UUID(text)).first()) is not None:
                said = parameters_of(session) | _files(request, session.pk)
                return {"text": document_to_save(_with_folder_names(request, said)), "name": session.name}
        if text := request.GET.get("recent"):
            record = recent_launch(request.user, UUID(text))
            said = record.document | (
                _files(request, record.document["files_of"]) if "files_of" in record.document else {}
            )
            return {"text": document_to_save(_with_folder_names(request, said)), "name": record.name}
        if text := request.GET.get("run"):
            own_runs = Run.objects.filter(owner=request.user, kind=Run.Kind.PIPELINE)
            if (run := own_runs.filter(pk=UUID(text)).first()) is not None:
                return {"text": copied_text(run), "name": run.name}
        if text := request.GET.get("template"):
            rows = Template.objects.visible_to(request.user).select_related("current")
            if (one := rows.filter(pk=UUID(text)).first()) is not None and one.current:
                return {"text": one.current.text, "name": one.name, "icon": one.icon, "title": one.title}
    except (ValueError, NotFound):
        pass
    return {"text": written(_BEGINNING)}

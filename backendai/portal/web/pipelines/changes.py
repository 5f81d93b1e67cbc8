"""Launches a run from a document, and runs actions on runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from backendai.base.core.errors import BackendAIError, UserError
from backendai.base.core.written_documents import read_document
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext_lazy
from backendai.domain.accounts.rates import check_launch_rate
from backendai.domain.pipelines.documents.document import LARGEST, MOST_VALUES
from backendai.domain.pipelines.documents.stored import copied_text
from backendai.domain.pipelines.models import Run
from backendai.domain.pipelines.services.changing import cancel_run, pause_run, resume_run, retry_failed, set_at_once
from backendai.domain.pipelines.services.creating import RunSpec, check_run, create_run
from backendai.domain.templates.parameters import as_text, parameters_of
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.gallery.forms import PREFIX, ParametersForm
from backendai.portal.web.launch.draft import LIKE_RUN, is_of_the_form
from backendai.portal.web.pipelines.examples import EXAMPLES, KEYS, example_text
from backendai.portal.web.pipelines.pages import SECTION, find_run, run_page


class RunForm(forms.Form):
    """The document of a run, with its name."""

    name = forms.CharField(
        max_length=40,
        required=False,
        label=gettext_lazy("Name"),
        help_text=gettext_lazy("4 to 40 characters. Leave empty to generate a name."),
    )
    text = forms.CharField(
        max_length=LARGEST,
        label=gettext_lazy("Document"),
        strip=False,
        widget=forms.Textarea(
            attrs={"rows": 22, "class": "mono", "spellcheck": "false", "autocapitalize": "off", "wrap": "off"}
        ),
        help_text=gettext_lazy("YAML or JSON: steps, each with the keys of a launch request."),
    )

    def wish(self, parameters: Mapping[str, Any]) -> RunSpec:
        """Return the requested run."""
        said = self.cleaned_data
        return RunSpec(said["text"].replace("\r\n", "\n"), parameters=parameters, name=said["name"].strip())

    def refuse(self, error: UserError) -> None:
        """Add the error to its field, with the line of the document."""
        own = error.field == "name" and "line" not in error.details
        if line := error.details.get("line"):
            self.fields["text"].widget.attrs["data-line"] = line
        self.add_error("name" if own else "text", in_words(error.message))


@signed_in("GET", "POST")
def create(request: PageRequest) -> HttpResponse:
    """Show the form for a run's document and parameters; on POST launch it, or only check it (``go=check``)."""
    like = _like(request)
    form, found = RunForm(request.POST or None, initial={"text": _beginning(request, like)}), None
    asked = _parameters(request, str(form["text"].value() or ""), like)
    is_answered = not asked.fields or asked.is_bound
    if request.method == "POST" and form.is_valid() and is_answered and (not asked.fields or asked.is_valid()):
        wish = form.wish(asked.given() if asked.fields else {})
        try:
            if request.POST.get("go") == "check":
                found = check_run(request.user, wish)
            else:
                check_launch_rate(request.user, 1, now=timezone.now())
                return redirect("web:run", create_run(request.user, wish, now=timezone.now())[0].pk)
        except UserError as error:
            form.refuse(error)
    is_wrong = bool(form.errors or (asked.is_bound and asked.errors))
    context = {
        "form": form,
        "asked": asked,
        "found": found,
        "is_answered": is_answered,
        "examples": EXAMPLES,
        "keys": KEYS,
    } | SECTION
    return render(request, "web/pipelines/new.html", context, status=422 if is_wrong else 200)


@signed_in("GET")
def copy(request: PageRequest, run_id: UUID) -> HttpResponse:
    """Redirect to the form filled as the run was launched.

    An array that the launcher can show leads there, other runs to their document.
    """
    found = find_run(request, run_id)
    is_plain = found.kind == Run.Kind.ARRAY and is_of_the_form(found.steps.get())
    address = f"{reverse('web:launch')}?{LIKE_RUN}=" if is_plain else f"{reverse('web:run_new')}?like="
    return redirect(f"{address}{found.pk}")


@signed_in("POST")
def cancel(request: PageRequest, run_id: UUID) -> HttpResponse:
    """Cancel the run if that was confirmed."""
    if request.POST.get("confirm") != "cancel":
        return redirect("web:run", find_run(request, run_id).pk)
    return _done(request, run_id, lambda run: cancel_run(run, request.user, now=timezone.now()))


@signed_in("POST")
def pause(request: PageRequest, run_id: UUID) -> HttpResponse:
    """Pause the run: no more elements are launched."""
    return _done(request, run_id, lambda run: pause_run(run, request.user))


@signed_in("POST")
def resume(request: PageRequest, run_id: UUID) -> HttpResponse:
    """Resume a paused run."""
    return _done(request, run_id, lambda run: resume_run(run, request.user))


@signed_in("POST")
def at_once(request: PageRequest, run_id: UUID) -> HttpResponse:
    """Change the number of simultaneous sessions of the run; an empty field means no limit."""
    typed = request.POST.get("at_once", "").strip() or "0"
    number = int(typed) if typed.isascii() and typed.isdigit() and len(typed) < 8 else -1
    return _done(request, run_id, lambda run: set_at_once(run, request.user, number))


@signed_in("POST")
def retry(request: PageRequest, run_id: UUID) -> HttpResponse:
    """Retry the failed elements: all, or one element of a step."""
    step, index = request.POST.get("step", "")[:32], request.POST.get("index", "")
    indexes = [int(index)] if index.isascii() and index.isdigit() and len(index) < 8 else None
    return _done(
        request,
        run_id,
        lambda run: retry_failed(run, request.user, step=step, indexes=indexes, now=timezone.now()),
    )


def _done(request: PageRequest, run_id: UUID, action: Callable[[Run], Any]) -> HttpResponse:
    found = find_run(request, run_id)
    try:
        action(found)
    except BackendAIError as error:
        found.refresh_from_db()
        return run_page(request, found, status=409, refusal=in_words(error.message))
    return redirect("web:run", found.pk)


def _beginning(request: PageRequest, like: Run | None) -> str:
    """Return the initial document: the copy of a run, else an example."""
    return copied_text(like) if like else example_text(request.GET.get("example", ""), request.user)


def _like(request: PageRequest) -> Run | None:
    """Return the run to copy, if it is the user's own; else None."""
    try:
        found: Run | None = Run.objects.filter(owner=request.user, pk=UUID(request.GET.get("like", ""))).first()
    except ValueError:
        return None
    return found


def _parameters(request: PageRequest, text: str, like: Run | None) -> ParametersForm:
    """Return the form of a document's parameters; without fields for an unreadable document.

    The form is bound if the page has sent its fields.
    """
    try:
        declared = parameters_of(read_document(text, largest=LARGEST, most=MOST_VALUES).value.get("params"))
    except UserError:
        declared = {}
    usual = {name: one.default for name, one in declared.items() if one.default is not None}
    known = {name: value for name, value in (like.parameters if like else {}).items() if name in declared}
    initial = {f"{PREFIX}{name}": as_text(value) for name, value in (usual | known).items()}
    is_sent = any(name.startswith(PREFIX) for name in request.POST)
    data = request.POST if is_sent else None
    return ParametersForm(data, parameters=declared, user=request.user, secrets=True, initial=initial)

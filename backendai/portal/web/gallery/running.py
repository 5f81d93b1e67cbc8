"""*Start from template* for pipelines: enters the parameters, checks the run, and launches it."""

from __future__ import annotations

from uuid import UUID

from django import forms
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext_lazy
from backendai.domain.accounts.rates import check_launch_rate
from backendai.domain.pipelines.services.creating import LONGEST_NAME, RunSpec, check_run, create_run
from backendai.domain.templates.documents import parts_of
from backendai.domain.templates.models import Template, TemplateVersion
from backendai.domain.templates.parameters import as_text
from backendai.portal.web.frame.requests import PageRequest, signed_in
from backendai.portal.web.gallery.forms import PREFIX, ParametersForm
from backendai.portal.web.gallery.pages import SECTION, find_template


class NameForm(forms.Form):
    """The name of the run."""

    name = forms.CharField(
        max_length=LONGEST_NAME,
        required=False,
        label=gettext_lazy("Name"),
        help_text=gettext_lazy("4 to 40 characters. Leave empty to generate a name."),
    )


@signed_in("GET", "POST")
def start(request: PageRequest, template_id: UUID) -> HttpResponse:
    """Show the form for a pipeline's parameters; on POST launch its run, or only check it (``go=check``)."""
    template = find_template(request, template_id)
    if template.launches_sessions:
        return redirect("web:template_start", template.pk)
    version = _version(request, template)
    parameters = parts_of(version.document).parameters
    usual = {f"{PREFIX}{name}": as_text(one.default) for name, one in parameters.items() if one.default is not None}
    sent = request.POST or None
    asked = ParametersForm(sent, parameters=parameters, user=request.user, secrets=True, initial=usual)
    form, found, refusal = NameForm(sent), None, ""
    if sent and form.is_valid() and asked.is_valid():
        wish = RunSpec(
            template=f"{template.pk}@{version.number}", parameters=asked.given(), name=form.cleaned_data["name"].strip()
        )
        try:
            if request.POST.get("go") == "check":
                found = check_run(request.user, wish)
            else:
                check_launch_rate(request.user, 1, now=timezone.now())
                return redirect("web:run", create_run(request.user, wish, now=timezone.now())[0].pk)
        except UserError as error:
            refusal = in_words(error.message)
            if error.field == "name":
                form.add_error("name", refusal)
    context = {"template": template, "version": version, "form": form, "asked": asked, "found": found}
    context |= {"refusal": "" if form.errors else refusal} | SECTION
    is_wrong = bool(refusal or form.errors or asked.errors)
    return render(request, "web/gallery/run.html", context, status=422 if is_wrong else 200)


def _version(request: PageRequest, template: Template) -> TemplateVersion:
    """Return the version that the page showed, else the current one.

    So a launch uses the version that the user has seen.
    """
    number = request.POST.get("version", "")
    is_said = number.isascii() and number.isdigit() and len(number) < 8
    found: TemplateVersion | None = template.current
    if is_said:
        found = template.versions.filter(number=int(number)).first()
    if found is None:
        raise Http404
    found.template = template
    return found

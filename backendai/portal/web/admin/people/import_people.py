"""Imports people from a CSV file: shows the plan, then imports everything or nothing."""

from __future__ import annotations

import base64
from typing import Any

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.generic import TemplateView

from backendai.base.core.csv_cells import csv_lines
from backendai.base.core.errors import UserError
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy as _l
from backendai.domain.accounts.csv_people import COLUMNS, LARGEST_FILE, MOST_ROWS
from backendai.domain.accounts.invitation_links import link_of
from backendai.domain.accounts.roles import chooses_members
from backendai.domain.accounts.services import Link, Plan, import_people, plan_import
from backendai.portal.web.admin.access import PanelPage
from backendai.portal.web.admin.editing import show_error

_SHOWN = 200


class FileForm(forms.Form):
    """The CSV file to import."""

    file = forms.FileField(
        label=_l("CSV file"),
        widget=forms.ClearableFileInput(attrs={"accept": ".csv,text/csv"}),
        help_text=_l("UTF-8, separated by comma or semicolon, at most %(most_rows)s people.")
        % {"most_rows": f"{MOST_ROWS:,}"},
    )


class ImportPage(PanelPage, TemplateView):
    """Uploads a file, shows its plan, and imports it after confirmation.

    Nothing is stored between the steps: the page contains the file, which is checked again.
    """

    section = "import"
    title = _l("Import people")
    icon = "file-import"
    guide = "people"
    rule = staticmethod(chooses_members)
    template_name = "web/panel/import.html"

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the plan of the file, or import it after confirmation."""
        form = FileForm(request.POST, request.FILES)
        confirmed = request.POST.get("confirmed", "")
        try:
            content = _content(confirmed) if confirmed else self._uploaded(form)
            return self._done(content) if confirmed else self._preview(content)
        except UserError as error:
            if not form.errors or confirmed:
                form = FileForm({})
                form.errors.clear()  # nobody is told of the file that is not in it
                show_error(form, error)
            return self.render_to_response(self.get_context_data(form=form), status=422)

    def page_context(self) -> dict[str, Any]:
        """Return an empty form and what the file may contain."""
        return {"form": FileForm(), "columns": COLUMNS, "most_shown": _SHOWN, "sample": _sample()}

    def _uploaded(self, form: FileForm) -> bytes:
        if not form.is_valid():
            raise UserError(_("Choose a file."), field="file", code="no-file")
        file: UploadedFile = form.cleaned_data["file"]
        content: bytes = file.read(LARGEST_FILE + 1)
        return content

    def _preview(self, content: bytes, status: int = 200) -> HttpResponse:
        plan = plan_import(self.viewer, content)
        return self._show(plan, content, status)

    def _show(self, plan: Plan, content: bytes, status: int) -> HttpResponse:
        shown = {
            "plan": plan,
            "steps": plan.steps[:_SHOWN],
            "problems": plan.problems[:_SHOWN],
            "content": base64.b64encode(content).decode(),
        }
        return self.render_to_response(self.get_context_data(**shown), status=status)

    def _done(self, content: bytes) -> HttpResponse:
        plan, links = import_people(self.viewer, content, now=timezone.now())
        if plan.problems:
            return self._show(plan, content, 422)
        file = base64.b64encode(_links_file(links, self.request.build_absolute_uri("/")).encode()).decode()
        return self.render_to_response(self.get_context_data(plan=plan, done=True, links=links, links_file=file))


def _sample() -> str:
    """Return a sample CSV file with every column."""
    people = [
        {"email": "ada@lab.example", "full_name": "Ada Example", "project": "default", "role": "project-admin"},
        {"email": "ben@lab.example", "full_name": "Ben Example", "project": "default", "role": "member"},
    ]
    return "".join(csv_lines([COLUMNS, *([row.get(name, "") for name in COLUMNS] for row in people)]))


def _content(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise UserError(_("Choose the file again."), field="file", code="no-file") from error


def _links_file(links: list[Link], portal: str) -> str:
    """Return the invitation links as a CSV file. It is not stored."""
    head = ("email", "full_name", "project", "link", "valid_until")
    rows = [
        (row.email, row.full_name, row.project.name, link_of(link.text, portal), row.expires_at.isoformat())
        for link in links
        for row in [link.invitation]
    ]
    return "".join(csv_lines([head, *rows]))

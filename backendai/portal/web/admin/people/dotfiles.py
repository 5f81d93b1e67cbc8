"""The dotfiles of a project or a domain."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext_lazy as _l
from django.views.generic import TemplateView

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import Domain, Project
from backendai.domain.accounts.roles import Action, may_domain, may_project, rules_people
from backendai.domain.accounts.services.environments import (
    MOST_BYTES,
    MOST_DOTFILES,
    dotfiles_of,
    remove_dotfile,
    save_dotfile,
    size_of,
)
from backendai.portal.web.account.credential_forms import DotfileForm
from backendai.portal.web.admin.access import PanelPage
from backendai.portal.web.admin.editing import show_error


class FilesPage(PanelPage, TemplateView):
    """The base of pages with the dotfiles of one owner, and a form for a new file. Subclasses define ``owner``."""

    template_name = "web/panel/files.html"
    rule = staticmethod(rules_people)
    back: ClassVar[str]
    lead: ClassVar[Any]

    def owner(self) -> Project | Domain:
        """Return the owner of the files; 404 unless the user may change them."""
        raise NotImplementedError

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Save a file, or delete one."""
        owner = self.owner()
        if request.POST.get("action") == "delete":
            return self._delete(owner, request.POST.get("file", "")[:36])
        form = DotfileForm(request.POST)
        if form.is_valid():
            try:
                file = save_dotfile(self.viewer, owner, **form.cleaned_data)
            except UserError as error:
                show_error(form, error)
            else:
                text = _("Saved %(path)s. New sessions will have it.")
                messages.success(request, text % {"path": file.path})
                return redirect(request.path)
        return self.render_to_response(self.get_context_data(form=form), status=422)

    def page_context(self) -> dict[str, Any]:
        """Return the files, and a form with the file named by ``edit``."""
        owner = self.owner()
        files = list(dotfiles_of(owner))
        wanted = next((file for file in files if file.path == self.request.GET.get("edit")), None)
        initial = {name: getattr(wanted, name) for name in ("path", "permission", "content")} if wanted else {}
        return {
            "title": _("Files of %(owner)s") % {"owner": owner},
            "back_url": reverse(self.back, args=[owner.pk]),
            "back_text": str(owner),
            "lead": self.lead,
            "form": DotfileForm(initial=initial),
            "files": files,
            "used": sum(size_of(file.path, file.content) for file in files),
            "most_bytes": MOST_BYTES,
            "most_files": MOST_DOTFILES,
        }

    def _delete(self, owner: Project | Domain, file_id: str) -> HttpResponseBase:
        try:
            remove_dotfile(self.viewer, owner, file_id)
        except UserError as error:
            messages.error(self.request, in_words(error.message))
        except (ValueError, ValidationError) as error:
            raise Http404 from error
        return redirect(self.request.path)


class ProjectFiles(FilesPage):
    """The dotfiles of a project."""

    section = "projects"
    back = "manage:project"
    lead = _l(
        "Copied into the home folder of every session of the project, unless the owner has a file at the same path."
    )

    def owner(self) -> Project:
        found: Project = get_object_or_404(Project.objects.managed_by(self.viewer), pk=self.kwargs["pk"])
        if not may_project(self.viewer, Action.SET_DOTFILES, found):
            raise Http404
        return found


class DomainFiles(FilesPage):
    """The dotfiles of a domain."""

    section = "domains"
    back = "manage:domain"
    lead = _l(
        "Copied into the home folder of every session of the domain, unless the owner or the project has a "
        "file at the same path."
    )

    def owner(self) -> Domain:
        found: Domain = get_object_or_404(Domain.objects.visible_to(self.viewer), pk=self.kwargs["pk"])
        if not may_domain(self.viewer, Action.SET_DOTFILES, found):
            raise Http404
        return found

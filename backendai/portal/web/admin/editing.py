"""Base classes of the panel's pages that change something: forms and confirmations."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _l
from django.views.generic import TemplateView

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.activity.changes import delete_object, save_form
from backendai.portal.web.admin.access import PanelPage
from backendai.portal.web.admin.forms import EditForm


class FormPage(PanelPage, TemplateView):
    """A page with a form.

    ``object`` is None for a new row. Subclasses set ``form_class``, ``model``, ``audit_name``, ``list_address``,
    ``title`` and ``submit_label``, with ``delete_address`` also ``delete_label``. They override ``save`` to use a
    service; it may raise UserError that names a field.
    """

    template_name = "web/panel/form.html"
    form_class: ClassVar[type[EditForm]]
    model: ClassVar[type[Model]]
    audit_name: ClassVar[str]
    audited_fields: ClassVar[Collection[str]] = ()
    list_address: ClassVar[str]
    delete_address = ""
    submit_label: str | Promise  # verb and object, such as "Save group"
    delete_label: str | Promise = ""
    lead: str | Promise = ""
    object: Any = None

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        self.object = self.find()
        return self.render_to_response(self.get_context_data(form=self.make_form()))

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Save the form, or show it again with its errors. The row is locked until it is saved."""
        with transaction.atomic():
            self.object = self.find(for_update=True)
            form = self.make_form(request.POST)
            saved = self._saved(form)
            if saved is None:
                transaction.set_rollback(True)
        if saved is None:
            return self.render_to_response(self.get_context_data(form=form), status=422)
        messages.success(request, self.success_text(saved))
        for note in self.notes(saved):
            messages.warning(request, note)
        return redirect(self.success_url(saved))

    def notes(self, saved: Any) -> list[str]:
        """Return warnings about the saved row."""
        return []

    def get_queryset(self) -> QuerySet[Any]:
        """Return the rows that this user may change."""
        return self.model._default_manager.all()

    def find(self, *, for_update: bool = False) -> Any:
        """Return the row in the address, or None for a new one."""
        if "pk" not in self.kwargs:
            return None
        rows = self.get_queryset()
        return get_object_or_404(rows.select_for_update(of=("self",)) if for_update else rows, pk=self.kwargs["pk"])

    def make_form(self, data: Any = None) -> EditForm:
        """Return the form; with ``data`` it is bound."""
        return self.form_class(data, instance=self.object)

    def save(self, form: EditForm) -> Any:
        """Save the valid form with an audit entry; return the row."""
        return save_form(self.viewer.pk, form, self.audit_name, only=self.audited_fields)

    def success_text(self, saved: Any) -> str:
        """Return the message after saving."""
        return _("%(saved)s is saved.") % {"saved": saved}

    def success_url(self, saved: Any) -> str:
        """Return the address to redirect to after saving."""
        return reverse(self.list_address)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context of the form page."""
        shown = {
            "title": self.title if self.object is None else str(self.object),
            "object": self.object,
            "list_url": reverse(self.list_address),
            "delete_url": reverse(self.delete_address, args=[self.object.pk]) if self._may_delete() else "",
            "delete_label": self.delete_label,
            "submit_label": self.submit_label,
            "lead": self.lead,
        }
        return super().get_context_data(**(shown | kwargs))

    def _may_delete(self) -> bool:
        return bool(self.delete_address and self.object is not None)

    def _saved(self, form: EditForm) -> Any:
        if not form.is_valid():
            return None
        try:
            with transaction.atomic():
                return self.save(form)
        except UserError as error:
            show_error(form, error)
            return None


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A reason that prevents an action, and the page where it can be changed."""

    words: str
    url: str = ""


class ConfirmPage(PanelPage, TemplateView):
    """A confirmation before an action.

    Subclasses define ``question``, ``consequences``, ``submit_label`` and ``act``, which runs the action.
    ``typed_word`` is a word that the user must type for an action that cannot be undone.
    """

    template_name = "web/panel/confirm.html"
    model: ClassVar[type[Model]]
    list_address: ClassVar[str]
    submit_label: str | Promise  # verb and object
    is_dangerous = True
    object: Any = None

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        self.object = get_object_or_404(self.get_queryset(), pk=self.kwargs["pk"])
        return self.render_to_response(self.get_context_data())

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Run the action and redirect, or show the confirmation again with the error."""
        self.object = get_object_or_404(self.get_queryset(), pk=self.kwargs["pk"])
        if (word := self.typed_word()) and request.POST.get("typed", "").strip() != word:
            return self._again(_("Type %(word)s exactly as shown.") % {"word": word})
        try:
            done = self.act()
        except UserError as error:
            return self._again(in_words(error.message))
        messages.success(request, done)
        return redirect(self.success_url())

    def get_queryset(self) -> QuerySet[Any]:
        """Return the rows on which this user may run the action."""
        return self.model._default_manager.all()

    def question(self) -> str:
        """Return the question that the page asks."""
        raise NotImplementedError

    def consequences(self) -> list[str]:
        """Return the consequences of the action, a sentence each."""
        return []

    def obstacles(self) -> list[Obstacle]:
        """Return the obstacles of the action; with any, the page has no button."""
        return []

    def typed_word(self) -> str:
        """Return the word that the user must type; empty: none."""
        return ""

    def act(self) -> str:
        """Run the action; return the message for the page. Raises UserError if it is not possible."""
        raise NotImplementedError

    def success_url(self) -> str:
        """Return the address to redirect to after the action."""
        return reverse(self.list_address)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context of the confirmation."""
        shown = {
            "object": self.object,
            "question": self.question(),
            "consequences": self.consequences(),
            "obstacles": self.obstacles(),
            "typed_word": self.typed_word(),
            "submit_label": self.submit_label,
            "is_dangerous": self.is_dangerous,
            "back_url": self.success_url(),
        }
        return super().get_context_data(**(shown | kwargs))

    def _again(self, problem: str) -> HttpResponse:
        return self.render_to_response(self.get_context_data(problem=problem), status=422)


class DeletePage(ConfirmPage):
    """A confirmation before deleting a row. Subclasses override ``delete`` if a service checks the uses of the row."""

    audit_name: ClassVar[str]
    title = _l("Delete")
    delete: ClassVar[Callable[[Any, Any, str], None]] = staticmethod(delete_object)

    def question(self) -> str:
        return _("Delete %(object)s?") % {"object": self.object}

    def act(self) -> str:
        """Delete the row; return the message for the page."""
        name = str(self.object)
        type(self).delete(self.viewer.pk, self.object, self.audit_name)
        return _("%(name)s is deleted.") % {"name": name}


def show_error(form: forms.BaseForm, error: UserError) -> None:
    """Add the error to the form: at the field that it names, else above the form."""
    form.add_error(field_of(form, error), in_words(error.message))


def field_of(form: forms.BaseForm, error: UserError) -> str | None:
    """Return the form's field that an error names, or None."""
    field: str | None = getattr(form, "shown_at", {}).get(error.field, error.field)
    return field if field in form.fields else None

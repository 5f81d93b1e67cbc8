"""Base classes of the panel's pages that change something: forms and confirmations."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.functional import Promise
from django.views.generic import TemplateView

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy as _l
from backendai.domain.accounts.models import Project, User
from backendai.domain.accounts.references import words_for
from backendai.domain.activity.changes import delete_object, save_form
from backendai.domain.catalog.models import ResourcePreset
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession
from backendai.portal.web.admin.access import PanelPage

# The lists in which the rows are found that use another; each page says by which filter.
_LISTS: dict[type[Model], str] = {
    User: "manage:users",
    Project: "manage:projects",
    Agent: "manage:agents",
    ResourcePreset: "manage:presets",
    ComputeSession: "web:sessions",
}


class RowPage(PanelPage, TemplateView):
    """The base of pages that change one row. ``object`` is None for a new one."""

    model: ClassVar[type[Model]]
    list_address: ClassVar[str]
    row_address: ClassVar[str] = ""  # the row's page, to which the page leads instead of to the list
    submit_label: str | Promise  # verb and object, such as "Save group"
    object: Any = None

    def get_queryset(self) -> QuerySet[Any]:
        """Return the rows that this user may see here."""
        return self.model._default_manager.all()

    def may_change(self, row: Any) -> bool:
        """Return whether this user may do this with a row of ``get_queryset``."""
        return True

    def find(self, *, for_update: bool = False) -> Any:
        """Return the row in the address, or None for a new one. Raises 404 unless the user may change it."""
        if "pk" not in self.kwargs:
            return None
        rows = self.get_queryset()
        row = get_object_or_404(rows.select_for_update(of=("self",)) if for_update else rows, pk=self.kwargs["pk"])
        if not self.may_change(row):
            raise Http404
        return row

    def address_of(self, row: Any) -> str:
        """Return the address to which the page leads: the row's page, or the list."""
        return reverse(self.row_address, args=[row.pk]) if self.row_address else reverse(self.list_address)


class FormPage(RowPage):
    """A page with a form.

    Subclasses set ``form_class``, ``model``, ``list_address``, ``title`` and ``submit_label``, with ``delete_address``
    also ``delete_label``. They override ``save`` to use a service; it may raise UserError that names a field. Without
    a service they set ``audit_name``. ``is_atomic = False``: the service asks another machine, or needs no row.
    """

    template_name = "web/panel/form.html"
    form_class: ClassVar[type[Any]]
    is_atomic: ClassVar[bool] = True
    audit_name: ClassVar[str]
    delete_address = ""
    delete_label: str | Promise = ""
    saved_text: Any = _l("%(saved)s is saved.")
    lead: str | Promise = ""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        self.object = self.find()
        return self.render_to_response(self.get_context_data(form=self.make_form()))

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Save the form, or show it again with its errors. The row is locked until it is saved."""
        with transaction.atomic() if self.is_atomic else nullcontext():
            self.object = self.find(for_update=self.is_atomic)
            form = self.make_form(request.POST)
            saved = self._saved(form)
            if saved is None and self.is_atomic:
                transaction.set_rollback(True)
        if saved is None:
            return self.render_to_response(self.get_context_data(form=form), status=422)
        return self.answer(form, saved)

    def answer(self, form: Any, saved: Any) -> HttpResponseBase:
        """Return the answer after saving: a redirect with messages."""
        messages.success(self.request, self.success_text(saved))
        for note in self.notes(saved):
            messages.warning(self.request, note)
        return redirect(self.address_of(saved))

    def show_once(self, form: Any, template: str, **shown: Any) -> HttpResponse:
        """Return a page with a secret that is not stored, so no redirect follows."""
        context = self.get_context_data(form=form, back_url=reverse(self.list_address), **shown)
        return self.response_class(self.request, [template], context)

    def notes(self, saved: Any) -> list[str]:
        """Return warnings about the saved row."""
        return []

    def make_form(self, data: Any = None) -> Any:
        """Return the form; with ``data`` it is bound."""
        return self.form_class(data, instance=self.object)

    def save(self, form: Any) -> Any:
        """Save the valid form with an audit entry; return the row."""
        return save_form(self.viewer.pk, form, self.audit_name)

    def success_text(self, saved: Any) -> str:
        """Return the message after saving."""
        text: str = self.saved_text % {"saved": saved}
        return text

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context of the form page."""
        may_delete = bool(self.delete_address and self.object is not None)
        shown = {
            "title": self.title if self.object is None else str(self.object),
            "object": self.object,
            "list_url": reverse(self.list_address),
            "delete_url": reverse(self.delete_address, args=[self.object.pk]) if may_delete else "",
            "delete_label": self.delete_label,
            "submit_label": self.submit_label,
            "lead": self.lead,
        }
        return super().get_context_data(**(shown | kwargs))

    def _saved(self, form: Any) -> Any:
        if not form.is_valid():
            return None
        try:
            with transaction.atomic() if self.is_atomic else nullcontext():
                return self.save(form)
        except UserError as error:
            show_error(form, error)
            return None


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A reason that prevents an action, and the page where it can be changed."""

    words: str
    url: str = ""


class ConfirmPage(RowPage):
    """A confirmation before an action.

    Subclasses define ``question_text``, ``consequences``, ``submit_label`` and ``act``, which runs the action.
    ``typed_word`` is a word that the user must type for an action that cannot be undone.
    """

    template_name = "web/panel/confirm.html"
    question_text: Any = ""  # with the gap %(object)s
    is_dangerous = True

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        self.object = self.find()
        return self.render_to_response(self.get_context_data())

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Run the action and redirect, or show the confirmation again with the error."""
        self.object = self.find()
        if (word := self.typed_word()) and request.POST.get("typed", "").strip() != word:
            return self._again(_("Type %(word)s exactly as shown.") % {"word": word})
        try:
            done = self.act()
        except UserError as error:
            return self._again(in_words(error.message))
        messages.success(request, done)
        return redirect(self.address_of(self.object))

    def question(self) -> str:
        """Return the question that the page asks."""
        text: str = self.question_text % {"object": self.object}
        return text

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
            "back_url": self.address_of(self.object),
        }
        return super().get_context_data(**(shown | kwargs))

    def _again(self, problem: str) -> HttpResponse:
        return self.render_to_response(self.get_context_data(problem=problem), status=422)


class ConfirmFormPage(ConfirmPage):
    """A confirmation with form fields."""

    is_dangerous = False
    form: forms.Form | None = None

    def make_form(self, data: Any = None) -> forms.Form:
        """Return the form of the confirmation; with ``data`` it is bound."""
        raise NotImplementedError

    def done(self, form: forms.Form) -> str:
        """Run the action with the values of the valid form; return the message for the page."""
        raise NotImplementedError

    def act(self) -> str:
        """Run the action if the form is valid. Raises UserError otherwise."""
        self.form = form = self.make_form(self.request.POST)
        if not form.is_valid():
            raise UserError(_("Check the marked fields."))
        try:
            return self.done(form)
        except UserError as error:
            if field_of(form, error) is None:
                raise
            show_error(form, error)
            raise UserError(_("Check the marked fields.")) from error

    def page_context(self) -> dict[str, Any]:
        return {"form": self.form or self.make_form()}


class DeletePage(ConfirmPage):
    """A confirmation before deleting a row. Subclasses override ``delete`` to use a service; else ``audit_name``."""

    audit_name: ClassVar[str]
    title: str | Promise = _l("Delete")
    question_text = _l("Delete %(object)s?")
    deleted_text: Any = _l("%(name)s is deleted.")

    def delete(self) -> None:
        """Delete the row. Raises UserError if its uses prevent that."""
        delete_object(self.viewer.pk, self.object, self.audit_name)

    def act(self) -> str:
        """Delete the row; return the message for the page."""
        name = str(self.object)
        self.delete()
        text: str = self.deleted_text % {"name": name}
        return text


@dataclass(frozen=True, slots=True)
class References:
    """The number of rows of one kind that use the row (None: not countable).

    Also has the address of their list (empty: none).
    """

    number: int | None
    words: str
    url: str


class DeleteUnlessUsed(DeletePage):
    """The base of deletions that a used row prevents.

    The page then names the uses, and offers to deactivate the row instead. ``filters``: by model the filter with which
    its list shows the rows that use this one (by its ``name`` or ``pk``).
    """

    template_name = "web/panel/delete.html"
    filters: ClassVar[dict[type[Model], tuple[str, str]]] = {}
    can_deactivate: ClassVar[bool] = True
    instead: str | Promise = ""  # advice for a used row that cannot be deactivated

    def counted(self) -> dict[type[Model], int]:
        """Return how many rows of each model use the row."""
        raise NotImplementedError

    def deactivate(self) -> None:
        """Deactivate the row by its service."""
        raise NotImplementedError

    def uses(self) -> list[References]:
        """Return the uses of the row for the page."""
        return [
            References(number, in_words(words_for(model, number)), self._where(model))
            for model, number in self.counted().items()
        ]

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Deactivate the row if the form asks for it; else delete it."""
        if request.POST.get("action") != "deactivate" or not self.can_deactivate:
            return super().post(request, *args, **kwargs)
        self.object = self.find()
        try:
            self.deactivate()
        except UserError as error:
            return self._again(in_words(error.message))
        messages.success(request, _("%(object)s is inactive now.") % {"object": self.object})
        return redirect(self.address_of(self.object))

    def page_context(self) -> dict[str, Any]:
        """Return the uses of the row, and whether it is or can be deactivated."""
        uses = self.uses()
        offers = self.can_deactivate and bool(uses)
        return {
            "uses": uses,
            "instead": self.instead,
            "is_inactive": offers and not self.object.is_active,
            "may_deactivate": offers and self.object.is_active,
        }

    def _where(self, model: type[Model]) -> str:
        if model not in self.filters:
            return ""
        name, attribute = self.filters[model]
        return f"{reverse(_LISTS[model])}?{urlencode({name: getattr(self.object, attribute)})}"


def show_error(form: forms.BaseForm, error: UserError) -> None:
    """Add the error to the form: at the field that it names, else above the form."""
    form.add_error(field_of(form, error), in_words(error.message))


def field_of(form: forms.BaseForm, error: UserError) -> str | None:
    """Return the form's field that an error names, or None."""
    field: str | None = getattr(form, "shown_at", {}).get(error.field, error.field)
    return field if field in form.fields else None

"""Pages of the panel that change something: a form, or a question that is answered with yes."""

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

from backendai.activity.changes import delete_object, save_form
from backendai.cluster.slot_types import unheard_of
from backendai.core.errors import UserError
from backendai.texts.messages import in_words
from backendai.texts.translation import gettext as _
from backendai.texts.translation import ngettext
from backendai.web.panel.access import PanelPage
from backendai.web.panel.forms import EditForm


class FormPage(PanelPage, TemplateView):
    """A form. ``object`` is None where something new is made.

    A page sets ``form_class``, ``model``, ``audit_name``, ``list_address`` and ``title``; a page whose object has
    verbs of its own overrides ``save``, and raises a UserError there that names the field.
    """

    template_name = "web/panel/form.html"
    form_class: ClassVar[type[EditForm]]
    model: ClassVar[type[Model]]
    audit_name: ClassVar[str]
    audited_fields: ClassVar[Collection[str]] = ()
    list_address: ClassVar[str]
    delete_address = ""
    submit_label: str | Promise = _l("Save")
    lead: str | Promise = ""
    object: Any = None

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show the form."""
        self.object = self.find()
        return self.render_to_response(self.get_context_data(form=self.make_form()))

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Save it, or show it again with what is wrong. The row is locked from looking to writing."""
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
        """Return what deserves a second look although it is saved."""
        return []

    def get_queryset(self) -> QuerySet[Any]:
        """Return the rows that this person may change."""
        return self.model._default_manager.all()

    def find(self, *, for_update: bool = False) -> Any:
        """Return the row named in the address, None where there is none: something new."""
        if "pk" not in self.kwargs:
            return None
        rows = self.get_queryset()
        return get_object_or_404(rows.select_for_update(of=("self",)) if for_update else rows, pk=self.kwargs["pk"])

    def make_form(self, data: Any = None) -> EditForm:
        """Return the form, filled with ``data`` when something was sent."""
        return self.form_class(data, instance=self.object)

    def save(self, form: EditForm) -> Any:
        """Write what a valid form says, with its audit entry; return the object."""
        return save_form(self.viewer.pk, form, self.audit_name, only=self.audited_fields)

    def success_text(self, saved: Any) -> str:
        """Return what is said after saving."""
        return _("%(saved)s is saved.") % {"saved": saved}

    def success_url(self, saved: Any) -> str:
        """Return where one goes then."""
        return reverse(self.list_address)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the form with what stands around it."""
        shown = {
            "title": self.title if self.object is None else str(self.object),
            "object": self.object,
            "list_url": reverse(self.list_address),
            "delete_url": reverse(self.delete_address, args=[self.object.pk]) if self._may_delete() else "",
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
    """What prevents an action, in words, and the page where it can be changed."""

    words: str
    url: str = ""


class ConfirmPage(PanelPage, TemplateView):
    """A question before an action. A page sets ``question``, ``consequences`` and ``submit_label``; ``act`` does it.

    ``typed_word`` asks to type a word first, where the action cannot be undone.
    """

    template_name = "web/panel/confirm.html"
    model: ClassVar[type[Model]]
    list_address: ClassVar[str]
    submit_label: str | Promise = _l("Continue")
    is_dangerous = True
    object: Any = None

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Ask."""
        self.object = get_object_or_404(self.get_queryset(), pk=self.kwargs["pk"])
        return self.render_to_response(self.get_context_data())

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Do it, or say why not."""
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
        """Return the rows that this person may do it to."""
        return self.model._default_manager.all()

    def question(self) -> str:
        """Return what is asked."""
        raise NotImplementedError

    def consequences(self) -> list[str]:
        """Return what will happen, a sentence each."""
        return []

    def obstacles(self) -> list[Obstacle]:
        """Return what must change first; with any, the page has no button."""
        return []

    def typed_word(self) -> str:
        """Return the word that must be typed; empty: none."""
        return ""

    def act(self) -> str:
        """Do it and return the sentence that says so; raises a UserError when it cannot be done."""
        raise NotImplementedError

    def success_url(self) -> str:
        """Return where one goes then."""
        return reverse(self.list_address)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the question with what stands around it."""
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
    """Asks before a row is deleted. ``delete`` is overridden where a verb checks what still uses it."""

    audit_name: ClassVar[str]
    title = _l("Delete")
    submit_label = _l("Delete")
    delete: ClassVar[Callable[[Any, Any, str], None]] = staticmethod(delete_object)

    def question(self) -> str:
        """Return what is asked."""
        return _("Delete %(object)s?") % {"object": self.object}

    def act(self) -> str:
        """Delete it."""
        name = str(self.object)
        type(self).delete(self.viewer.pk, self.object, self.audit_name)
        return _("%(name)s is deleted.") % {"name": name}


def notes_on_slots(slots: Collection[str]) -> list[str]:
    """Return a note of the slots that are unheard of: a limit of a misspelt one limits nothing."""
    if not (unknown := unheard_of(slots)):
        return []
    text = ngettext(
        "No agent has offered %(slots)s so far. Check the spelling, unless such an agent has yet to join.",
        "No agent has offered %(slots)s so far. Check the spelling, unless such agents have yet to join.",
        len(unknown),
    )
    return [text % {"slots": ", ".join(unknown)}]


def show_error(form: forms.BaseForm, error: UserError) -> None:
    """Show a service's refusal at the field it names, or above the form."""
    form.add_error(field_of(form, error), in_words(error.message))


def field_of(form: forms.BaseForm, error: UserError) -> str | None:
    """Return the field of the form that a refusal speaks of; None when it is none of them."""
    field: str | None = getattr(form, "shown_at", {}).get(error.field, error.field)
    return field if field in form.fields else None

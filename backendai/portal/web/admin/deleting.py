"""Confirms the deletion of a row that other rows may use. Shows them first, with links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import Model
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import Project, User
from backendai.domain.accounts.references import words_for
from backendai.domain.catalog.models import ResourcePreset
from backendai.domain.cluster.models import Agent
from backendai.domain.compute.models import ComputeSession
from backendai.portal.web.admin.editing import DeletePage

# The lists in which the rows are found; each page says by which filter.
_LISTS: dict[type[Model], str] = {
    User: "manage:users",
    Project: "manage:projects",
    Agent: "manage:agents",
    ResourcePreset: "manage:presets",
    ComputeSession: "web:sessions",
}


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
        self.object = get_object_or_404(self.get_queryset(), pk=self.kwargs["pk"])
        try:
            self.deactivate()
        except UserError as error:
            return self._again(in_words(error.message))
        messages.success(request, _("%(object)s is inactive now.") % {"object": self.object})
        return redirect(self.success_url())

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context with the uses of the row."""
        uses = self.uses()
        offers = self.can_deactivate and bool(uses)
        shown = {
            "uses": uses,
            "is_inactive": offers and not self.object.is_active,
            "may_deactivate": offers and self.object.is_active,
        }
        return super().get_context_data(**(shown | kwargs))

    def _where(self, model: type[Model]) -> str:
        if model not in self.filters:
            return ""
        name, attribute = self.filters[model]
        return f"{reverse(_LISTS[model])}?{urlencode({name: getattr(self.object, attribute)})}"

"""The scheduling history of a session: filtered, sorted, in pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.utils.functional import lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from backendai.base.texts.messages import in_words
from backendai.base.texts.searching import rows_that_say
from backendai.domain.compute.models import ComputeSession, SchedulingRecord
from backendai.domain.compute.status import Outcome, Phase, Status
from backendai.domain.planning.steps import messages_of
from backendai.portal.web.frame.statuses import appearance_of, meaning_of

PAGE_SIZE = 10
ORDERS = ("-updated_at", "updated_at", "-created_at", "created_at")  # the first one is the usual one
_LAST_PAGE = 10_000


def _all_or(choices: Iterable[str], words: Mapping[str, str] | None = None) -> list[tuple[str, Any]]:
    return [("", gettext_lazy("any")), *((one, _said(one, words)) for one in choices)]


def _said_now(one: str, words: Mapping[str, str] | None) -> str:
    return in_words(words[one]) if words else appearance_of(one).word


_said = lazy(_said_now, str)  # the form is made once, and read in every language


def _words(**attrs: Any) -> forms.TextInput:
    return forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", **attrs})


class HistoryForm(forms.Form):
    """The filters of the history. An empty field filters nothing."""

    id = forms.UUIDField(label=gettext_lazy("ID"), required=False, widget=_words())
    phase = forms.ChoiceField(
        label=gettext_lazy("Phase"), required=False, choices=_all_or(Phase, {one: str(one.label) for one in Phase})
    )
    result = forms.ChoiceField(label=gettext_lazy("Result"), required=False, choices=_all_or(Outcome))
    from_status = forms.ChoiceField(label=gettext_lazy("From status"), required=False, choices=_all_or(Status))
    to_status = forms.ChoiceField(label=gettext_lazy("To status"), required=False, choices=_all_or(Status))
    error_code = forms.CharField(label=gettext_lazy("Error code"), required=False, max_length=64, widget=_words())
    message = forms.CharField(
        label=gettext_lazy("Message"),
        required=False,
        max_length=200,
        widget=_words(placeholder=gettext_lazy("contains")),
    )

    def narrow(self, records: QuerySet[SchedulingRecord]) -> QuerySet[SchedulingRecord]:
        """Return the rows that match the filters; no row if a filter is invalid. A filter of messages: one query."""
        if not self.is_valid():
            return records.none()
        given = {"uid" if name == "id" else name: value for name, value in self.cleaned_data.items() if value}
        wanted = given.pop("message", "")
        narrowed = records.filter(**given)
        return rows_that_say(narrowed, wanted, _sentences_of) if wanted else narrowed


def what_happened(record: SchedulingRecord) -> str:
    """Return a row of the history in one sentence."""
    return in_words(record.message) or meaning_of(record.from_status, record.to_status) or "–"


def _sentences_of(record: SchedulingRecord) -> list[str]:
    return [what_happened(record), *messages_of(record)]


@dataclass(frozen=True, slots=True)
class Sorting:
    """A sortable column: its current order, and the order that its button requests."""

    label: str
    name: str
    ordering: str

    @property
    def now(self) -> str:
        """The column's current order as in ``aria-sort``."""
        return {self.name: "ascending", f"-{self.name}": "descending"}.get(self.ordering, "none")

    @property
    def next(self) -> str:
        """The order that the button requests: the newest first, then the oldest first."""
        return self.name if self.ordering == f"-{self.name}" else f"-{self.name}"


def history_context(session: ComputeSession, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template context for the rows that the query ``asked`` requests; one query, two with ``message``."""
    form = HistoryForm(asked, auto_id="history-%s")
    ordering = next((one for one in (asked.get("sort"), asked.get("ordering")) if one in ORDERS), ORDERS[0])
    page = _number(asked.get("page"))
    tie = "-pk" if ordering.startswith("-") else "pk"
    first = (page - 1) * PAGE_SIZE
    rows = form.narrow(session.records.all()).order_by(ordering, tie)
    records = list(rows[first : first + PAGE_SIZE + 1]) if form.is_valid() else []
    return {
        "history_form": form,
        "records": records[:PAGE_SIZE],
        "ordering": ordering,
        "sortings": [Sorting(label, name, ordering) for label, name in _sorted_by()],
        "page": page,
        "has_more": len(records) > PAGE_SIZE,
        "is_narrowed": any(asked.get(name) for name in form.fields),
    }


def _sorted_by() -> tuple[tuple[str, str], ...]:
    return (_("Updated at"), "updated_at"), (_("Created at"), "created_at")


def _number(text: object) -> int:
    digits = str(text or "")
    return min(max(int(digits), 1), _LAST_PAGE) if digits.isascii() and digits.isdigit() and len(digits) < 9 else 1

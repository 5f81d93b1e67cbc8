"""Fields for high-performance computing: the number of threads that mathematical libraries start."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from backendai.domain.compute.services.agents.environ import THREAD_COUNTS
from backendai.portal.web.launch.steps import ignore_errors

AUTOMATIC, BY_HAND = "auto", "manual"
MOST_THREADS = 1000


def _number(label: str) -> forms.IntegerField:
    return forms.IntegerField(required=False, min_value=1, max_value=MOST_THREADS, initial=1, label=label)


class ThreadFields(forms.Form):
    """The numbers of threads: as many as the session has cores, or typed numbers."""

    threads = forms.ChoiceField(
        required=False,
        choices=[(AUTOMATIC, _("Automatic")), (BY_HAND, _("Set by hand"))],
        initial=AUTOMATIC,
        widget=forms.RadioSelect,
        label=_("Threads"),
    )
    omp_threads = _number("OMP_NUM_THREADS")
    openblas_threads = _number("OPENBLAS_NUM_THREADS")

    def clean(self) -> dict[str, Any] | None:
        """Ignore errors of numbers that are not used."""
        data = super().clean()
        if not self.is_by_hand():
            ignore_errors(self, "omp_threads", "openblas_threads")
        return data

    def is_by_hand(self) -> bool:
        """Return whether the user types the numbers."""
        return str(self["threads"].value()) == BY_HAND

    def thread_counts(self) -> dict[str, str]:
        """Return the environment variables with the typed numbers; empty if the session's cores decide."""
        if not self.is_by_hand():
            return {}
        numbers = (self.cleaned_data["omp_threads"], self.cleaned_data["openblas_threads"])
        return {name: str(number or 1) for name, number in zip(THREAD_COUNTS, numbers, strict=True)}

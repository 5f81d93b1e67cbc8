"""The fields of the first step: the kind of session, its name, and when a batch session runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, cast

from django import forms
from django.db.models import QuerySet
from django.utils import timezone

from backendai.base.core.durations import LATEST
from backendai.base.core.errors import UserError
from backendai.base.core.names import check_session_name
from backendai.base.core.session_kinds import KINDS, USUAL_KIND, kinds_with, launched_kinds
from backendai.base.texts.messages import in_words_lazy
from backendai.base.texts.translation import gettext_lazy as _
from backendai.domain.accounts.acting import owner_named
from backendai.domain.accounts.models import KeyPair, User
from backendai.domain.accounts.policies.duration_field import TimeSpanField
from backendai.domain.cluster.groups.session_defaults import HIGHEST_PRIORITY
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.requests.scheduling import USUAL_PRIORITY, check_length
from backendai.domain.compute.status import When
from backendai.domain.pipelines.elements import MOST_TASKS
from backendai.domain.pipelines.retries import MOST_TIMES
from backendai.portal.web.frame.kind_words import KindWords, kinds_to_launch
from backendai.portal.web.launch.fields.matrix_field import LONGEST, MatrixField, size_of
from backendai.portal.web.launch.steps import checked, ignore_errors

_WISHES = {
    "starts_at": _("Enter a start time or clear the box."),
    "batch_timeout": _("Enter a timeout or clear the box."),
}
_MATRIX = "lr = 0.1, 0.01\nseed = 1, 2, 3"
_ORDER = ("priority", "retry_on_agent_loss", "may_be_stopped", "depends_on")


class MomentInput(forms.DateTimeInput):
    """An input for a local time. The page's script shows a value with a time zone, as in an address."""

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        """Return the template context of the input."""
        if isinstance(value, str) and value.endswith("Z"):
            attrs, value = {**(attrs or {}), "data-moment": value}, ""
        return super().get_context(name, value, attrs)


class TypeFields(forms.Form):
    """Kind, name and command of a session; start time, time limit, priority and dependencies."""

    session_type = forms.ChoiceField(
        choices=launched_kinds(), initial=USUAL_KIND.name, widget=forms.RadioSelect, label=_("Type")
    )
    name = forms.CharField(
        required=False, label=_("Name"), help_text=_("4 to 64 characters. Leave empty to generate a name.")
    )
    startup_command = forms.CharField(
        required=False,
        label=_("Startup command"),
        help_text=_("Runs in a shell as soon as the session is ready; the session ends with it."),
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "data-code": True, "autocapitalize": "off"}),
    )
    array_size = forms.IntegerField(
        required=False,
        min_value=2,
        max_value=MOST_TASKS,
        label=_("Array size"),
        widget=forms.NumberInput(attrs={"inputmode": "numeric"}),
        help_text=_(
            "Runs the command so many times; $BACKENDAI_ARRAY_INDEX counts from 0. Leave empty to run it once."
        ),
    )
    matrix = MatrixField(
        required=False,
        max_length=LONGEST,
        strip=False,
        label=_("Values of an array"),
        widget=forms.Textarea(
            attrs={"rows": 2, "class": "mono", "spellcheck": "false", "autocapitalize": "off", "placeholder": _MATRIX}
        ),
        help_text=_(
            "Runs the command once for each combination. It reads the values as $PARAM_LR, $PARAM_SEED and so on; "
            "an array has 10,000 elements at most."
        ),
    )
    retries = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_TIMES,
        label=_("Retries"),
        widget=forms.NumberInput(attrs={"inputmode": "numeric"}),
        help_text=_(
            "Launches the command again so many times when it fails, 30 s later, then 1 min, 2 min and so on. "
            "The log of each attempt is kept. Leave empty for a single attempt."
        ),
    )
    starts_at = forms.DateTimeField(
        required=False,
        label=_("Earliest start"),
        widget=MomentInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        help_text=_("The session waits until then, and longer if resources are not free."),
    )
    batch_timeout = TimeSpanField(
        required=False,
        label=_("Timeout"),
        widget=forms.TextInput(attrs={"autocomplete": "off", "placeholder": _("such as 30m, 2h, 7d")}),
        help_text=_("Maximum run time. Setting one can let the session start earlier in groups with backfill."),
    )
    wished = forms.MultipleChoiceField(required=False, choices=[(name, name) for name in _WISHES])  # by a page's script
    priority = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=HIGHEST_PRIORITY,
        label=_("Priority"),
        error_messages={
            "invalid": _("Enter a whole number, such as 10."),
            "min_value": _("The lowest priority is %(limit_value)s."),
            "max_value": _("The highest priority is %(limit_value)s."),
        },
        widget=forms.NumberInput(attrs={"placeholder": str(USUAL_PRIORITY)}),
    )
    retry_on_agent_loss = forms.BooleanField(
        required=False,
        label=_("Restart on another agent if its agent fails"),
        help_text=_("The command starts from the beginning."),
    )
    may_be_stopped = forms.BooleanField(
        required=False,
        label=_("May be stopped"),
        help_text=_(
            "When it is stopped, also for a session of higher priority, the command gets SIGTERM and time to save its "
            "state in /home/work. It must then end with another exit code than 0, such as 75: 0 means that its work is "
            "done. Resumed, it starts again with these files; $BACKENDAI_RESUMED counts."
        ),
    )
    depends_on = forms.ModelMultipleChoiceField(
        ComputeSession.objects.none(), required=False, widget=forms.CheckboxSelectMultiple, label=_("Start after")
    )

    depends_when = forms.ChoiceField(
        required=False,
        choices=[(one.value, in_words_lazy(one.label)) for one in When],
        initial=When.SUCCESS,
        label=_("Start when"),
    )

    def offer_order(self, user: User, actor: User) -> None:
        """Offer the user's batch sessions that the actor may see as dependencies."""
        self.fields["priority"].help_text = _("0 to %(most)s, default %(usual)s; higher priorities start first.") % {
            "most": HIGHEST_PRIORITY,
            "usual": USUAL_PRIORITY,
        }
        cast(Any, self.fields["depends_on"]).queryset = _batch_sessions(user, actor)

    def clean_name(self) -> str:
        """Return the name. Raises ValidationError for an invalid one."""
        name = str(self.cleaned_data["name"]).strip()
        return checked(check_session_name, name) if name else ""

    def clean_startup_command(self) -> str:
        """Return the command with Unix line ends, as shells misread the Windows ones of browsers."""
        return str(self.cleaned_data["startup_command"]).replace("\r\n", "\n")

    def clean_starts_at(self) -> datetime | None:
        """Return the start time. Raises ValidationError if it is past and the kind uses it."""
        moment: datetime | None = self.cleaned_data["starts_at"]
        if moment and self.runs_program() and moment <= timezone.now():
            raise forms.ValidationError(_("The start time is in the past."), code="invalid-date")
        if moment and moment >= LATEST:
            raise forms.ValidationError(_("Write a time before the year 3000."), code="invalid-date")
        return moment

    def clean_batch_timeout(self) -> timedelta | None:
        """Return the time limit. Raises ValidationError for an invalid one."""
        timeout: timedelta | None = self.cleaned_data["batch_timeout"]
        return None if timeout is None else checked(check_length, timeout)

    def clean(self) -> dict[str, Any] | None:
        """Validate fields that depend on each other.

        An option that is on needs its value; an array has a size or values, not both. Ignores errors of fields that
        only batch sessions have.
        """
        data = super().clean()
        for name in self.cleaned_data.get("wished", ()):
            if not self[name].value():
                self.add_error(name, forms.ValidationError(_WISHES[name], code="required"))
        if self.cleaned_data.get("matrix") and self.cleaned_data.get("array_size"):
            text = _("The values make the elements: clear the array size, or the values.")
            self.add_error("array_size", forms.ValidationError(text, code="twice"))
        if self.runs_program() is False:
            ignore_errors(
                self, "startup_command", "array_size", "matrix", "retries", "starts_at", "batch_timeout", "depends_on"
            )
        return data

    def condition(self) -> str:
        """Return how the sessions before it must have ended; empty: the default, or there are none."""
        chosen = str(self.cleaned_data["depends_when"])
        return chosen if self.cleaned_data["depends_on"] and chosen != When.SUCCESS else ""

    def is_run(self) -> bool:
        """Return whether the command may run more than once: as elements, or with retries."""
        return any(self.cleaned_data.get(name) for name in ("array_size", "matrix", "retries"))

    def elements(self) -> int:
        """Return the number of elements of the array; 0 for none."""
        return self.cleaned_data.get("array_size") or size_of(self.cleaned_data.get("matrix") or {})

    def kinds(self) -> list[tuple[str, KindWords, bool, bool]]:
        """Return the kinds of sessions to choose from, as ``kinds_to_launch`` does."""
        return kinds_to_launch()

    @property
    def most_elements(self) -> int:
        """The largest number of elements of an array."""
        return MOST_TASKS

    def runs_program(self) -> bool | None:
        """Return whether the chosen kind runs a command; None while no kind is chosen."""
        kind = KINDS.get(self.cleaned_data.get("session_type", ""))
        return kind.runs_program if kind else None

    def demand_command(self) -> None:
        """Add an error for a batch session without a command. Only for a form that is about to be launched."""
        typed = self.cleaned_data.get("startup_command", "").strip()
        if self.runs_program() and not typed and not self.has_error("startup_command"):
            text = _("A batch session needs a command to run.")
            self.add_error("startup_command", forms.ValidationError(text, code="required"))

    def is_order_open(self) -> bool:
        """Return whether a field under "Order" has a value or an error."""
        return any(self[name].value() or self[name].errors for name in _ORDER)


def _batch_sessions(user: User, actor: User) -> QuerySet[ComputeSession]:
    own = ComputeSession.objects.visible_to(actor).filter(owner=user)
    return own.filter(session_type__in=kinds_with("has_result")).live().only("name", "status")


FOR_ONESELF = "me"
LONGEST_ADDRESS = 254


class OwnerFields(forms.Form):
    """The address of the owner, empty for the user. These fields are not written to the page's address."""

    owner = forms.CharField(
        max_length=LONGEST_ADDRESS, required=False, label=_("E-mail address of the owner"), widget=forms.EmailInput
    )
    access_key = forms.ChoiceField(
        required=False, label=_("Key pair"), help_text=_("The owner's key pair that the session counts against.")
    )

    def offer_key_pairs(self, user: User, actor: User) -> None:
        """Offer the active key pairs of another owner, the main one first.

        The user's own sessions count against the main one.
        """
        self._actor = actor
        pairs = [] if user.pk == actor.pk else list(KeyPair.objects.visible_to(user).main_first())
        if not pairs:
            del self.fields["access_key"]
            return
        names = [
            (pair.access_key, f"{pair.access_key} ({pair.name})" if pair.name else pair.access_key) for pair in pairs
        ]
        cast(Any, self.fields["access_key"]).choices = names

    def clean_owner(self) -> str:
        """Return the owner's address; empty for the user.

        Raises ValidationError unless the actor may launch sessions for this person.
        """
        typed = str(self.cleaned_data["owner"]).strip()
        if not typed or self.data.get("for_whom") == FOR_ONESELF:
            return ""
        try:
            owner_named(self._actor, typed)
        except UserError as error:
            raise forms.ValidationError(error.message, code=error.code) from None
        return typed

"""The form of a resource group with choices of strategies."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms

from backendai.base.core.messages import Message
from backendai.base.core.session_kinds import KINDS
from backendai.domain.cluster.groups.rules import SELECTION, SEQUENCE, strategies
from backendai.domain.cluster.models import DEFAULT_SELECTION, ResourceGroup, default_sequence, default_session_types


class SlotOrderField(forms.CharField):
    """A field for an ordered list of slots, separated by commas."""

    def prepare_value(self, value: Any) -> Any:
        """Return the text that the input shows."""
        return ", ".join(map(str, value)) if isinstance(value, list) else value

    def to_python(self, value: Any) -> list[str]:  # type: ignore[override]
        """Return the names of the slots."""
        return [name.strip() for name in str(value or "").split(",") if name.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the typed order differs from the initial one; its notation does not matter."""
        return self.to_python(data) != list(initial or [])


# How the page names and explains what the model calls otherwise.
_WORDS: dict[str, tuple[str, str]] = {
    "is_active": (
        Message("Accepts sessions"),
        Message("If off, nobody can launch here; pending and running sessions continue."),
    ),
    "is_public": (
        Message("Open to everyone"),
        Message("If on, every project may use it, and the two lists below are ignored."),
    ),
    "domains": (Message("Open to domains"), Message("All projects of these domains may use it.")),
    "projects": (Message("Open to projects"), Message("These projects may use it.")),
    "key_pairs": (Message("Open to key pairs"), Message("Sessions launched with these key pairs may use it.")),
    "is_default": (
        Message("Default group"),
        Message("Used when a launch names no group. Only one group can be the default."),
    ),
    "session_defaults": (
        Message("Defaults for launches"),
        Message(
            'As JSON: {"priority": 20, "batch_timeout": 7200, "shm": "256m", "environ": '
            '{"NAME": "value"}}. The time is in seconds, for batch sessions.'
        ),
    ),
    "retries_to_skip": (
        Message("Overtaking after"),
        Message(
            "When more than this many attempts have failed, other sessions may overtake one that does not fit. "
            "0: never. Typical: 10. With backfill this matters only for a session without a reserved start."
        ),
    ),
    "overtaking_limit": (
        Message("Maximum overtaking time"),
        Message("After this time, an overtaken session gets its place back."),
    ),
    "backfill": (
        Message("Backfill"),
        Message(
            "The first session in the queue gets a reserved start; others may overtake it if they end "
            "before. Helps only if sessions have a known end: a batch timeout, or a maximum lifetime."
        ),
    ),
    "preempt_after": (
        Message("Giving way after"),
        Message(
            "A session that waits for room stops sessions of lower priority that can be stopped and have run for this "
            "time; they are resumed by themselves. Empty: never."
        ),
    ),
    "usage_half_life": (
        Message("Usage half-life"),
        Message("For fair-share only: 1 to 365 days."),
    ),
    "slot_order": (Message("Most valuable slots"), ""),
    "max_kernels_per_agent": (
        Message("Maximum kernels per agent"),
        Message("Empty: no limit. Agents can have a limit of their own."),
    ),
    "device_allocation": (
        Message("Fractional devices"),
        Message("For slots that are allocated in fractions, such as cuda.shares."),
    ),
    "allow_fragmentation": (
        Message("Combine fractions of several devices"),
        Message("A fraction that is not free on any single device may be combined from several."),
    ),
    "pending_timeout": (
        Message("Maximum queue time"),
        Message("Sessions that are pending longer are cancelled, with this reason. 0: no limit."),
    ),
    "give_up_after": (Message("Give up after"), Message("Failed attempts to place a session. 0: never given up.")),
    "on_give_up": (
        Message("When giving up"),
        Message("What happens to the session then. A priority never falls below 0."),
    ),
    "pull_timeout": (
        Message("Pulling an image takes at most"),
        Message("Then the start counts as failed, and another agent is tried."),
    ),
    "create_timeout": (Message("Creating a container takes at most"), Message("As for pulling.")),
    "terminate_timeout": (
        Message("Termination takes at most"),
        Message("Then a container that does not end by itself is killed."),
    ),
    "max_retries": (
        Message("Retries of a start"),
        Message("When these fail too, the session ends in error. 0: no retry."),
    ),
    "app_domain": (
        Message("App domain"),
        Message(
            "For example gpu.apps.example.org; *.gpu.apps.example.org must resolve to the app proxy. "
            "Empty: the domain of the site. A change applies to apps that are opened from then on."
        ),
    ),
    "agent_lost_grace": (
        Message("Grace period for lost agents"),
        Message("From the moment the agent is shown as lost (after a minute). Then its sessions end with agent-lost."),
    ),
}


class GroupForm(forms.ModelForm):
    """A resource group. The choices of strategies come from the scheduler's tables."""

    sequence = forms.ChoiceField(
        label=Message("Which session starts next"), choices=lambda: _choices(SEQUENCE), initial=default_sequence
    )
    selection = forms.ChoiceField(
        label=Message("On which agent it starts"), choices=lambda: _choices(SELECTION), initial=DEFAULT_SELECTION
    )
    allowed_session_types = forms.MultipleChoiceField(
        label=Message("Session types"),
        choices=[(name, name) for name in KINDS],
        initial=default_session_types,
        widget=forms.CheckboxSelectMultiple,
    )
    slot_order = SlotOrderField(
        required=False,
        widget=forms.TextInput(attrs={"size": 60, "placeholder": "cuda.device, cpu, mem"}),
        help_text=Message("Slots, most valuable first, separated by commas; empty: default order."),
    )

    class Meta:
        model = ResourceGroup
        fields = "__all__"  # noqa: DJ007  (the fieldsets of the page say which are shown)
        widgets: ClassVar[dict[str, Any]] = {"session_defaults": forms.Textarea(attrs={"rows": 2, "cols": 60})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, (label, text) in _WORDS.items():
            if name in self.fields:
                self.fields[name].label = label
                self.fields[name].help_text = text or self.fields[name].help_text

    def clean_session_defaults(self) -> Any:
        """Return the defaults; an empty map for an empty field."""
        return self.cleaned_data["session_defaults"] or {}


def _choices(level: str) -> list[tuple[str, str]]:
    return [
        (name, view.label if view.label.startswith(name) else f"{name}: {view.label}" if view.label else name)
        for name, view in strategies(level).items()
    ]

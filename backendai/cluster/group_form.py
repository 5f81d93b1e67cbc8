"""The admin's form of a resource group: strategies to choose from, and what their options are."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms

from backendai.cluster.models import DEFAULT_SELECTION, ResourceGroup, default_sequence, default_session_types
from backendai.cluster.rules import SELECTION, SEQUENCE, strategies
from backendai.core.messages import Message
from backendai.core.session_kinds import KINDS
from backendai.scheduler.options import Option


class SlotOrderField(forms.CharField):
    """Slots in their order, separated by commas."""

    def prepare_value(self, value: Any) -> Any:
        """Return what the input shows."""
        return ", ".join(map(str, value)) if isinstance(value, list) else value

    def to_python(self, value: Any) -> list[str]:  # type: ignore[override]
        """Return the names."""
        return [name.strip() for name in str(value or "").split(",") if name.strip()]

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the order is another one, however it is written."""
        return self.to_python(data) != list(initial or [])


# How the page names and explains what the model calls otherwise.
_WORDS: dict[str, tuple[str, str]] = {
    "is_active": (Message("Takes sessions"), Message("Unticked, nobody can launch here; what waits or runs goes on.")),
    "is_public": (
        Message("Open to everybody"),
        Message("Ticked, every project may use it, and the two lists below mean nothing."),
    ),
    "domains": (Message("Open to domains"), Message("All projects of these domains may use it.")),
    "projects": (Message("Open to projects"), Message("These projects may use it.")),
    "key_pairs": (Message("Open to key pairs"), Message("Sessions launched with these key pairs may use it.")),
    "is_default": (
        Message("The default group"),
        Message("Chosen for whoever names none and may use it. The group that was it before is none then."),
    ),
    "session_defaults": (
        Message("What a launch gets that does not say it"),
        Message(
            'As JSON: {"priority": 20, "batch_timeout": 7200, "shm": "256m", "environ": '
            '{"NAME": "value"}}. The time is in seconds, for batch sessions.'
        ),
    ),
    "strategy_options": (Message("Options of the two strategies"), ""),
    "retries_to_skip": (
        Message("Let others pass after"),
        Message(
            "Tries in vain, after which a session that does not fit is pushed back behind the "
            "others. 0: never, so that nobody overtakes. Usual where small sessions shall not "
            "wait for a large one: 10."
        ),
    ),
    "overtaking_limit": (
        Message("Passed for at most"),
        Message("A session that others passed for so long gets its strict place back."),
    ),
    "backfill": (
        Message("Backfill"),
        Message(
            "The first in line gets a reserved start; others may pass it if they end before. "
            "Helps only where sessions have a known end: a batch timeout, or a longest run by "
            "policy."
        ),
    ),
    "usage_half_life": (
        Message("Past use is half forgotten after"),
        Message("For fair-share alone: 1 day to 365 days."),
    ),
    "slot_order": (Message("Most precious slots"), ""),
    "max_kernels_per_agent": (
        Message("Most kernels on one agent"),
        Message("Empty: no limit. An agent may have one of its own."),
    ),
    "device_allocation": (
        Message("Fractions of devices"),
        Message("For slots that are given in fractions, such as cuda.shares."),
    ),
    "allow_fragmentation": (
        Message("Put fractions together"),
        Message("A fraction that no single device has free may be taken from several."),
    ),
    "pending_timeout": (
        Message("Longest wait"),
        Message("A session that waits longer is cancelled, and says so. 0: it may wait for ever."),
    ),
    "give_up_after": (Message("Give up after"), Message("Tries in vain to place a session. 0: never given up.")),
    "on_give_up": (
        Message("When giving up"),
        Message("What becomes of the session then. A priority never falls below 0."),
    ),
    "pull_timeout": (
        Message("Fetching an image takes at most"),
        Message("Then the start counts as failed, and another agent is tried."),
    ),
    "create_timeout": (Message("Making a container takes at most"), Message("As for fetching.")),
    "terminate_timeout": (
        Message("Ending takes at most"),
        Message("Then a container that does not end by itself is killed."),
    ),
    "max_retries": (
        Message("Further tries of a start"),
        Message("When these fail as well, it ends in error. 0: one try alone."),
    ),
    "app_domain": (
        Message("Apps live under"),
        Message(
            "Such as gpu.apps.example.org; *.gpu.apps.example.org must lead to the app proxy. "
            "Empty: the site's domain. A change holds for apps that are opened from then on."
        ),
    ),
    "agent_lost_grace": (
        Message("An agent may be silent for"),
        Message("From when it counts as lost (a minute). Then its sessions end with agent-lost."),
    ),
}


class GroupForm(forms.ModelForm):
    """A resource group; every choice comes from the scheduler's own tables."""

    sequence = forms.ChoiceField(
        label=Message("Which session starts next"), choices=lambda: _choices(SEQUENCE), initial=default_sequence
    )
    selection = forms.ChoiceField(
        label=Message("On which agent it starts"), choices=lambda: _choices(SELECTION), initial=DEFAULT_SELECTION
    )
    allowed_session_types = forms.MultipleChoiceField(
        label=Message("Takes sessions of type"),
        choices=[(name, name) for name in KINDS],
        initial=default_session_types,
        widget=forms.CheckboxSelectMultiple,
    )
    slot_order = SlotOrderField(
        required=False,
        widget=forms.TextInput(attrs={"size": 60, "placeholder": "cuda.device, cpu, mem"}),
        help_text=Message("Slots, the most precious first, separated by commas; empty: the usual order."),
    )

    class Meta:
        model = ResourceGroup
        fields = "__all__"  # noqa: DJ007  (the fieldsets of the page say which are shown)
        widgets: ClassVar[dict[str, Any]] = dict.fromkeys(
            ("strategy_options", "session_defaults"), forms.Textarea(attrs={"rows": 2, "cols": 60})
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, (label, text) in _WORDS.items():
            if name in self.fields:
                self.fields[name].label = label
                self.fields[name].help_text = text or self.fields[name].help_text
        if "strategy_options" in self.fields:
            self.fields["strategy_options"].help_text = _options_text()

    def clean_strategy_options(self) -> Any:
        """Return no options when the field was left empty."""
        return self.cleaned_data["strategy_options"] or {}

    def clean_session_defaults(self) -> Any:
        """Return no defaults when the field was left empty."""
        return self.cleaned_data["session_defaults"] or {}


def _choices(level: str) -> list[tuple[str, str]]:
    return [
        (name, view.label if view.label.startswith(name) else f"{name}: {view.label}" if view.label else name)
        for name, view in strategies(level).items()
    ]


def _options_text() -> str:
    views = [*strategies(SEQUENCE).values(), *strategies(SELECTION).values()]
    texts = [
        Message("{name}: {option}", name=view.name, option=_option_text(option))
        for view in views
        for option in view.options
    ]
    if not texts:
        return Message("None of the strategies has any: leave it as it is.")
    return Message('As JSON, such as {"name": 1}. There are: {texts}.', texts=Message.joined(texts, "; "))


def _option_text(option: Option) -> str:
    return Message(
        "{option} ({kind}, usually {default}), {help}",
        option=option.name,
        kind=option.kind,
        default=option.default,
        help=option.help,
    )

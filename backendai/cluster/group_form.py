"""The admin's form of a resource group: strategies to choose from, and what their options are."""

from __future__ import annotations

from typing import Any

from django import forms

from backendai.cluster.models import DEFAULT_SELECTION, ResourceGroup, default_sequence, default_session_types
from backendai.cluster.rules import SELECTION, SEQUENCE, SESSION_TYPES, strategies
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


class GroupForm(forms.ModelForm):
    """A resource group; every choice comes from the scheduler's own tables."""

    sequence = forms.ChoiceField(
        label="Which session starts next", choices=lambda: _choices(SEQUENCE), initial=default_sequence
    )
    selection = forms.ChoiceField(
        label="On which agent it starts", choices=lambda: _choices(SELECTION), initial=DEFAULT_SELECTION
    )
    allowed_session_types = forms.MultipleChoiceField(
        choices=[(name, name) for name in SESSION_TYPES],
        initial=default_session_types,
        widget=forms.CheckboxSelectMultiple,
    )
    slot_order = SlotOrderField(
        required=False,
        widget=forms.TextInput(attrs={"size": 60, "placeholder": "cuda.device, cpu, mem"}),
        help_text="Slots, the most precious first, separated by commas; empty: the usual order.",
    )

    class Meta:
        model = ResourceGroup
        fields = "__all__"  # noqa: DJ007  (the fieldsets of the page say which are shown)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "strategy_options" in self.fields:
            self.fields["strategy_options"].help_text = _options_text()

    def clean_strategy_options(self) -> Any:
        """Return no options when the field was left empty."""
        return self.cleaned_data["strategy_options"] or {}


def _choices(level: str) -> list[tuple[str, str]]:
    return [
        (name, name if view.label in ("", name) else f"{name}: {view.label}")
        for name, view in strategies(level).items()
    ]


def _options_text() -> str:
    views = [*strategies(SEQUENCE).values(), *strategies(SELECTION).values()]
    texts = [f"{view.name}: {_option_text(option)}" for view in views for option in view.options]
    known = "; ".join(texts) or "none of the strategies has any"
    return f'As JSON, such as {{"name": 1}}. Options of the strategies: {known}.'


def _option_text(option: Option) -> str:
    return f"{option.name} ({option.kind}, usually {option.default}), {option.help}"

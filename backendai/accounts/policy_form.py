"""The form of a resource policy, with the words that people read beside its limits."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from django import forms

from backendai.accounts.amounts_field import AmountsField, SizeField
from backendai.accounts.duration_field import TimeSpanField
from backendai.accounts.models import PolicyDefault, ResourcePolicy
from backendai.accounts.services.policies import defaults_of, set_defaults

_WORDS = {
    "unnamed_slots": ("Of every other slot", "For slots that are not named above."),
    "max_sessions": ("Most sessions at once", "That hold slots. Empty: unlimited; 0: none may start."),
    "max_pending_sessions": ("Most sessions waiting", "A launch beyond it is refused. Empty: unlimited."),
    "max_priority": ("Highest priority", "0 to 100; sessions usually have 10. Empty: up to 100."),
    "max_kernels_per_session": ("Most kernels in one session", "Empty: up to 16."),
    "max_concurrent_logins": (
        "Most browsers signed in", "Of a user, by the user's and the domain's policy. Empty: unlimited."
    ),
    "max_customized_images": ("Most images of their own", "That one user may keep. Empty: unlimited."),
    "max_folders": ("Most folders", "Of one user or one project; folders in the trash do not count. Empty: unlimited."),
}  # fmt: skip


class PolicyForm(forms.ModelForm):
    """A resource policy. Where several hold for somebody, the tightest counts."""

    slots = AmountsField(
        label="Most held at once",
        help_text="Over all resource groups, as cpu=8, mem=64g, cuda.device=2. A slot with 0: none of it.",
    )
    max_pending_slots = AmountsField(
        label="Most asked for by waiting sessions", help_text="All that wait together; a launch beyond it is refused."
    )
    max_session_lifetime = TimeSpanField(
        required=False,
        label="Longest run",
        help_text="From a session's start; then it ends. What runs already keeps its end. Empty: unlimited.",
    )
    max_folder_bytes = SizeField(
        label="Most data in folders",
        help_text="The limits of all folders of one user or one project together, as 500g or 2t. Empty: unlimited.",
    )
    default_for = forms.MultipleChoiceField(
        required=False,
        choices=PolicyDefault.Holder.choices,
        widget=forms.CheckboxSelectMultiple,
        label="New ones get it",
        help_text="Takes the place of the policy that new ones of the kind got so far; nobody's policy changes.",
    )

    class Meta:
        model = ResourcePolicy
        fields: ClassVar[list[str]] = [
            "name", "slots", "unnamed_slots", "max_sessions", "max_pending_sessions", "max_pending_slots",
            "max_priority", "max_kernels_per_session", "max_session_lifetime", "max_concurrent_logins",
            "max_customized_images", "max_folders", "max_folder_bytes",
        ]  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, (label, text) in _WORDS.items():
            self.fields[name].label, self.fields[name].help_text = label, text
        if self.instance.pk:
            self.initial["default_for"] = defaults_of(self.instance)

    def clean_default_for(self) -> list[str]:
        """Return the kinds in one order."""
        return sorted(self.cleaned_data["default_for"])

    def _save_m2m(self) -> None:
        cast(Any, super())._save_m2m()
        set_defaults(self.instance, self.cleaned_data["default_for"])

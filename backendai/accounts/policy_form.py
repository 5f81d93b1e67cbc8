"""The form of a resource policy, with the words that people read beside its limits."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from django import forms

from backendai.accounts.amounts_field import AmountsField, SizeField
from backendai.accounts.duration_field import TimeSpanField
from backendai.accounts.models import PolicyDefault, ResourcePolicy
from backendai.accounts.services.policies import defaults_of, set_defaults
from backendai.core.messages import Message

_WORDS = {
    "unnamed_slots": (Message("Of every other slot"), Message("For slots that are not named above.")),
    "max_sessions": (
        Message("Most sessions at once"),
        Message("That hold slots. Empty: unlimited; 0: none may start."),
    ),
    "max_pending_sessions": (
        Message("Most sessions waiting"),
        Message("A launch beyond it is refused. Empty: unlimited."),
    ),
    "max_priority": (Message("Highest priority"), Message("0 to 100; sessions usually have 10. Empty: up to 100.")),
    "max_kernels_per_session": (Message("Most kernels in one session"), Message("Empty: up to 16.")),
    "max_concurrent_logins": (
        Message("Most browsers signed in"),
        Message("Of a user, by the user's and the domain's policy. Empty: unlimited."),
    ),
    "max_customized_images": (
        Message("Most images of their own"),
        Message("That one user may keep. Empty: unlimited."),
    ),
    "max_folders": (
        Message("Most folders"),
        Message("Of one user or one project; folders in the trash do not count. Empty: unlimited."),
    ),
}


class PolicyForm(forms.ModelForm):
    """A resource policy. Where several hold for somebody, the tightest counts."""

    slots = AmountsField(
        label=Message("Most held at once"),
        help_text="Over all resource groups, as cpu=8, mem=64g, cuda.device=2. A slot with 0: none of it.",
    )
    max_pending_slots = AmountsField(
        label=Message("Most asked for by waiting sessions"),
        help_text=Message("All that wait together; a launch beyond it is refused."),
    )
    max_session_lifetime = TimeSpanField(
        required=False,
        label=Message("Longest run"),
        help_text=Message("From a session's start; then it ends. What runs already keeps its end. Empty: unlimited."),
    )
    max_folder_bytes = SizeField(
        label=Message("Most data in folders"),
        help_text=Message(
            "The limits of all folders of one user or one project together, as 500g or 2t. Empty: unlimited."
        ),
    )
    default_for = forms.MultipleChoiceField(
        required=False,
        choices=PolicyDefault.Holder.choices,
        widget=forms.CheckboxSelectMultiple,
        label=Message("New ones get it"),
        help_text=Message(
            "Takes the place of the policy that new ones of the kind got so far; nobody's policy changes."
        ),
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

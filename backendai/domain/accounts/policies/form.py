"""The form of a resource policy, with help texts for its limits."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms

from backendai.base.core.messages import Message
from backendai.domain.accounts.models import PolicyDefault, ResourcePolicy
from backendai.domain.accounts.policies.amounts_field import AmountsField, LabelKeysField, SizeField
from backendai.domain.accounts.policies.duration_field import TimeSpanField
from backendai.domain.accounts.services.policies import defaults_of, set_defaults

_WORDS = {
    "unnamed_slots": (Message("Slots not listed"), Message("For slots that are not named above.")),
    "max_sessions": (
        Message("Maximum sessions"),
        Message("Sessions that hold slots. Empty: unlimited; 0: none can start."),
    ),
    "max_pending_sessions": (
        Message("Maximum pending sessions"),
        Message("Further launches are refused. Empty: unlimited."),
    ),
    "max_priority": (Message("Highest priority"), Message("0 to 100; sessions usually have 10. Empty: up to 100.")),
    "max_kernels_per_session": (Message("Maximum kernels per session"), Message("Empty: up to 16.")),
    "max_concurrent_logins": (
        Message("Maximum browsers signed in"),
        Message("Per user, by the user's and the domain's policy. Empty: unlimited."),
    ),
    "max_customized_images": (
        Message("Maximum own images"),
        Message("Images that one user may keep. Empty: unlimited."),
    ),
    "max_stopped_sessions": (
        Message("Maximum stopped sessions"),
        Message(
            "Per user, by the user's and the domain's policy. Beyond it, idle checkers and drains terminate. Empty: "
            "unlimited; 0: none can be stopped."
        ),
    ),
    "max_system_sessions": (
        Message("Maximum system sessions"),
        Message("For access to folders by SFTP; per user, by the user's and the domain's policy. Empty: 1."),
    ),
    "max_endpoints": (
        Message("Maximum endpoints"),
        Message("Inference endpoints, with stopped ones. Empty: unlimited; 0: none can be created."),
    ),
    "max_replicas_per_endpoint": (
        Message("Maximum replicas per endpoint"),
        Message("Highest maximum that an endpoint may have. Empty: up to 100."),
    ),
    "max_folders": (
        Message("Maximum folders"),
        Message("Per user or project; folders in the trash do not count. Empty: unlimited."),
    ),
}


class PolicyForm(forms.ModelForm):
    """The form of a resource policy. If several policies hold for a user, the strictest limit counts."""

    slots = AmountsField(
        label=Message("Maximum in use"),
        help_text="Over all resource groups, as cpu=8, mem=64g, cuda.device=2. A slot with 0: none of it.",
    )
    max_pending_slots = AmountsField(
        label=Message("Maximum requested by pending sessions"),
        help_text=Message("Sum over all pending sessions; further launches are refused."),
    )
    max_session_lifetime = TimeSpanField(
        required=False,
        label=Message("Maximum lifetime"),
        help_text=Message(
            "From the start of a session until it is ended. Running sessions keep their end. Empty: unlimited."
        ),
    )
    max_folder_bytes = SizeField(
        label=Message("Maximum data in folders"),
        help_text=Message(
            "Sum of the limits of all folders of one user or project, such as 500g or 2t. Empty: unlimited."
        ),
    )
    required_labels = LabelKeysField(
        label=Message("Required labels"),
        help_text=Message("Keys that each launch needs a label for, such as team, cost-center. Empty: none."),
    )
    default_for = forms.MultipleChoiceField(
        required=False,
        choices=PolicyDefault.Holder.choices,
        widget=forms.CheckboxSelectMultiple,
        label=Message("Default for new ones"),
        help_text=Message("Becomes the default for new ones. Existing assignments do not change."),
    )

    class Meta:
        model = ResourcePolicy
        fields: ClassVar[list[str]] = [
            "name", "slots", "unnamed_slots", "max_sessions", "max_pending_sessions", "max_pending_slots",
            "max_priority", "max_kernels_per_session", "max_session_lifetime", "max_concurrent_logins",
            "max_customized_images", "max_stopped_sessions", "max_system_sessions", "max_endpoints",
            "max_replicas_per_endpoint",
            "max_folders", "max_folder_bytes", "required_labels",
        ]  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, (label, text) in _WORDS.items():
            self.fields[name].label, self.fields[name].help_text = label, text
        if self.instance.pk:
            self.initial["default_for"] = defaults_of(self.instance)

    def clean_default_for(self) -> list[str]:
        """Return the kinds of holders, sorted."""
        return sorted(self.cleaned_data["default_for"])

    def save(self, commit: bool = True) -> ResourcePolicy:
        """Save the policy, then what it is the default for."""
        saved: ResourcePolicy = super().save(commit)
        set_defaults(saved, self.cleaned_data["default_for"])
        return saved

"""Fields of the owner: for whom an administrator launches the session, and the key pair that it counts against."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.utils.translation import gettext_lazy as _

from backendai.base.core.errors import UserError
from backendai.domain.accounts.acting import owner_named
from backendai.domain.accounts.models import KeyPair, User

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

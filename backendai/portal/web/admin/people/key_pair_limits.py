"""The limits of a user's key pair."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import Http404
from django.urls import reverse
from django.utils.translation import gettext_lazy as _l

from backendai.base.texts.translation import gettext as _
from backendai.domain.accounts.models import KeyPair, User
from backendai.domain.accounts.roles import Action, may_user, rules_people
from backendai.domain.accounts.services.key_pairs import limit_key_pair
from backendai.portal.web.admin.editing import FormPage
from backendai.portal.web.admin.forms import EditForm


class KeyPairLimitForm(EditForm):
    """The limits of a key pair; its owner sets the rest."""

    class Meta:
        model = KeyPair
        fields: ClassVar[list[str]] = ["policy", "rate_limit"]
        labels: ClassVar[dict[str, Any]] = {"policy": _l("Policy"), "rate_limit": _l("Signed requests in 15 minutes")}
        help_texts: ClassVar[dict[str, Any]] = {
            "policy": _l("Empty: no limits of its own; those of its owner, project and domain still apply."),
            "rate_limit": _l("0: no limit."),
        }


class KeyPairLimits(FormPage):
    """The limits of one key pair."""

    section = "users"
    lead = _l("Sessions launched with this key pair count against it. Changing a limit does not end running sessions.")
    rule = staticmethod(rules_people)
    model = KeyPair
    form_class = KeyPairLimitForm
    audit_name = "key-pair"
    submit_label = _l("Save limits")
    list_address = "manage:users"

    def get_queryset(self) -> QuerySet[KeyPair]:
        """Return the key pairs of the people whom the user sees."""
        people = User.objects.visible_to(self.viewer).order_by()
        return KeyPair.objects.filter(user__in=people.values("pk")).select_related("user")

    def find(self, *, for_update: bool = False) -> Any:
        """Return the key pair; 404 unless the user may change its limits."""
        found = super().find(for_update=for_update)
        if not may_user(self.viewer, Action.SET_USER_POLICY, found.user):
            raise Http404
        return found

    def save(self, form: EditForm) -> Any:
        """Save the limits by the service, with its checks and audit entry."""
        pair = KeyPair.objects.select_related("user").get(pk=self.object.pk)  # the form has changed its own copy
        wishes = {name: form.cleaned_data[name] for name in KeyPairLimitForm.Meta.fields}
        return limit_key_pair(self.viewer, pair, wishes)

    def success_text(self, saved: Any) -> str:
        return _("The limits of %(pair)s are saved.") % {"pair": saved}

    def success_url(self, saved: Any) -> str:
        """Return the address of the owner's page."""
        return reverse("manage:user", args=[saved.user_id])

"""Pages of join tokens, with which agents join."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

import django_tables2 as tables
from django.db.models import QuerySet
from django.http import HttpResponse
from django.urls import path
from django.utils import timezone
from django.utils.html import format_html

from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy as _l
from backendai.domain.accounts.policies.duration_field import TimeSpanField
from backendai.domain.catalog.models import Image
from backendai.domain.cluster.agents import (
    guessed_address,
    is_closed_to_others,
    join_command,
    make_join_token,
    revoke_join_token,
)
from backendai.domain.cluster.models import JoinToken, ResourceGroup
from backendai.portal.web.admin.editing import ConfirmPage, FormPage
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import ListPage, PanelTable, TimeColumn, YesNoColumn
from backendai.portal.web.templatetags.portal import exact


class JoinTokenTable(PanelTable):
    """A table with one row for each join token."""

    hint = tables.Column(_l("Prefix"), default="–")
    resource_group = tables.Column(_l("For agents of"))
    agent = tables.Column(_l("Only for this agent"), default="–")
    name_prefix = tables.Column(_l("Name prefix"), default="–")
    is_reusable = YesNoColumn(_l("Reusable"))
    state = tables.Column(_l("State"), empty_values=(), orderable=False)
    expires_at = TimeColumn(_l("Expires"), words=exact, default=_l("never"))
    created_at = TimeColumn(_l("Created"))
    created_by = tables.Column(_l("By"), default="–")
    revoke = tables.LinkColumn(
        "manage:join-token-revoke",
        args=[tables.A("pk")],
        text=_l("Revoke"),
        orderable=False,
        exclude_from_export=True,
        empty_values=(),
    )

    class Meta(PanelTable.Meta):
        model = JoinToken
        order_by = "-created_at"

    def render_hint(self, value: str) -> str:
        """Return the first letters of the token."""
        return format_html("<code>{}…</code>", value)

    def render_state(self, record: JoinToken) -> str:
        """Return whether the token is open, used or expired."""
        if record.used_at:
            return in_words("used")
        return in_words("open" if record.is_usable(timezone.now()) else "expired")


class JoinTokenForm(EditForm):
    """A new token."""

    shown_at: ClassVar[dict[str, str]] = {"expires_at": "valid_for"}

    valid_for = TimeSpanField(
        required=False,
        label=_l("Valid for"),
        initial=timedelta(days=1),
        help_text=_l("Empty: valid until used or revoked."),
    )

    class Meta:
        model = JoinToken
        fields: ClassVar[list[str]] = ["resource_group", "name_prefix", "is_reusable"]
        labels: ClassVar[dict[str, Any]] = {
            "resource_group": _l("Resource group of the agent"),
            "name_prefix": _l("Agent name prefix"),
            "is_reusable": _l("Reusable"),
        }
        help_texts: ClassVar[dict[str, Any]] = {
            "name_prefix": _l("For example gpu-. Empty: any free name."),
            "is_reusable": _l("If off, the token works once. With a name prefix, known agents may rejoin with it."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        groups = self.fields["resource_group"]
        groups.empty_label = None  # type: ignore[attr-defined]
        self.initial.setdefault("resource_group", ResourceGroup.objects.filter(is_default=True).first())


class JoinTokenPage(FormPage):
    """Creates a join token, and shows it once."""

    section = "join-tokens"
    title = _l("Add an agent")
    lead = _l("The token is shown once, with the command to run on the machine.")
    model = JoinToken
    form_class = JoinTokenForm
    is_atomic = False
    list_address = "manage:join-tokens"
    submit_label = _l("Create token")
    template_name = "web/panel/join_token_form.html"

    def page_context(self) -> dict[str, Any]:
        return {"is_closed": is_closed_to_others()}

    def save(self, form: EditForm) -> str:
        """Create the token; return its text."""
        said, now = form.cleaned_data, timezone.now()
        return make_join_token(
            self.viewer,
            said["resource_group"],
            now=now,
            name_prefix=said["name_prefix"],
            reusable=said["is_reusable"],
            expires_at=now + said["valid_for"] if said["valid_for"] is not None else None,
        )

    def answer(self, form: EditForm, saved: str) -> HttpResponse:
        """Show the token, with the command to run on the machine."""
        command = join_command(saved, name_prefix=form.cleaned_data["name_prefix"])
        names = [image.display_name for image in Image.objects.of_processes()]
        shown = {"token": saved, "command": command, "guessed": guessed_address(), "native_images": names}
        return self.show_once(form, "web/panel/join_token.html", **shown)


class JoinTokenRevoke(ConfirmPage):
    """Revokes a join token."""

    section = "join-tokens"
    title = _l("Revoke")
    submit_label = _l("Revoke token")
    model = JoinToken
    list_address = "manage:join-tokens"
    question_text = _l("Revoke the %(object)s?")

    def consequences(self) -> list[str]:
        return [_("No further agent can join with it."), _("Agents that joined with it stay.")]

    def act(self) -> str:
        revoke_join_token(self.viewer, self.object.pk)
        return _("The join token is revoked.")


class JoinTokens(ListPage):
    """The list of join tokens, for superadmins."""

    section = "join-tokens"
    title = _l("Join tokens")
    icon = "key"
    guide = "agents-1"
    lead = _l("new agents register with one of these")
    table_class = JoinTokenTable
    search_fields = ("hint", "name_prefix", "agent__name", "resource_group__name")
    search_hint = _l("Prefix, group or agent")
    filter_fields = ("resource_group", "is_reusable")
    create_address = "manage:join-token-new"
    create_label = _l("New join token")
    more = (
        path("join-tokens/new/", JoinTokenPage.as_view(), name="join-token-new"),
        path("join-tokens/<int:pk>/revoke/", JoinTokenRevoke.as_view(), name="join-token-revoke"),
    )

    def get_queryset(self) -> QuerySet[JoinToken]:
        """Return all tokens."""
        return JoinToken.objects.select_related("resource_group", "agent", "created_by")

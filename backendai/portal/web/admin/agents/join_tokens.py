"""Pages of join tokens, with which agents join."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

import django_tables2 as tables
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.errors import UserError
from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
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
from backendai.portal.web.admin.editing import DeletePage, FormPage, show_error
from backendai.portal.web.admin.forms import EditForm
from backendai.portal.web.admin.listing import ListPage, PanelFilter, PanelTable
from backendai.portal.web.templatetags.portal import ago, exact


class JoinTokenTable(PanelTable):
    """A table with one row for each join token."""

    hint = tables.Column(_l("Prefix"), default="–")
    resource_group = tables.Column(_l("For agents of"))
    agent = tables.Column(_l("Only for this agent"), default="–")
    name_prefix = tables.Column(_l("Name prefix"), default="–")
    is_reusable = tables.BooleanColumn(verbose_name=_l("Reusable"), yesno=(_l("yes"), _l("no")))
    state = tables.Column(_l("State"), empty_values=(), orderable=False)
    expires_at = tables.Column(_l("Expires"), default=_l("never"))
    created_at = tables.Column(_l("Created"))
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
        fields = (
            "hint", "resource_group", "agent", "name_prefix", "is_reusable", "state", "expires_at", "created_at",
            "created_by", "revoke",
        )  # fmt: skip
        order_by = "-created_at"

    def render_hint(self, value: str) -> str:
        """Return the first letters of the token."""
        return format_html("<code>{}…</code>", value)

    def render_state(self, record: JoinToken) -> str:
        """Return whether the token is open, used or expired."""
        if record.used_at:
            return in_words("used")
        return in_words("open" if record.is_usable(timezone.now()) else "expired")

    def render_expires_at(self, value: Any) -> str:
        return exact(value)

    def render_created_at(self, value: Any) -> str:
        return ago(value)


class JoinTokenFilter(PanelFilter):
    """Filters join tokens by group and name."""

    search_fields = ("hint", "name_prefix", "agent__name", "resource_group__name")
    search_hint = _l("Prefix, group or agent")

    class Meta:
        model = JoinToken
        fields: ClassVar[list[str]] = ["resource_group", "is_reusable"]


class JoinTokenList(ListPage):
    """The list of join tokens, for superadmins."""

    section = "join-tokens"
    title = _l("Join tokens")
    lead = _l("new agents register with one of these")
    table_class = JoinTokenTable
    filterset_class = JoinTokenFilter
    create_address = "manage:join-token-new"
    create_label = _l("New join token")

    def get_queryset(self) -> QuerySet[JoinToken]:
        """Return all tokens."""
        return JoinToken.objects.select_related("resource_group", "agent", "created_by")


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
    audit_name = "join-token"
    list_address = "manage:join-tokens"
    submit_label = _l("Create token")
    template_name = "web/panel/join_token_form.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(is_closed=is_closed_to_others(), **kwargs)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Create the token and show it. Its text is not stored, so the answer is no redirect."""
        form = self.make_form(request.POST)
        if form.is_valid():
            said, now = form.cleaned_data, timezone.now()
            try:
                text = make_join_token(
                    self.viewer,
                    said["resource_group"],
                    now=now,
                    name_prefix=said["name_prefix"],
                    reusable=said["is_reusable"],
                    expires_at=now + said["valid_for"] if said["valid_for"] is not None else None,
                )
            except UserError as error:
                show_error(form, error)
            else:
                command = join_command(text, name_prefix=said["name_prefix"])
                shown = {"token": text, "command": command, "guessed": guessed_address()}
                names = [image.display_name for image in Image.objects.of_processes()]
                back = reverse(self.list_address)
                context = self.get_context_data(form=form, back_url=back, native_images=names, **shown)
                return self.response_class(request, ["web/panel/join_token.html"], context)
        return self.render_to_response(self.get_context_data(form=form), status=422)


class JoinTokenRevoke(DeletePage):
    """Revokes a join token."""

    section = "join-tokens"
    title = _l("Revoke")
    submit_label = _l("Revoke token")
    model = JoinToken
    audit_name = "join-token"
    list_address = "manage:join-tokens"

    def question(self) -> str:
        return _("Revoke the %(object)s?") % {"object": self.object}

    def consequences(self) -> list[str]:
        return [_("No further agent can join with it."), _("Agents that joined with it stay.")]

    def act(self) -> str:
        revoke_join_token(self.viewer, self.object.pk)
        return _("The join token is revoked.")

"""Kernels on agents that are missing in the database: adds their sessions to it, or removes the kernels."""

from __future__ import annotations

import django_tables2 as tables
from django.db.models import QuerySet
from django.urls import path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _l

from backendai.base.core.slots import Slots
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import ngettext
from backendai.domain.compute.models import ComputeSession, UnknownKernel
from backendai.domain.compute.services.agents.adopting import adopt_session
from backendai.domain.compute.services.agents.unknown_kernels import remove_unknown
from backendai.portal.web.admin.editing import ConfirmPage
from backendai.portal.web.admin.listing import ListPage, PanelTable, TimeColumn


class UnknownKernelTable(PanelTable):
    """A table with one row for each unknown kernel."""

    name = tables.Column(_l("Session"), accessor="session_name", orderable=False, empty_values=())
    owner = tables.Column(_l("Owner"), accessor="owner", orderable=False, default="–")
    hostname = tables.Column(_l("Kernel"), accessor="hostname", orderable=False, empty_values=())
    amounts = tables.Column(_l("Resources"), accessor="slots", orderable=False, default="–")
    agent = tables.LinkColumn("manage:agent", args=[tables.A("agent_id")], verbose_name=_l("Agent"))
    is_running = tables.Column(_l("State"))
    found_at = TimeColumn(_l("Found"))
    decide = tables.Column(_l("Decision"), empty_values=(), orderable=False, exclude_from_export=True)

    class Meta(PanelTable.Meta):
        model = UnknownKernel
        order_by = "found_at"

    def render_name(self, record: UnknownKernel) -> str:
        """Return the name of the kernel's session, if known."""
        return record.session_name or _("not known")

    def render_hostname(self, record: UnknownKernel) -> str:
        """Return the kernel's host name, or the beginning of its id."""
        return record.hostname or str(record.kernel_id)[:8]

    def render_amounts(self, value: dict[str, str]) -> str:
        """Return the amounts that the kernel holds as text."""
        return Slots.parse(value).describe()

    def render_is_running(self, record: UnknownKernel) -> str:
        """Return whether the kernel runs, is stopped, or is being removed."""
        if record.removal_at:
            return _("being removed")
        return _("running") if record.is_running else _("stopped")

    def render_decide(self, record: UnknownKernel) -> str:
        """Return the links to the possible actions."""
        if record.removal_at:
            return "–"
        remove = (reverse("manage:unknown-kernel-remove", args=[record.pk]), _("Remove kernel"))
        if record.session_id is None:
            return format_html('<a href="{}">{}</a>', *remove)
        adopt = (reverse("manage:unknown-kernel-adopt", args=[record.pk]), _("Adopt session"))
        return format_html('<a href="{}">{}</a> · <a href="{}">{}</a>', *adopt, *remove)


class UnknownKernelDecision(ConfirmPage):
    """The base of confirmations of an action on an unknown kernel."""

    section = "unknown-kernels"
    model = UnknownKernel
    list_address = "manage:unknown-kernels"
    object: UnknownKernel

    def get_queryset(self) -> QuerySet[UnknownKernel]:
        """Return the unknown kernels with their agents."""
        return UnknownKernel.objects.select_related("agent")

    @property
    def session_name(self) -> str:
        """The name of the kernel's session, else the beginning of the kernel's id."""
        return self.object.session_name or str(self.object.kernel_id)[:8]


class AdoptPage(UnknownKernelDecision):
    """Adds the session of an unknown kernel to the database."""

    title = _l("Adopt session")
    submit_label = _l("Adopt session")
    is_dangerous = False

    def get_queryset(self) -> QuerySet[UnknownKernel]:
        """Return the kernels whose session is known and that are not being removed."""
        return super().get_queryset().filter(session_id__isnull=False, removal_at=None)

    def question(self) -> str:
        return _("Adopt session %(name)s?") % {"name": self.session_name}

    def consequences(self) -> list[str]:
        number = UnknownKernel.objects.filter(session_id=self.object.session_id).count()
        kernels = ngettext("%(number)s kernel", "%(number)s kernels", number) % {"number": number}
        return [
            _("The session of %(owner)s continues with %(kernels)s, on the agents where they run.")
            % {"owner": self.object.owner, "kernels": kernels},
            _("Its environment variables and its history are not in this database and stay lost."),
        ]

    def act(self) -> str:
        session: ComputeSession = adopt_session(self.viewer, self.object.session_id, now=timezone.now())  # type: ignore[arg-type]
        return _("Session %(name)s is adopted. Its agent confirms it within seconds.") % {"name": session.name}


class RemovePage(UnknownKernelDecision):
    """Removes an unknown kernel from its agent."""

    title = _l("Remove kernel")
    submit_label = _l("Remove kernel")

    def question(self) -> str:
        names = {"name": self.session_name, "agent": self.object.agent}
        return _("Remove the kernel of %(name)s from %(agent)s?") % names

    def consequences(self) -> list[str]:
        return [
            _("Its programs are stopped, and its home folder and its log are deleted. This cannot be undone."),
            _("When the agent has no unknown kernel left, it takes new sessions again."),
        ]

    def act(self) -> str:
        remove_unknown(self.viewer, self.object, now=timezone.now())
        return _("The agent removes the kernel at its next sync.")


class UnknownKernels(ListPage):
    """The list of unknown kernels, for superadmins."""

    section = "unknown-kernels"
    title = _l("Unknown kernels")
    icon = "alert-triangle"
    guide = "unknown-kernels"
    lead = _l("kernels on agents that are not in the database, for example after a restore from a backup")
    table_class = UnknownKernelTable
    search_fields = ("agent__name",)
    search_hint = _l("Agent")
    filter_fields = ("is_running",)
    empty_title = _l("No unknown kernels")
    empty_text = _l("The database knows every kernel that the agents report.")
    more = (
        path("unknown-kernels/<int:pk>/adopt/", AdoptPage.as_view(), name="unknown-kernel-adopt"),
        path("unknown-kernels/<int:pk>/remove/", RemovePage.as_view(), name="unknown-kernel-remove"),
    )

    def get_queryset(self) -> QuerySet[UnknownKernel]:
        """Return the unknown kernels with their agents."""
        return UnknownKernel.objects.select_related("agent")

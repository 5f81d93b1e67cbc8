"""Pages of all background jobs."""

from __future__ import annotations

from typing import Any

import django_tables2 as tables
from django.db.models import Exists, OuterRef, QuerySet
from django.urls import path, reverse
from django.utils import timezone
from django.utils.html import format_html

from backendai.base.texts.messages import in_words
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy as _l
from backendai.domain.activity.jobs import cancel_job
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.builds import failed_builds, retry_build
from backendai.domain.catalog.services import BUILD_JOB
from backendai.domain.catalog.tags import tags_that_stayed, try_removal_again
from backendai.portal.web.admin.editing import ConfirmPage
from backendai.portal.web.admin.listing import ListPage, NumberColumn, PanelTable, TimeColumn
from backendai.portal.web.frame.jobs import percent_of, title_of


class JobTable(PanelTable):
    """A table with one row for each background job."""

    created_at = TimeColumn(_l("Started"))
    subject = tables.Column(_l("Job"))
    owner = tables.Column(_l("Requested by"), accessor="owner__email", default=_l("the platform"))
    status = tables.Column(_l("Status"))
    progress = NumberColumn(_l("Done"), empty_values=())
    message = tables.Column(_l("Message"), orderable=False)
    cancel = tables.Column("", empty_values=(), exclude_from_export=True, orderable=False)

    class Meta(PanelTable.Meta):
        model = BackgroundJob
        order_by = "-created_at"

    def render_subject(self, record: BackgroundJob) -> str:
        """Return the title of the job."""
        return title_of(record)

    def render_status(self, record: BackgroundJob) -> str:
        return _("being cancelled") if record.is_cancelling else in_words(record.get_status_display())

    def render_progress(self, record: BackgroundJob) -> str:
        """Return the progress in per cent, or a dash."""
        percent = percent_of(record)
        return "–" if percent is None else f"{percent} %"

    def render_message(self, record: BackgroundJob) -> str:
        """Return the last message of the job, with the remedy of a failure."""
        return f"{record.message} {record.fix}".strip()

    def render_cancel(self, record: Any) -> str:
        """Return the link that cancels or retries the job; empty if neither is possible."""
        if record.can_be_retried:
            return format_html(
                '<a class="no-break" href="{}">{}</a>', reverse("manage:job-again", args=[record.pk]), _("Retry…")
            )
        if not record.is_running or record.is_cancelling:
            return ""
        return format_html('<a href="{}">{}</a>', reverse("manage:job-cancel", args=[record.pk]), _("Cancel…"))


class JobAction(ConfirmPage):
    """The base of confirmations of an action on a background job."""

    section = "jobs"
    model = BackgroundJob
    list_address = "manage:jobs"

    def question(self) -> str:
        """Return the question about the job's title."""
        text: str = self.question_text % {"object": title_of(self.object)}
        return text


class JobCancel(JobAction):
    """Cancels a background job."""

    title = _l("Cancel a job")
    submit_label = _l("Cancel the job")
    question_text = _l("%(object)s: cancel it?")

    def consequences(self) -> list[str]:
        return [_("It stops at its next step; finished steps are kept.")]

    def act(self) -> str:
        cancel_job(self.viewer, self.object.pk, now=timezone.now())
        return _("Cancellation was requested.")


class JobAgain(JobAction):
    """Retries the build of an image, or the deletion of an image's tag from its registry."""

    title = _l("Retry a job")
    submit_label = _l("Retry job")
    question_text = _l("%(object)s: retry it?")

    def consequences(self) -> list[str]:
        """Return the error of the last try, and the consequences of another."""
        said = [in_words(sentence) for sentence in (self.object.message, self.object.fix) if sentence]
        if self.object.kind == BUILD_JOB:
            return [*said, _("A new build begins within seconds; finished steps are kept.")]
        return [*said, _("Tries again to delete the image's tag from the registry. This cannot be undone.")]

    def act(self) -> str:
        retry = retry_build if self.object.kind == BUILD_JOB else try_removal_again
        retry(self.viewer, self.object, now=timezone.now())
        return _("It is being retried.")


class Jobs(ListPage):
    """The list of background jobs, for superadmins."""

    section = "jobs"
    title = _l("Background jobs")
    icon = "refresh"
    guide = "background-jobs"
    lead = _l("builds, scans and other long work")
    table_class = JobTable
    search_fields = ("subject", "message", "owner__email")
    search_hint = _l("Subject or owner")
    filter_fields = ("status", "kind")
    empty_text = _l("Long-running work appears here with its progress and is kept for 30 days after its end.")
    more = (
        path("jobs/<uuid:pk>/cancel/", JobCancel.as_view(), name="job-cancel"),
        path("jobs/<uuid:pk>/again/", JobAgain.as_view(), name="job-again"),
    )

    def get_queryset(self) -> QuerySet[BackgroundJob]:
        """Return all jobs."""
        can_be_retried = Exists(tags_that_stayed().filter(pk=OuterRef("pk"))) | Exists(
            failed_builds().filter(pk=OuterRef("pk"))
        )
        return BackgroundJob.objects.select_related("owner").annotate(can_be_retried=can_be_retried)

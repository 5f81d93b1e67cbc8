"""Background jobs: lists, cancels and retries them."""

from __future__ import annotations

from uuid import UUID

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.activity.jobs import cancel_job
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.builds import retry_build
from backendai.domain.catalog.services import BUILD_JOB
from backendai.domain.catalog.tags import try_removal_again
from backendai.portal.api.frame.authentication import superadmin_of
from backendai.portal.api.frame.filters import JobFilter
from backendai.portal.api.frame.paging import NewestFirst
from backendai.portal.api.frame.views import ResourceView


class JobBody(serializers.ModelSerializer[BackgroundJob]):
    """A background job."""

    progress = serializers.FloatField(source="share", allow_null=True, help_text="From 0 to 1; null: not known.")
    result = serializers.DictField(help_text="The result; its keys depend on the kind.")

    class Meta:
        model = BackgroundJob
        fields = [
            "id", "kind", "subject", "status", "progress", "done", "total", "unit", "message", "fix", "result",
            "created_at", "updated_at", "finished_at", "deadline_at", "cancel_requested_at",
        ]  # fmt: skip
        read_only_fields = fields


class JobView(ResourceView[BackgroundJob]):
    """The base of the views of background jobs."""

    queryset = BackgroundJob.objects.all()
    serializer_class = JobBody
    lookup_url_kwarg = "job_id"


class JobList(JobView, ListAPIView[BackgroundJob]):
    """The user's background jobs; superadmins see all."""

    pagination_class = NewestFirst
    filterset_class = JobFilter


class JobDetail(JobView, RetrieveAPIView[BackgroundJob]):
    """One background job."""


class JobCancel(JobView):
    """Cancelling a background job."""

    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=None, responses=JobBody)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Request the cancellation; the worker stops at its next step. 409 if the job has ended."""
        return self.answer(cancel_job(self.user, job_id, now=timezone.now()))


class JobRetry(JobView):
    """Retrying a failed job; superadmins only."""

    token_scopes = (Scope.ADMIN,)

    @extend_schema(request=None, responses={202: JobBody})
    def post(self, request: Request, job_id: UUID) -> Response:
        """Retry a job, and return the new one.

        Jobs are builds of an image (kind ``image.build``) and deletions of an image's tag (``image.untag``). 409 for
        jobs that cannot be retried.
        """
        user = superadmin_of(request)
        job = get_object_or_404(BackgroundJob, pk=job_id)
        retry = retry_build if job.kind == BUILD_JOB else try_removal_again
        return self.answer(retry(user, job, now=timezone.now()), status.HTTP_202_ACCEPTED)

"""Background jobs: lists, cancels and retries them."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView, ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.activity.jobs import cancel_job
from backendai.domain.activity.models import BackgroundJob
from backendai.domain.catalog.builds import retry_build
from backendai.domain.catalog.services import BUILD_JOB
from backendai.domain.catalog.tags import try_removal_again
from backendai.portal.api.frame.authentication import superadmin_of, user_of
from backendai.portal.api.frame.filters import JobFilter, RequestedFilters
from backendai.portal.api.frame.paging import NewestFirst


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


class JobList(ListAPIView[BackgroundJob]):
    """The user's background jobs; superadmins see all."""

    queryset = BackgroundJob.objects.none()
    serializer_class = JobBody
    pagination_class = NewestFirst
    filter_backends = [RequestedFilters]
    filterset_class = JobFilter

    def get_queryset(self) -> QuerySet[BackgroundJob]:
        """Return the visible jobs."""
        return BackgroundJob.objects.visible_to(user_of(self.request))


class JobDetail(RetrieveAPIView[BackgroundJob]):
    """One background job."""

    queryset = BackgroundJob.objects.none()
    serializer_class = JobBody
    lookup_url_kwarg = "job_id"

    def get_queryset(self) -> QuerySet[BackgroundJob]:
        """Return the visible jobs."""
        return BackgroundJob.objects.visible_to(user_of(self.request))


class JobCancel(GenericAPIView[BackgroundJob]):
    """Cancelling a background job."""

    serializer_class = JobBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=None, responses=JobBody)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Request the cancellation; the worker stops at its next step. 409 if the job has ended."""
        return Response(JobBody(cancel_job(user_of(request), job_id, now=timezone.now())).data)


class JobRetry(GenericAPIView[BackgroundJob]):
    """Retrying a failed job; superadmins only."""

    serializer_class = JobBody
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
        again = retry(user, job, now=timezone.now())
        return Response(JobBody(again).data, status=status.HTTP_202_ACCEPTED)

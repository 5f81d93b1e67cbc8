"""The user's notifications, as they stand under the bell. Background jobs and unknown kernels have their own lists."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.texts.messages import in_words
from backendai.domain.accounts.models import User
from backendai.domain.accounts.scopes import Scope
from backendai.domain.activity.access_notices import ACCESS
from backendai.domain.activity.jobs import clear_jobs, see_jobs
from backendai.domain.activity.models import AccessNotice
from backendai.domain.activity.notice_sources import NoticeSource
from backendai.domain.activity.notices import GIVEN, NoticeKind, choices_of, kinds_in
from backendai.domain.compute.models import SessionNotice
from backendai.domain.compute.services.notices.owners import SESSIONS
from backendai.domain.pipelines.models import Run
from backendai.domain.pipelines.presentation import RUNS
from backendai.domain.serving.models import EndpointNotice
from backendai.domain.serving.services.notices import ENDPOINTS
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.paging import OnePage, only_page

_MOST = 100  # of each source


class NoticeBody(serializers.Serializer[Any]):
    """A notification of the user."""

    at = serializers.DateTimeField()
    kind = serializers.CharField(help_text="Such as failed, ended, idle, given, unavailable.")
    about = serializers.CharField(help_text="session, run, endpoint, or what access was given to, such as folder.")
    id = serializers.CharField(help_text="Of what it is about.")
    name = serializers.CharField(help_text="Of what it is about.")
    message = serializers.CharField(help_text="In the language of the request; may be empty.")
    is_seen = serializers.BooleanField()


class Bell(GenericAPIView[Any]):
    """The notifications of the user that are not dismissed."""

    serializer_class = NoticeBody
    pagination_class = OnePage
    token_scopes = (Scope.ACCOUNT,)
    filter_backends = ()

    @extend_schema(responses=NoticeBody(many=True))
    def get(self, request: Request) -> Response:
        """Return the newest notifications, at most 100 each about sessions, runs, endpoints and given access."""
        return only_page(NoticeBody(_notices_of(user_of(request)), many=True).data)

    def delete(self, request: Request) -> Response:
        """Dismiss all notifications and ended jobs; invitations that wait for an answer stay."""
        now = timezone.now()
        clear_jobs(request.user, now=now)
        for source, _ in _SHOWN:
            source.clear(request.user, now=now)
        return Response(status=status.HTTP_204_NO_CONTENT)


class BellSeen(GenericAPIView[Any]):
    """Marking notifications as seen."""

    token_scopes = (Scope.ACCOUNT,)

    @extend_schema(request=None, responses={204: None})
    def post(self, request: Request) -> Response:
        """Mark all notifications and results of jobs as seen."""
        now = timezone.now()
        see_jobs(request.user, now=now)
        for source, _ in _SHOWN:
            source.see(request.user, now=now)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _notices_of(user: User) -> list[dict[str, Any]]:
    """Return the notifications under the user's bell, the newest first. Five queries."""
    now, kinds = timezone.now(), kinds_in(choices_of(user), "bell")
    found = [
        shown(one) | {"at": getattr(one, source.at), "is_seen": one.seen_at is not None}
        for source, shown in _SHOWN
        for one in source.shown(user, kinds, now=now).order_by(f"-{source.at}", "-pk")[:_MOST]
    ]
    return sorted(found, key=lambda one: one["at"], reverse=True)


def _of_session(one: SessionNotice) -> dict[str, Any]:
    is_end = one.kind in (NoticeKind.FAILED, NoticeKind.ENDED)
    said = one.session.reason_text if is_end else one.message
    return _about("session", one.session_id, one.session.name, one.kind, said)


def _of_run(run: Run) -> dict[str, Any]:
    return _about("run", run.pk, run.name, RUNS.kinds[run.status], run.message)


def _of_endpoint(one: EndpointNotice) -> dict[str, Any]:
    return _about("endpoint", one.endpoint_id, one.endpoint.name, one.kind, one.message)


def _of_access(one: AccessNotice) -> dict[str, Any]:
    return _about(one.subject_type, one.subject_id, one.name, GIVEN, one.message)


def _about(what: str, pk: Any, name: str, kind: str, message: Any) -> dict[str, Any]:
    return {"about": what, "id": str(pk), "name": name, "kind": str(kind), "message": in_words(message)}


_SHOWN: tuple[tuple[NoticeSource, Any], ...] = (
    (SESSIONS, _of_session),
    (RUNS, _of_run),
    (ENDPOINTS, _of_endpoint),
    (ACCESS, _of_access),
)

"""Compute sessions: lists, launches, changes and terminates them, and shows their history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db.models import F, Prefetch, QuerySet
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.filters import OrderingFilter
from rest_framework.generics import GenericAPIView, ListAPIView, RetrieveAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.models import User
from backendai.domain.accounts.scopes import Scope
from backendai.domain.compute.models import ComputeSession, Kernel, SchedulingRecord, SessionMount
from backendai.domain.compute.services.launching.create import launch_session
from backendai.domain.compute.services.launching.priorities import set_priority
from backendai.domain.compute.services.life.end_times import set_end
from backendai.domain.compute.services.life.ending import terminate_session
from backendai.domain.compute.services.life.ending_many import EndedMany, Refusal, terminate_sessions
from backendai.domain.compute.status import ShareRight
from backendai.domain.pipelines.services.creating import launch_with_retries
from backendai.domain.planning.steps import shown_steps
from backendai.portal.api.frame.authentication import signing_pair, user_of
from backendai.portal.api.frame.fields import DecimalAmounts, MessageValues
from backendai.portal.api.frame.filters import HistoryFilter, RequestedFilters, SessionFilter
from backendai.portal.api.frame.idempotency import idempotency_key, launched_answer
from backendai.portal.api.frame.paging import NewestFirst, OnePage, only_page
from backendai.portal.api.frame.parsing import BoundedSerializer, MomentField, StrictSerializer, values_of
from backendai.portal.api.frame.views import ResourceView
from backendai.portal.api.sessions.launch_request import LaunchRequest, launch_asked_for

_Words = {"type": "object", "additionalProperties": {"type": "string"}, "nullable": True}


class SharedQuery(BoundedSerializer):
    """Whose sessions a list contains."""

    shared = serializers.BooleanField(default=False, help_text="Live sessions that others share with the user.")


class PriorityRequest(StrictSerializer):
    """The new priority of a session."""

    priority = serializers.IntegerField(help_text="0 to 100, within the policies of the owner.")


class EndTimeRequest(StrictSerializer):
    """The new end of a running session."""

    ends_at = MomentField(
        allow_null=True, help_text="Up to ten years ahead; the owner within the policies. null: no time limit."
    )


class TerminateRequest(StrictSerializer):
    """Whether to end a session's programs at once."""

    force = serializers.BooleanField(default=False)


class TerminateManyRequest(TerminateRequest):
    """The sessions to terminate, and whether to force it."""

    sessions = serializers.ListField(child=serializers.UUIDField(), allow_empty=False, help_text="At most 100.")


class RefusalBody(serializers.Serializer[Refusal]):
    """A session that was not terminated, with the reason.

    Without a name the session is not visible or does not exist.
    """

    id = serializers.UUIDField()
    name = serializers.CharField()
    code = serializers.CharField()
    message = serializers.CharField()


class EndedManyBody(serializers.Serializer[EndedMany]):
    """IDs of cancelled, terminating and forced sessions, and the refused ones."""

    cancelled = serializers.ListField(child=serializers.UUIDField(), source="ended.cancelled")
    terminating = serializers.ListField(child=serializers.UUIDField(), source="ended.terminating")
    forced = serializers.ListField(child=serializers.UUIDField(), source="ended.forced")
    refused = RefusalBody(many=True)


class KernelBody(serializers.ModelSerializer[Kernel]):
    """One kernel of a session."""

    agent = serializers.CharField(source="agent_name", read_only=True, allow_null=True)
    status = serializers.CharField()
    status_message = serializers.CharField(source="reason_text")
    status_values = MessageValues("reason_text")
    resources = DecimalAmounts(source="slots", read_only=True)
    image = serializers.CharField(
        source="own_image", read_only=True, allow_null=True, help_text="Null: the session's image."
    )
    devices = serializers.DictField(child=DecimalAmounts(), read_only=True)

    class Meta:
        model = Kernel
        fields = [
            "id", "role", "index", "rank", "hostname", "agent", "container_id", "status", "status_reason",
            "status_message", "status_values", "exit_code", "progress", "fetched_bytes", "image_bytes", "resources",
            "image", "devices", "on_failure", "after", "is_held", "ready", "restarts", "is_unconfirmed", "created_at",
            "started_at", "ended_at",
        ]  # fmt: skip
        read_only_fields = fields


class MountedBody(serializers.Serializer[SessionMount]):
    """A folder that the session mounts."""

    folder = serializers.UUIDField(source="folder_id", allow_null=True)
    name = serializers.CharField(source="folder_name")
    path = serializers.CharField(source="sub_path")
    target = serializers.CharField()
    rights = serializers.CharField()
    role = serializers.CharField(help_text="The role whose kernels mount it; empty: all.")
    is_automatic = serializers.BooleanField()


class SessionBody(serializers.ModelSerializer[ComputeSession]):
    """A compute session with its kernels."""

    type = serializers.CharField(source="session_type")
    status = serializers.CharField()
    status_message = serializers.CharField(source="reason_text")
    status_values = MessageValues("reason_text")
    result = serializers.CharField()
    placement = serializers.CharField(read_only=True, help_text="spread, pack, or empty.")
    owner = serializers.EmailField(source="owner_email", read_only=True)
    launched_by = serializers.EmailField(
        source="launched_by_email",
        read_only=True,
        allow_null=True,
        help_text="The administrator who launched it for its owner; null: the owner did.",
    )
    project = serializers.CharField(source="project_name", read_only=True)
    resource_group = serializers.CharField(source="resource_group_name", read_only=True)
    image = serializers.CharField(source="image_name", read_only=True)
    resources = DecimalAmounts(
        source="slots", read_only=True, help_text="Amounts of each kernel; if they differ, of the main one."
    )
    environ = serializers.SerializerMethodField(help_text="Variables, for the owner only; otherwise null.")
    depends_on = serializers.SerializerMethodField(help_text="IDs of the sessions that must end first.")
    depends_when = serializers.CharField()
    template = serializers.SerializerMethodField(help_text="scope/name@version; empty: none.")
    parameters = serializers.SerializerMethodField(
        help_text="Values for the template, without secrets, for the owner only; otherwise null."
    )
    labels = serializers.DictField(child=serializers.CharField(), read_only=True)
    kernels = KernelBody(many=True, source="shown_kernels")
    mounts = MountedBody(many=True, source="shown_mounts")

    class Meta:
        model = ComputeSession
        fields = [
            "id", "name", "type", "status", "status_reason", "status_message", "status_values", "status_data", "result",
            "owner", "launched_by", "project", "resource_group", "image", "resources", "shm_bytes", "cluster_size",
            "cluster_mode", "environ", "preopen_ports", "startup_command", "starts_at", "batch_timeout",
            "designated_agents", "placement", "launch_id", "priority", "retry_on_agent_loss", "may_be_stopped",
            "queue_position",
            "attempts", "retries", "version", "created_at", "scheduled_at", "started_at", "ends_at", "stopped_at",
            "resumes", "terminating_at",
            "ended_at", "depends_on", "depends_when", "template", "parameters", "kernels", "mounts", "start_in",
            "labels", "note",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(_Words)
    def get_environ(self, session: ComputeSession) -> dict[str, Any] | None:
        """Return the environment variables to the owner, None to others, as they can contain keys."""
        return dict(session.environ) if self._is_own(session) else None

    @extend_schema_field({"type": "array", "items": {"type": "string", "format": "uuid"}})
    def get_depends_on(self, session: Any) -> list[str]:
        """Return the IDs of the sessions that must end first."""
        return [str(other.pk) for other in session.shown_depends_on]

    def get_template(self, session: Any) -> str:
        """Return the version of the template from which the session was launched, or an empty text."""
        return str(session.spec_template or "")

    @extend_schema_field({"type": "object", "additionalProperties": {}, "nullable": True})
    def get_parameters(self, session: Any) -> dict[str, Any] | None:
        """Return the parameters of the template to the owner, None to others, as they can be private."""
        return dict(session.spec_parameters or {}) if self._is_own(session) else None

    def _is_own(self, session: ComputeSession) -> bool:
        return bool(session.owner_id == self.context["request"].user.pk)


class StepBody(serializers.Serializer[Any]):
    """One step within a row of the scheduling history."""

    step = serializers.CharField()
    result = serializers.CharField()
    message = serializers.CharField()
    values = serializers.DictField(help_text="The values in the message, by name.")
    error_code = serializers.CharField()
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField()


class RecordBody(serializers.ModelSerializer[SchedulingRecord]):
    """One row of the scheduling history."""

    id = serializers.UUIDField(source="uid", read_only=True)
    phase = serializers.CharField()
    result = serializers.CharField()
    values = MessageValues("message")
    sub_steps = serializers.SerializerMethodField()

    class Meta:
        model = SchedulingRecord
        fields = [
            "id", "phase", "result", "from_status", "to_status", "attempts", "error_code", "message", "values",
            "sub_steps", "created_at", "updated_at",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(StepBody(many=True))
    def get_sub_steps(self, record: SchedulingRecord) -> list[dict[str, Any]]:
        """Return the steps of the row, each with all fields."""
        return shown_steps(record)


class SessionList(ListAPIView[ComputeSession]):
    """The visible sessions; launches one."""

    queryset = ComputeSession.objects.none()
    serializer_class = SessionBody
    pagination_class = NewestFirst
    filterset_class = SessionFilter
    token_scopes = (Scope.SESSIONS,)
    launches = keeps_key = True
    is_large = True  # 100 sessions with 64 KiB of variables and a command of 64 KiB each, several times over

    def get_queryset(self) -> QuerySet[ComputeSession]:
        """Return the visible sessions, or those shared with the user, with everything that an answer contains."""
        user = user_of(self.request)
        if values_of(SharedQuery, self.request.query_params)["shared"]:
            return with_parts(ComputeSession.objects.shared_with(user))
        return shown_sessions(user)

    @extend_schema(parameters=[SharedQuery])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return the visible sessions, the newest first."""
        return super().get(request, *args, **kwargs)

    @extend_schema(
        request=LaunchRequest,
        responses={201: SessionBody, 200: SessionBody},
    )
    def post(self, request: Request) -> Response:
        """Launch a session; 200 with the earlier session if the idempotency key was used before."""
        key = idempotency_key(request)
        (spec, retry), pair = launch_asked_for(request), signing_pair(request)
        if pair and not spec.owner:
            spec = replace(spec, access_key=pair.access_key)
        if retry:
            found, is_new = launch_with_retries(user_of(request), spec, retry, idempotency_key=key, now=timezone.now())
            made = get_object_or_404(shown_sessions(user_of(request)), pk=found.pk)
            return launched_answer(self.get_serializer(made).data, is_new=is_new)
        launched = launch_session(user_of(request), spec, idempotency_key=key)
        if launched.kernels is None:
            earlier = get_object_or_404(shown_sessions(user_of(request)), pk=launched.session.pk)
            return launched_answer(self.get_serializer(earlier).data, is_new=False)
        made = shown_at_launch(launched.session, launched.kernels)
        return launched_answer(self.get_serializer(made).data, is_new=True)


class OneSessionView(ResourceView[ComputeSession]):
    """The base of the views of one session: a visible one, and with ``right`` also one that is shared with it."""

    queryset = ComputeSession.objects.select_related("owner", "project__domain")
    serializer_class: type[Any] = SessionBody
    lookup_url_kwarg = "session_id"
    token_scopes: tuple[Scope, ...] = (Scope.SESSIONS,)
    right: ShareRight | None = None

    def visible(self, rows: Any) -> QuerySet[ComputeSession]:
        """Return the sessions that the user may see, and those that a share opens to them."""
        found: QuerySet[ComputeSession]
        found = rows.open_to(self.user, self.right) if self.right else rows.visible_to(self.user)
        return found

    def answer_now(self, code: int = status.HTTP_200_OK) -> Response:
        """Return the session in the address as it is stored now, as the response."""
        session = get_object_or_404(shown_sessions(self.user), pk=self.kwargs[self.lookup_url_kwarg])
        return self.answer(session, code)


class SessionDetail(OneSessionView, RetrieveAPIView[ComputeSession]):
    """One session."""

    queryset = ComputeSession.objects.all()
    right = ShareRight.VIEW

    def visible(self, rows: Any) -> QuerySet[ComputeSession]:
        """Return the visible sessions and shared ones with everything that an answer contains."""
        return with_parts(super().visible(rows))


class SessionEnd(OneSessionView):
    """Terminating a session."""

    queryset = ComputeSession.objects.select_related("owner").only("name", "status", "owner__email")

    @extend_schema(request=TerminateRequest, responses=SessionBody)
    def post(self, request: Request, session_id: UUID) -> Response:
        """Terminate the session; ``force`` ends its programs at once. 409 if it has ended."""
        session, values = self.get_object(), values_of(TerminateRequest, request.data)
        terminate_session(session, self.user, force=values["force"])
        return self.answer_now()


class SessionsEnd(GenericAPIView[Any]):
    """Terminating many sessions."""

    serializer_class = EndedManyBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=TerminateManyRequest, responses=EndedManyBody)
    def post(self, request: Request) -> Response:
        """Terminate at most 100 sessions; the response names those that could not be terminated, with the reason."""
        asked = values_of(TerminateManyRequest, request.data)
        done = terminate_sessions(user_of(request), asked["sessions"], force=asked["force"], now=timezone.now())
        return Response(EndedManyBody(done).data)


class SessionPriority(OneSessionView):
    """The priority of a pending session."""

    @extend_schema(request=PriorityRequest, responses=SessionBody)
    def post(self, request: Request, session_id: UUID) -> Response:
        """Change the priority; 409 ``not-pending`` if the session is no longer pending."""
        session, values = self.get_object(), values_of(PriorityRequest, request.data)
        set_priority(session, self.user, values["priority"])
        return self.answer_now()


class SessionEndTime(OneSessionView):
    """The latest end of a running session."""

    @extend_schema(request=EndTimeRequest, responses=SessionBody)
    def post(self, request: Request, session_id: UUID) -> Response:
        """Move the end; 400 ``end-too-late`` beyond the policies of the owner, 409 ``not-running``."""
        session, values = self.get_object(), values_of(EndTimeRequest, request.data)
        set_end(session, self.user, values["ends_at"], now=timezone.now())
        return self.answer_now()


class SessionKernels(OneSessionView):
    """The kernels of a session, the main one first."""

    serializer_class = KernelBody
    pagination_class = OnePage
    right = ShareRight.VIEW

    @extend_schema(responses=KernelBody(many=True))
    def get(self, request: Request, session_id: UUID) -> Response:
        """Return all kernels, at most 16."""
        return only_page(self.get_serializer(shown_kernels(self.get_object().kernels.all()), many=True).data)


class SessionHistory(ListAPIView[SchedulingRecord]):
    """The scheduling history of a session."""

    queryset = SchedulingRecord.objects.none()
    serializer_class = RecordBody
    pagination_class = NewestFirst
    filterset_class = HistoryFilter
    filter_backends = [RequestedFilters, OrderingFilter]
    ordering_fields = ["created_at", "updated_at"]
    ordering = ["-created_at"]

    def get_queryset(self) -> QuerySet[SchedulingRecord]:
        """Return the scheduling history of a visible session."""
        if getattr(self, "swagger_fake_view", False):
            return SchedulingRecord.objects.none()
        visible = ComputeSession.objects.open_to(user_of(self.request), ShareRight.VIEW)
        session: ComputeSession = get_object_or_404(visible, pk=self.kwargs["session_id"])
        return session.records.order_by()


_NAMES = {
    "owner_email": F("owner__email"),
    "launched_by_email": F("launched_by__email"),
    "project_name": F("project__name"),
    "resource_group_name": F("resource_group__name"),
    "image_name": F("image__name"),
    "spec_template": F("spec__template"),
    "spec_parameters": F("spec__parameters"),
}


def shown_sessions(user: User) -> QuerySet[Any]:
    """Return the visible sessions with everything that an answer contains."""
    return with_parts(ComputeSession.objects.visible_to(user))


def with_parts(sessions: QuerySet[Any]) -> QuerySet[Any]:
    """Return the sessions with ``shown_kernels``, ``shown_mounts``, ``shown_depends_on``; four queries."""
    kernels = Prefetch("kernels", shown_kernels(Kernel.objects.all()), to_attr="shown_kernels")
    mounts = Prefetch("mounts", SessionMount.objects.filter(holds_homes=False), to_attr="shown_mounts")
    others = Prefetch("depends_on", _others(), to_attr="shown_depends_on")
    rows = sessions.annotate(**_NAMES).defer("spec")  # it repeats variables and commands
    return rows.prefetch_related(kernels, mounts, others)


def shown_kernels(kernels: QuerySet[Kernel]) -> QuerySet[Any]:
    """Return these kernels with the names of their agents and own images."""
    return kernels.annotate(agent_name=F("agent__name"), own_image=F("image__name"))


def shown_at_launch(session: Any, kernels: list[Any]) -> ComputeSession:
    """Add the attributes that ``shown_sessions`` queries to a new session, and return it."""
    session.owner_email, session.project_name = session.owner.email, session.project.name
    session.launched_by_email = session.launched_by.email if session.launched_by else None
    session.resource_group_name, session.image_name = session.resource_group.name, session.image.name
    session.spec_template, session.spec_parameters = session.spec.get("template"), session.spec.get("parameters")
    session.shown_kernels = kernels
    session.shown_depends_on = list(_others().filter(dependents=session)) if session.spec.get("depends_on") else []
    session.shown_mounts = list(session.mounts.all()) if session.mount_count else []
    for kernel in kernels:
        kernel.agent_name, kernel.own_image = None, kernel.image.name if kernel.image else None
    launched: ComputeSession = session
    return launched


def _others() -> QuerySet[ComputeSession]:
    return ComputeSession.objects.only("pk").order_by("created_at", "pk")

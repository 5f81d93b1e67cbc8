"""Idle checkers for superadmins, and their results for a visible session."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import Http404
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.models import Project
from backendai.domain.accounts.scopes import Scope
from backendai.domain.cluster.idle.checkers import Places, delete_checker, places_of, write_checker
from backendai.domain.cluster.models import IdleChecker, ResourceGroup
from backendai.domain.compute.models import ComputeSession
from backendai.domain.compute.services.life.idle_extension import extend_idle
from backendai.domain.planning.idle.checks import checks_of
from backendai.portal.api.frame.paging import ByName
from backendai.portal.api.frame.parsing import LengthField, StrictSerializer, values_of
from backendai.portal.api.frame.versions import VersionedView
from backendai.portal.api.frame.views import ResourceView
from backendai.portal.api.sessions.views import OneSessionView
from backendai.scheduler.idle_kinds import kind_choices

_Names = {"type": "array", "items": {"type": "string"}}
_LISTS = ("groups", "projects", "except_groups", "except_projects")


def _groups(text: str) -> Any:
    return serializers.SlugRelatedField(
        many=True, slug_field="name", queryset=ResourceGroup.objects.all(), required=False, help_text=text
    )


def _projects(text: str) -> Any:
    return serializers.PrimaryKeyRelatedField(many=True, queryset=Project.objects.all(), required=False, help_text=text)


class CheckerRequest(StrictSerializer):
    """An idle checker; times as ``2h``, in seconds, or as hh:mm:ss. In a change, omitted fields stay.

    A new one applies only to the groups and projects that the request names.
    """

    name = serializers.CharField(max_length=64)
    description = serializers.CharField(max_length=255, required=False, allow_blank=True)
    kind = serializers.ChoiceField(choices=kind_choices())
    is_active = serializers.BooleanField(required=False)
    limit = LengthField()
    grace = LengthField(required=False)
    warning = LengthField(required=False)
    thresholds = serializers.DictField(
        child=serializers.FloatField(), required=False, help_text="Slot → percent; below it the slot counts as unused."
    )
    match = serializers.ChoiceField(choices=IdleChecker.Match.choices, required=False)
    session_types = serializers.ListField(child=serializers.CharField(max_length=16), required=False)
    extension = LengthField(required=False)
    max_extensions = serializers.IntegerField(required=False, min_value=0, max_value=100)
    at_end = serializers.ChoiceField(choices=IdleChecker.AtEnd.choices, required=False)
    is_site_wide = serializers.BooleanField(required=False)
    groups = _groups("Resource groups in which it holds, by name.")
    projects = _projects("Projects in which it holds, by id.")
    except_groups = _groups("Resource groups in which it does not, though it would by a wider place.")
    except_projects = _projects("The same for projects.")


@extend_schema_field(_Names)
class PlacesField(serializers.ReadOnlyField):
    """The places where a checker applies, or where it does not, by a column of its bindings."""

    def __init__(self, column: str, *, applies: bool = True) -> None:
        super().__init__(source="bindings")
        self._column, self._applies = column, applies

    def to_representation(self, bindings: Any) -> list[str]:
        """Return the names of groups, or the IDs of projects."""
        return [
            str(place)
            for row in bindings.all()
            if row.applies == self._applies and (place := getattr(row, self._column))
        ]


class CheckerBody(serializers.ModelSerializer[IdleChecker]):
    """An idle checker, with the groups and projects to which it applies."""

    thresholds = serializers.SerializerMethodField()
    session_types = serializers.ListField(child=serializers.CharField(), read_only=True)
    is_site_wide = serializers.SerializerMethodField()
    groups = PlacesField("resource_group")
    projects = PlacesField("project_id")
    except_groups = PlacesField("resource_group", applies=False)
    except_projects = PlacesField("project_id", applies=False)

    class Meta:
        model = IdleChecker
        fields = [
            "id", "name", "description", "kind", "is_active", "limit", "grace", "warning", "thresholds", "match",
            "session_types", "extension", "max_extensions", "at_end", "is_site_wide", *_LISTS, "created_at",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "number"}})
    def get_thresholds(self, checker: IdleChecker) -> dict[str, float]:
        """Return the thresholds in per cent, by slot."""
        return dict(checker.thresholds)

    def get_is_site_wide(self, checker: IdleChecker) -> bool:
        """Return whether the idle checker applies to the whole site."""
        return any(row.applies and not (row.resource_group or row.project) for row in checker.bindings.all())


class IdleCheckBody(serializers.Serializer[Any]):
    """The result of one idle checker for a session."""

    checker = serializers.IntegerField(source="checker.pk", help_text="ID, for ``extend``.")
    name = serializers.CharField(source="checker.name")
    kind = serializers.CharField(source="checker.kind")
    verdict = serializers.ChoiceField(source="finding.verdict", choices=["keep", "warn", "collect"])
    code = serializers.CharField(
        source="finding.code", help_text="The reason as a code, such as in-use, grace, not-measured, near-end."
    )
    ends_at = serializers.DateTimeField(
        source="finding.due_at", allow_null=True, help_text="When the session ends if nothing changes; null: not known."
    )
    remaining_seconds = serializers.IntegerField(allow_null=True)
    warned_at = serializers.DateTimeField(allow_null=True)
    extended_until = serializers.DateTimeField(allow_null=True)
    limit_seconds = serializers.IntegerField()
    grace_seconds = serializers.IntegerField()
    warning_seconds = serializers.IntegerField()
    idle_seconds = serializers.IntegerField(
        allow_null=True, help_text="Seconds since the last use, or since the start."
    )
    measured_percent = serializers.DictField(child=serializers.FloatField(), help_text="Average utilization by slot.")
    threshold_percent = serializers.DictField(child=serializers.FloatField())
    match = serializers.CharField(source="checker.match")
    message = serializers.CharField(help_text="The warning to the owner; empty: none.")
    extensions_left = serializers.IntegerField()
    extension_seconds = serializers.IntegerField()


class IdleChecksBody(serializers.Serializer[Any]):
    """The results of the idle checkers for a session; empty if none applies or the session is not running."""

    ends_at = serializers.DateTimeField(allow_null=True, help_text="The earliest announced end.")
    results = IdleCheckBody(many=True)


class ExtendRequest(StrictSerializer):
    """The checker whose warning is postponed."""

    checker = serializers.IntegerField(min_value=1, max_value=2**63 - 1)


def merged_places(checker: IdleChecker | None, data: dict[str, Any]) -> Places | None:
    """Remove the places of an idle checker from ``data`` and return them.

    Omitted ones get the checker's current values. Returns None if the request has no places.
    """
    names = ("is_site_wide", *_LISTS)
    said = {name: data.pop(name) for name in names if name in data}
    if not said:
        return None
    now = places_of(checker) if checker is not None else Places()
    return Places(*(said.get(name, getattr(now, name)) for name in names))


class IdleCheckerView(ResourceView[IdleChecker]):
    """The base of the views of idle checkers."""

    queryset = IdleChecker.objects.prefetch_related("bindings__resource_group", "bindings__project")
    serializer_class = CheckerBody
    token_scopes = (Scope.ADMIN,)


class IdleCheckerList(IdleCheckerView, ListAPIView[IdleChecker]):
    """All idle checkers; creates one."""

    pagination_class = ByName

    @extend_schema(request=CheckerRequest, responses={201: CheckerBody})
    def post(self, request: Request) -> Response:
        """Create an idle checker; its checks start within 15 seconds."""
        if not self.user.is_superadmin:
            raise Http404
        values = values_of(CheckerRequest, request.data)
        places = merged_places(None, values)
        made = write_checker(self.user.pk, IdleChecker(), values, places)
        return self.answer(get_object_or_404(self.get_queryset(), pk=made.pk), status.HTTP_201_CREATED)


class IdleCheckerDetail(VersionedView, IdleCheckerView):
    """One idle checker."""

    versioned = (IdleChecker, "pk")

    @extend_schema(responses=CheckerBody)
    def get(self, request: Request, pk: int) -> Response:
        """Return the idle checker."""
        return self.answer(self.get_object())

    @extend_schema(request=CheckerRequest, responses=CheckerBody)
    def patch(self, request: Request, pk: int) -> Response:
        """Change the given fields; existing warnings are issued again by the new rule."""
        checker, values = self.get_object(), values_of(CheckerRequest, request.data, partial=True)
        places = merged_places(checker, values)
        write_checker(self.user.pk, checker, values, places)
        return self.answer(self.get_object())

    def delete(self, request: Request, pk: int) -> Response:
        """Delete the idle checker; its warnings are cancelled."""
        delete_checker(self.user.pk, self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)


class SessionIdleChecks(OneSessionView):
    """The results of the idle checkers for a session."""

    serializer_class = IdleChecksBody

    @extend_schema(responses=IdleChecksBody)
    def get(self, request: Request, session_id: UUID) -> Response:
        """Return each checker with its measurement, limit and remaining time."""
        return Response(_checks(self.get_object()))


class SessionIdleExtension(OneSessionView):
    """Extending a warned session."""

    serializer_class = IdleChecksBody

    @extend_schema(request=ExtendRequest, responses=IdleChecksBody)
    def post(self, request: Request, session_id: UUID) -> Response:
        """Postpone the announced end; 409 ``no-more-extensions`` if the checker allows no more."""
        session, values = self.get_object(), values_of(ExtendRequest, request.data)
        extend_idle(session, self.user, values["checker"], now=timezone.now())
        return Response(_checks(session))


def _checks(session: ComputeSession) -> Any:
    checks = checks_of(session, now=timezone.now())
    ends = [check.finding.due_at for check in checks if check.warned_at and check.finding.due_at]
    return IdleChecksBody({"ends_at": min(ends, default=None), "results": checks}).data

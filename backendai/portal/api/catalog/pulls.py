"""Pulls of images to agents before a session needs them, for superadmins."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.errors import UserError
from backendai.domain.accounts.scopes import Scope
from backendai.domain.catalog.models import Image, ImagePull
from backendai.domain.catalog.pulls import MOST_AGENTS, pulls_of, start_pull
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.portal.api.cluster.jobs import JobBody
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.parsing import StrictSerializer, values_of


class PullRequest(StrictSerializer):
    """The agents and whole resource groups that should have the image, by name."""

    agents = serializers.ListField(
        child=serializers.CharField(max_length=63), required=False, default=list, max_length=MOST_AGENTS
    )
    resource_groups = serializers.ListField(
        child=serializers.CharField(max_length=63), required=False, default=list, max_length=MOST_AGENTS
    )


class PullBody(serializers.ModelSerializer[ImagePull]):
    """The pull of one agent."""

    agent = serializers.CharField(source="agent.name")

    class Meta:
        model = ImagePull
        fields = ["agent", "status", "progress", "message", "heard_at"]
        read_only_fields = fields


class PullsBody(serializers.Serializer[Any]):
    """The newest pull of an image: its job (null: none), and the progress of each agent."""

    job = JobBody(allow_null=True)
    agents = PullBody(many=True)


class ImagePulls(GenericAPIView[Any]):
    """Pulling one image to agents."""

    serializer_class = PullsBody
    token_scopes = (Scope.ADMIN,)

    @extend_schema(responses=PullsBody)
    def get(self, request: Request, image_id: UUID) -> Response:
        """Return the newest pull of the image."""
        job, pulls = pulls_of(_image(request, image_id))
        return Response(PullsBody({"job": job, "agents": pulls}).data)

    @extend_schema(request=PullRequest, responses={202: JobBody})
    def post(self, request: Request, image_id: UUID) -> Response:
        """Start the pull, and return the background job; 409 while another one runs for this image."""
        values = values_of(PullRequest, request.data)
        agents = Agent.objects.visible_to(user_of(request)).select_related("resource_group")
        job = start_pull(
            user_of(request),
            _image(request, image_id),
            agents=_named(agents, values["agents"], "agents"),
            groups=_named(ResourceGroup.objects.all(), values["resource_groups"], "resource_groups"),
            now=timezone.now(),
        )
        return Response(JobBody(job).data, status=status.HTTP_202_ACCEPTED)


def _image(request: Request, image_id: UUID) -> Image:
    images = Image.objects.all() if user_of(request).is_superadmin else Image.objects.none()
    return get_object_or_404(images, pk=image_id)


def _named(rows: Any, names: list[str], field: str) -> list[Any]:
    found = {row.name: row for row in rows.filter(name__in=names)}
    if unknown := sorted(set(names) - found.keys()):
        raise UserError(
            "Not found: {unknown}.",
            unknown=repr(unknown[0]),
            field=field,
            code=f"unknown-{field[:-1].replace('_', '-')}",
        )
    return list(found.values())

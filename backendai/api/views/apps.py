"""The apps of a session: what there is, and a way in for scripts."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import Http404
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backendai.accounts.scopes import Scope
from backendai.api.authentication import asker, standing_of
from backendai.api.parsing import StrictJSONParser, StrictSerializer
from backendai.compute.app_models import PublicFor
from backendai.compute.models import ComputeSession
from backendai.compute.services.apps import App, apps_of, main_kernel, make_entry
from backendai.compute.services.public_apps import (
    close_to_others,
    open_to_everybody,
    public_services,
)


class AppBody(serializers.Serializer[Any]):
    """One service of the session's image."""

    name = serializers.CharField()
    title = serializers.CharField()
    protocol = serializers.CharField(help_text="http or preopen open in a browser.")
    port = serializers.IntegerField(help_text="In the container.")
    url = serializers.URLField(help_text="The app's own origin.")
    code = serializers.CharField(help_text="Why it cannot be opened now; empty when it can.")
    reason = serializers.CharField(help_text="The same in one sentence.")
    gives_shell = serializers.BooleanField(help_text="Its users can run commands (JupyterLab, a terminal, VS Code).")
    is_public = serializers.SerializerMethodField(help_text="Anyone who has the address may use it.")
    public_until = serializers.SerializerMethodField(
        help_text="When a public app becomes private by itself; null for a private app, and for one that stays public "
        "until the session ends."
    )

    def get_is_public(self, app: App) -> bool:
        """Return whether anyone may use it."""
        return app.name in self.context["public"]

    def get_public_until(self, app: App) -> datetime | None:
        """Return when it becomes private by itself."""
        end: datetime | None = self.context["public"].get(app.name)
        return end


class AppListBody(serializers.Serializer[Any]):
    """All apps, in the order of the image."""

    results = AppBody(many=True)


class AppEntryBody(serializers.Serializer[Any]):
    """A way in: POST ``code`` as a form field to ``url`` and keep the cookie."""

    url = serializers.URLField()
    code = serializers.CharField(help_text="Good once.")
    expires_in = serializers.IntegerField(help_text="Seconds.")


class PublicAppBody(StrictSerializer):
    """How long an app is public."""

    public_for = serializers.ChoiceField(
        PublicFor.choices, default=PublicFor.DAY, help_text="1h, 1d, or session: until the session ends."
    )


class SessionApps(APIView):
    """What the session's image serves."""

    @extend_schema(responses=AppListBody)
    def get(self, request: Request, session_id: UUID) -> Response:
        """Return the apps, each with why it cannot be opened now."""
        session = _session(request, session_id)
        found = apps_of(session, main_kernel(session))
        return Response(
            AppListBody({"results": found}, context={"public": public_services(session, timezone.now())}).data
        )


class SessionApp(APIView):
    """The way into one app."""

    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=None, responses={201: AppEntryBody})
    def post(self, request: Request, session_id: UUID, service: str) -> Response:
        """Return a one-time code; it ends with the token or login that asked for it. 409 when the app cannot be
        opened now."""
        session = _session(request, session_id)
        standing = standing_of(request)
        if standing is None:
            raise Http404
        entry = make_entry(asker(request), session, service, standing, timezone.now(), portal=request.get_host())
        answer = {"url": entry.url, "code": entry.code, "expires_in": entry.seconds}
        return Response(answer, status=status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})


class SessionAppForEverybody(APIView):
    """Whether anyone who has the app's address may use it."""

    parser_classes = [StrictJSONParser]
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=PublicAppBody, responses={200: AppBody})
    def put(self, request: Request, session_id: UUID, service: str) -> Response:
        """Make the app public for an hour, a day (the default) or until the session ends. Doing it again changes the
        end. 409 when the site does not allow it, or the app cannot be opened now."""
        session, now = _session(request, session_id), timezone.now()
        body = PublicAppBody(data=request.data)
        body.is_valid(raise_exception=True)
        public_for = PublicFor(body.validated_data["public_for"])
        app = open_to_everybody(asker(request), session, service, now=now, public_for=public_for)
        return Response(AppBody(app, context={"public": public_services(session, now)}).data)

    @extend_schema(request=None, responses={204: None})
    def delete(self, request: Request, session_id: UUID, service: str) -> Response:
        """Make the app private again. Open connections of others are cut within seconds."""
        close_to_others(asker(request), _session(request, session_id), service)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _session(request: Request, session_id: UUID) -> ComputeSession:
    visible = ComputeSession.objects.visible_to(asker(request)).select_related("image", "resource_group")
    session: ComputeSession = get_object_or_404(visible, pk=session_id)
    return session

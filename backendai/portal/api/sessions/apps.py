"""The apps of a session, and access to them for scripts."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.app_arguments import LONGEST_VALUE
from backendai.domain.compute.models import LONGEST_APP_TITLE, ComputeSession, PublicFor
from backendai.domain.compute.services.apps.of_session import App, apps_of, main_kernel, make_entry, settings_of
from backendai.domain.compute.services.apps.public import close_to_others, open_to_everybody, public_services
from backendai.domain.compute.services.apps.settings import change_app
from backendai.domain.compute.status import ShareRight
from backendai.portal.api.frame.authentication import credential_of
from backendai.portal.api.frame.parsing import StrictSerializer, values_of
from backendai.portal.api.sessions.views import OneSessionView


class AppBody(serializers.Serializer[Any]):
    """One app of the session's image."""

    name = serializers.CharField()
    title = serializers.CharField()
    protocol = serializers.CharField(help_text="http and preopen can be opened in a browser.")
    port = serializers.IntegerField(help_text="The port in the container.")
    url = serializers.URLField(help_text="The app's own origin.")
    program_url = serializers.CharField(
        help_text="The address for programs, which send an access token with the scope sessions. Empty: not HTTP."
    )
    gateway_command = serializers.CharField(
        help_text="With it a JupyterLab elsewhere runs its kernels in this session; the token is in BAI_TOKEN."
    )
    code = serializers.CharField(help_text="Why the app cannot be opened now; empty: it can.")
    reason = serializers.CharField(help_text="The same as a sentence.")
    category = serializers.CharField(help_text="Its group among the apps.")
    arguments = serializers.DictField(
        child=serializers.CharField(), help_text="Arguments that the image allows, with their current values."
    )
    gives_shell = serializers.BooleanField(help_text="Its users can run commands (JupyterLab, a terminal, VS Code).")
    is_public = serializers.SerializerMethodField(help_text="Anyone with the address can use it.")
    public_until = serializers.SerializerMethodField(
        help_text="When a public app becomes private; null for a private app, and for one that stays public "
        "until the session ends."
    )

    def get_is_public(self, app: App) -> bool:
        """Return whether anyone with the address can use the app."""
        return app.name in self.context["public"]

    def get_public_until(self, app: App) -> datetime | None:
        """Return when the app becomes private."""
        end: datetime | None = self.context["public"].get(app.name)
        return end


class AppListBody(serializers.Serializer[Any]):
    """All apps of a session, in the image's order."""

    results = AppBody(many=True)


class AppEntryBody(serializers.Serializer[Any]):
    """Access to an app: POST ``code`` as a form field to ``url`` and keep the cookie."""

    url = serializers.URLField()
    code = serializers.CharField(help_text="Valid once.")
    expires_in = serializers.IntegerField(help_text="Seconds.")


class AppSettingsBody(StrictSerializer):
    """An app's title and arguments."""

    title = serializers.CharField(
        default="", allow_blank=True, max_length=LONGEST_APP_TITLE, help_text="Empty: the default title."
    )
    arguments = serializers.DictField(
        default=dict,
        child=serializers.CharField(allow_blank=True, max_length=LONGEST_VALUE, trim_whitespace=False),
        help_text="Values by argument.",
    )


class PublicAppBody(StrictSerializer):
    """The time for which an app is public."""

    public_for = serializers.ChoiceField(
        PublicFor.choices, default=PublicFor.DAY, help_text="1h, 1d, or session: until the session ends."
    )


class AppView(OneSessionView):
    """The base of the views of a session's apps."""

    queryset = ComputeSession.objects.select_related("image", "resource_group")
    serializer_class = AppBody

    def shown(self, session: ComputeSession, app: App) -> Response:
        """Return the app as the response."""
        return Response(AppBody(app, context={"public": public_services(session, timezone.now())}).data)


class SessionApps(AppView):
    """The apps of a session."""

    right = ShareRight.USE

    @extend_schema(responses=AppListBody)
    def get(self, request: Request, session_id: UUID) -> Response:
        """Return the apps, each with the reason if it cannot be opened now."""
        session = self.get_object()
        found = apps_of(session, main_kernel(session), settings_of(session))
        return Response(
            AppListBody({"results": found}, context={"public": public_services(session, timezone.now())}).data
        )


class SessionApp(AppView):
    """Access to one app."""

    right = ShareRight.USE

    @extend_schema(request=None, responses={201: AppEntryBody})
    def post(self, request: Request, session_id: UUID, service: str) -> Response:
        """Return a one-time code for the app.

        Access ends with the token or sign-in of this request. 409 if the app cannot be opened now.
        """
        session, credential = self.get_object(), credential_of(request)
        if credential is None:
            raise Http404
        entry = make_entry(self.user, session, service, credential, timezone.now(), portal=request.get_host())
        answer = {"url": entry.url, "code": entry.code, "expires_in": entry.seconds}
        return Response(answer, status=status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})


class SessionAppSettings(AppView):
    """The settings of one app."""

    @extend_schema(request=AppSettingsBody, responses={200: AppBody})
    def put(self, request: Request, session_id: UUID, service: str) -> Response:
        """Set the app's title and arguments; they apply from its next start, and omitted ones are reset to the
        default.
        """
        session, values = self.get_object(), values_of(AppSettingsBody, request.data)
        return self.shown(session, change_app(self.user, session, service, **values))


class SessionAppForEverybody(AppView):
    """Public access to an app."""

    @extend_schema(request=PublicAppBody, responses={200: AppBody})
    def put(self, request: Request, session_id: UUID, service: str) -> Response:
        """Make the app public for an hour, a day (the default) or until the session ends.

        A repeated request changes the end. 409 if the site does not allow it, or the app cannot be opened now.
        """
        session, values = self.get_object(), values_of(PublicAppBody, request.data)
        public_for = PublicFor(values["public_for"])
        app = open_to_everybody(self.user, session, service, now=timezone.now(), public_for=public_for)
        return self.shown(session, app)

    def delete(self, request: Request, session_id: UUID, service: str) -> Response:
        """Make the app private again. Open connections of others are closed within seconds."""
        close_to_others(self.user, self.get_object(), service)
        return Response(status=status.HTTP_204_NO_CONTENT)

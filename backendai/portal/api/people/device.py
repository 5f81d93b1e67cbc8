"""Signing in a program on another computer (RFC 8628): it asks here, and a person answers on the page ``/device/``."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.parsers import FormParser
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.texts.messages import in_words
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services.devices import (
    INTERVAL,
    LONGEST_CLIENT,
    VALID_FOR,
    DeviceRefused,
    open_request,
    redeem_device_code,
)
from backendai.portal.api.frame.errors import problem
from backendai.portal.api.frame.parsing import StrictJSONParser, StrictSerializer, values_of

_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_SECRET = {"Cache-Control": "no-store"}


class DeviceCodeRequest(StrictSerializer):
    """A program that asks for an access token."""

    client_name = serializers.CharField(
        max_length=LONGEST_CLIENT, help_text="The program and its computer, as the person sees it."
    )
    scope = serializers.CharField(
        max_length=100, default="", allow_blank=True, help_text="Scopes of the token, with spaces between; none: all."
    )


class DeviceCodeBody(serializers.Serializer[Any]):
    """The codes of a request."""

    device_code = serializers.CharField(help_text="A secret of the program.")
    user_code = serializers.CharField(help_text="For the person, at verification_uri.")
    verification_uri = serializers.CharField()
    verification_uri_complete = serializers.CharField(help_text="The same with the code.")
    expires_in = serializers.IntegerField(help_text="Seconds.")
    interval = serializers.IntegerField(help_text="Seconds between two questions for the token.")


class DeviceTokenRequest(StrictSerializer):
    """A question for the token of a request."""

    device_code = serializers.CharField(max_length=128)
    grant_type = serializers.ChoiceField(choices=[_GRANT])


class DeviceTokenBody(serializers.Serializer[Any]):
    """An access token; its text is only in this response."""

    access_token = serializers.CharField()
    token_type = serializers.ChoiceField(choices=["Bearer"])
    scope = serializers.CharField()
    expires_at = serializers.DateTimeField()
    user = serializers.EmailField(help_text="Who allowed it.")


class _DeviceView(GenericAPIView[Any]):
    """The base of the addresses that a program uses before it has a token."""

    permission_classes = (AllowAny,)
    parser_classes = (StrictJSONParser, FormParser)
    token_scopes = (Scope.READ,)  # it needs no token, so no right of one


class DeviceCode(_DeviceView):
    """Requests of programs for access tokens."""

    serializer_class = DeviceCodeBody

    @extend_schema(request={"application/json": DeviceCodeRequest}, responses=DeviceCodeBody)
    def post(self, request: Request) -> Response:
        """Open a request for an access token; somebody who is signed in must allow it within ten minutes."""
        values = values_of(DeviceCodeRequest, request.data)
        address, scopes = request.META.get("REMOTE_ADDR", ""), values["scope"].split()
        row, secret = open_request(values["client_name"], scopes, address, now=timezone.now())
        page = request.build_absolute_uri(reverse("web:device"))
        answer = {
            "device_code": secret,
            "user_code": row.user_code,
            "verification_uri": page,
            "verification_uri_complete": f"{page}?{urlencode({'code': row.user_code})}",
            "expires_in": int(VALID_FOR.total_seconds()),
            "interval": int(INTERVAL.total_seconds()),
        }
        return Response(answer, headers=_SECRET)


class DeviceToken(_DeviceView):
    """The tokens of such requests."""

    serializer_class = DeviceTokenBody

    @extend_schema(request={"application/json": DeviceTokenRequest}, responses=DeviceTokenBody)
    def post(self, request: Request) -> HttpResponse:
        """Return the access token once the request is allowed, one time; until then 400 with ``error``."""
        values = values_of(DeviceTokenRequest, request.data)
        try:
            token, text = redeem_device_code(values["device_code"], now=timezone.now())
        except DeviceRefused as error:
            name = error.code.replace("-", "_")
            return problem(400, error.code, in_words(error.message), data=dict(error.details), error=name)
        answer = {
            "access_token": text,
            "token_type": "Bearer",
            "scope": " ".join(token.scopes),
            "expires_at": token.expires_at,
            "user": token.user.email,
        }
        return Response(DeviceTokenBody(answer).data, headers=_SECRET)

"""Where one wants to be told of one's sessions."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.accounts.scopes import Scope
from backendai.activity.notices import CHANNELS, CHOSEN, Channels, choices_of, choose
from backendai.api.authentication import asker
from backendai.api.parsing import StrictJSONParser, StrictSerializer


class ChannelsBody(StrictSerializer):
    """Where one kind of news is shown; in a request, what to change."""

    card = serializers.BooleanField(required=False, help_text="A card on the page that is open.")
    bell = serializers.BooleanField(required=False, help_text="A line under the bell.")
    email = serializers.BooleanField(required=False, help_text="An e-mail, where the site sends any.")


class NoticeChoicesBody(StrictSerializer):
    """The channels of each kind of news; in a request, those to change."""

    started = ChannelsBody(required=False, help_text="A launch, and a start after a wait of more than a minute.")
    failed = ChannelsBody(required=False)
    ended = ChannelsBody(required=False, help_text="Ended by the platform or an administrator.")
    ending = ChannelsBody(required=False, help_text="It will end soon.")


class NoticeChoices(GenericAPIView[Any]):
    """Where one wants to be told of one's sessions."""

    serializer_class = NoticeChoicesBody
    parser_classes = [StrictJSONParser]
    token_scopes = (Scope.ACCOUNT,)
    filter_backends: list[Any] = []

    @extend_schema(responses=NoticeChoicesBody)
    def get(self, request: Request) -> Response:
        """Return the channels of each kind of news."""
        return Response(_body(choices_of(asker(request))))

    @extend_schema(request=NoticeChoicesBody, responses=NoticeChoicesBody)
    def patch(self, request: Request) -> Response:
        """Change those that are named; 400 ``no-mail-server`` for e-mail where the site sends none."""
        body = NoticeChoicesBody(data=request.data)
        body.is_valid(raise_exception=True)
        return Response(_body(choose(asker(request), body.validated_data)))


def _body(choices: dict[str, Channels]) -> dict[str, dict[str, bool]]:
    return {str(kind): {name: getattr(choices[kind], name) for name in CHANNELS} for kind in CHOSEN}

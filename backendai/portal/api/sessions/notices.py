"""The user's settings of notifications about sessions."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.scopes import Scope
from backendai.domain.activity.notices import CHANNELS, CHOSEN, Choice, choices_of, choose
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.parsing import StrictSerializer, values_of


class ChannelsBody(StrictSerializer):
    """The channels of one kind of notification; a request contains the changes."""

    def get_fields(self) -> dict[str, Any]:
        """Return a field for each channel."""
        return {one.name: serializers.BooleanField(required=False, help_text=one.help) for one in CHANNELS.values()}


class NoticeChoicesBody(StrictSerializer):
    """The channels of each kind of notification; a request contains the changes."""

    started = ChannelsBody(required=False, help_text="Launches, and starts after a wait of more than a minute.")
    finished = ChannelsBody(required=False, help_text="Batch sessions and runs that finished successfully.")
    failed = ChannelsBody(required=False)
    ended = ChannelsBody(required=False, help_text="Ended by the platform or an administrator.")
    ending = ChannelsBody(required=False, help_text="Sessions that end soon.")
    given = ChannelsBody(required=False, help_text="Access that somebody gives: folders, images, templates, projects.")


class NoticeChoices(GenericAPIView[Any]):
    """The notification settings of the user."""

    serializer_class = NoticeChoicesBody
    token_scopes = (Scope.ACCOUNT,)

    @extend_schema(responses=NoticeChoicesBody)
    def get(self, request: Request) -> Response:
        """Return the channels of each kind of notification."""
        return Response(_chosen(choices_of(user_of(request))))

    @extend_schema(request=NoticeChoicesBody, responses=NoticeChoicesBody)
    def patch(self, request: Request) -> Response:
        """Change the given channels; 400 ``no-mail-server`` for e-mail if the site sends none."""
        return Response(_chosen(choose(user_of(request), values_of(NoticeChoicesBody, request.data))))


def _chosen(choices: dict[str, Choice]) -> dict[str, Choice]:
    return {str(kind): choices[kind] for kind in CHOSEN}

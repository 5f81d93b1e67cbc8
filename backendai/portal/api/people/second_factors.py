"""Second factors: everyone lists their own, administrators reset those of people who have lost them."""

from __future__ import annotations

from uuid import UUID

from allauth.mfa.models import Authenticator
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.domain.accounts.roles import Action, check_user
from backendai.domain.accounts.sign_in.second_factors import reset_factors
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.paging import OnePage, only_page
from backendai.portal.api.people.views import UserView


class SecondFactorBody(serializers.ModelSerializer[Authenticator]):
    """A second factor, without its secret."""

    name = serializers.SerializerMethodField(help_text="Of a passkey; empty: it has none.")
    codes_left = serializers.SerializerMethodField(help_text="How many recovery codes are unused; null: no such.")

    class Meta:
        model = Authenticator
        fields = ["id", "type", "name", "codes_left", "created_at", "last_used_at"]
        read_only_fields = fields

    def get_name(self, factor: Authenticator) -> str:
        """Return the name that its owner gave a passkey."""
        return str(factor.wrap().name) if factor.type == Authenticator.Type.WEBAUTHN else ""

    def get_codes_left(self, factor: Authenticator) -> int | None:
        """Return the number of unused recovery codes."""
        is_codes = factor.type == Authenticator.Type.RECOVERY_CODES
        return len(factor.wrap().get_unused_codes()) if is_codes else None


class OwnSecondFactors(GenericAPIView[Authenticator]):
    """The second factors of the user."""

    queryset = Authenticator.objects.order_by("created_at")
    serializer_class = SecondFactorBody
    pagination_class = OnePage

    @extend_schema(responses=SecondFactorBody(many=True))
    def get(self, request: Request) -> Response:
        """Return the second factors, the oldest first."""
        return only_page(SecondFactorBody(self.get_queryset().filter(user=user_of(request)), many=True).data)


class UserSecondFactors(UserView):
    """The second factors of a user who has lost them."""

    def delete(self, request: Request, user_id: UUID) -> Response:
        """Delete all second factors; all sign-ins of the user end. Verify first who asked for it."""
        user = self.get_object()
        check_user(self.user, Action.SET_PASSWORD, user)
        reset_factors(self.user.pk, user, now=timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)

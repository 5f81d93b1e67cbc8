"""What key pairs look like."""

from __future__ import annotations

from rest_framework import serializers

from backendai.accounts.models import KeyPair
from backendai.api.answers import Answer
from backendai.api.parsing import StrictSerializer


class KeyPairBody(Answer[KeyPair]):
    """A key pair without its secret."""

    has_secret = serializers.SerializerMethodField(help_text="Without one it signs nothing: rotate it to get one.")

    class Meta:
        model = KeyPair
        fields = [
            "access_key", "name", "is_active", "is_main", "has_secret", "rate_limit", "created_at", "last_used_at",
        ]  # fmt: skip
        read_only_fields = fields

    def get_has_secret(self, pair: KeyPair) -> bool:
        """Return whether requests can be signed with it."""
        return bool(pair.secret)


class NewKeyPairBody(KeyPairBody):
    """A key pair with its secret, which is said this once."""

    secret_key = serializers.CharField()

    class Meta(KeyPairBody.Meta):
        fields = [*KeyPairBody.Meta.fields, "secret_key"]
        read_only_fields = fields


class KeyPairRequest(StrictSerializer):
    """A new key pair."""

    name = serializers.CharField(max_length=64)


class KeyPairChange(StrictSerializer):
    """What to change of a key pair; what is left out stays."""

    name = serializers.CharField(max_length=64, required=False)
    is_active = serializers.BooleanField(required=False)
    is_main = serializers.BooleanField(required=False)

"""Bodies of key pairs."""

from __future__ import annotations

from rest_framework import serializers

from backendai.domain.accounts.models import KeyPair
from backendai.portal.api.frame.answers import Answer
from backendai.portal.api.frame.parsing import StrictSerializer


class KeyPairBody(Answer[KeyPair]):
    """A key pair without its secret."""

    has_secret = serializers.SerializerMethodField(
        help_text="false: it cannot sign requests; rotate it to get a secret."
    )

    class Meta:
        model = KeyPair
        fields = [
            "access_key", "name", "is_active", "is_main", "has_secret", "rate_limit", "created_at", "last_used_at",
        ]  # fmt: skip
        read_only_fields = fields

    def get_has_secret(self, pair: KeyPair) -> bool:
        """Return whether the key pair has a secret, so can sign requests."""
        return bool(pair.secret)


class NewKeyPairBody(KeyPairBody):
    """A key pair with its secret, which is only shown once."""

    secret_key = serializers.CharField()

    class Meta(KeyPairBody.Meta):
        fields = [*KeyPairBody.Meta.fields, "secret_key"]
        read_only_fields = fields


class KeyPairRequest(StrictSerializer):
    """A new key pair."""

    name = serializers.CharField(max_length=64)


class KeyPairChange(StrictSerializer):
    """Changes of a key pair; omitted fields stay unchanged."""

    name = serializers.CharField(max_length=64, required=False)
    is_active = serializers.BooleanField(required=False)
    is_main = serializers.BooleanField(required=False)

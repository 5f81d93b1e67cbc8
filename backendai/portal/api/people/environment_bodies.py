"""Bodies of SSH keys, dotfiles and the bootstrap script."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from backendai.domain.accounts.models import Dotfile, SshKey
from backendai.portal.api.frame.answers import Answer
from backendai.portal.api.frame.parsing import StrictSerializer


class SshKeyBody(Answer[SshKey]):
    """A public key."""

    class Meta:
        model = SshKey
        fields = ["id", "name", "fingerprint", "public_key", "created_at"]
        read_only_fields = fields


class SshKeyRequest(StrictSerializer):
    """A new public key, on one line."""

    public_key = serializers.CharField(max_length=8192)
    name = serializers.CharField(max_length=64, default="", allow_blank=True, help_text="Default: the key's comment.")
    proof = serializers.CharField(
        max_length=8192, default="", allow_blank=True, help_text="A signature, for a key of another account."
    )


class DotfileBody(Answer[Dotfile]):
    """A file for the home folder of sessions."""

    class Meta:
        model = Dotfile
        fields = ["id", "path", "permission", "content", "updated_at"]
        read_only_fields = fields


class DotfileRequest(StrictSerializer):
    """A file to create or replace."""

    path = serializers.CharField(max_length=255, trim_whitespace=False, help_text="Relative to the home folder.")
    permission = serializers.CharField(max_length=3, default="644", help_text="Three octal digits.")
    content = serializers.CharField(default="", allow_blank=True, trim_whitespace=False)


class BootstrapBody(serializers.Serializer[Any]):
    """The bootstrap script; empty: none."""

    content = serializers.CharField(allow_blank=True)
    updated_at = serializers.DateTimeField(allow_null=True)


class BootstrapRequest(StrictSerializer):
    """The new bootstrap script."""

    content = serializers.CharField(allow_blank=True, trim_whitespace=False)

"""Bodies of SSH access."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from backendai.api.parsing import StrictSerializer


class SshConfigBody(serializers.Serializer[Any]):
    """Text for two files of a client."""

    config = serializers.CharField()
    known_hosts = serializers.CharField()


class SshWayBody(serializers.Serializer[Any]):
    """How a session is reached. ``commands`` by what they do; ``other_kernels``: shells in those of a cluster."""

    host = serializers.CharField()
    port = serializers.IntegerField()
    user = serializers.CharField()
    fingerprint = serializers.CharField()
    known_hosts = serializers.CharField()
    commands = serializers.DictField(child=serializers.CharField())
    other_kernels = serializers.ListField(child=serializers.CharField())


class SystemSessionBody(SshWayBody):
    """The session that opens folders, and how it is reached."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    status = serializers.CharField()
    left_out = serializers.ListField(
        child=serializers.CharField(), help_text="Names of folders that it does not open: no agent mounts all of them."
    )


class SshKeyWish(StrictSerializer):
    """Whether the old key shall open nothing any more."""

    renew = serializers.BooleanField(default=False)


class SshPrivateKeyBody(serializers.Serializer[Any]):
    """A private key as OpenSSH writes it."""

    private_key = serializers.CharField()
    fingerprint = serializers.CharField()

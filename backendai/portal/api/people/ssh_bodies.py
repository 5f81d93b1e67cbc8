"""Bodies of requests and answers about SSH access."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from backendai.portal.api.frame.parsing import StrictSerializer


class SshConfigBody(serializers.Serializer[Any]):
    """Contents of ``~/.ssh/config`` and ``known_hosts``."""

    config = serializers.CharField()
    known_hosts = serializers.CharField()


class SshWayBody(serializers.Serializer[Any]):
    """How to reach a session by SSH.

    ``commands`` are by purpose; ``other_kernels`` are shells in the other kernels of a cluster session.
    """

    host = serializers.CharField()
    port = serializers.IntegerField()
    user = serializers.CharField()
    fingerprint = serializers.CharField()
    known_hosts = serializers.CharField()
    commands = serializers.DictField(child=serializers.CharField())
    other_kernels = serializers.ListField(child=serializers.CharField())


class SystemSessionBody(SshWayBody):
    """The session that opens folders, and how to reach it."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    status = serializers.CharField()
    left_out = serializers.ListField(
        child=serializers.CharField(), help_text="Names of folders that it does not open: no agent mounts all of them."
    )


class SshKeyWish(StrictSerializer):
    """Whether to replace the key, which revokes the old one."""

    renew = serializers.BooleanField(default=False)


class SshPrivateKeyBody(serializers.Serializer[Any]):
    """A private key in OpenSSH's format."""

    private_key = serializers.CharField()
    fingerprint = serializers.CharField()

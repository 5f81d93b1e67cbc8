"""SSH access to sessions: configuration, commands and keys."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.errors import Conflict
from backendai.base.core.names import FOLDERS
from backendai.domain.accounts.scopes import Scope
from backendai.domain.compute.services.launching.system_sessions import left_out, open_folders
from backendai.gates.gateways.ssh_access import (
    SshSite,
    config_of,
    folder_lines_for,
    home_of,
    key_of,
    lines_for,
    other_kernels,
    site_for,
)
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.parsing import StrictSerializer, values_of
from backendai.portal.api.sessions.views import OneSessionView


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


class SessionSshKeyRequest(StrictSerializer):
    """Whether to replace the key, which revokes the old one."""

    renew = serializers.BooleanField(default=False)


class SshPrivateKeyBody(serializers.Serializer[Any]):
    """A private key in OpenSSH's format."""

    private_key = serializers.CharField()
    fingerprint = serializers.CharField()


class SshConfig(GenericAPIView[Any]):
    """The user's sessions as blocks of ``~/.ssh/config``."""

    serializer_class = SshConfigBody
    token_scopes = (Scope.SESSIONS,)

    def get(self, request: Request) -> Response:
        """Return the blocks, and the line of ``known_hosts``."""
        site = _site(request)
        told = {"config": config_of(user_of(request), site), "known_hosts": site.known_hosts}
        return Response(SshConfigBody(told).data)


class SessionSsh(OneSessionView):
    """How to reach one session by SSH."""

    serializer_class = SshWayBody

    def get(self, request: Request, session_id: UUID) -> Response:
        """Return address, fingerprint of the host key, and ready commands."""
        session, site = self.get_object(), _site(request)
        told = {"host": site.host, "port": site.port, "user": session.name, "fingerprint": site.fingerprint}
        told |= {"known_hosts": site.known_hosts, "commands": lines_for(site, session.name, home_of(session))}
        told["other_kernels"] = other_kernels(site, session)
        return Response(SshWayBody(told).data)


class SystemSessions(GenericAPIView[Any]):
    """The session that opens all folders of the user to file clients."""

    serializer_class = SystemSessionBody
    token_scopes = (Scope.SESSIONS,)

    @extend_schema(request=None, responses={200: SystemSessionBody})
    def post(self, request: Request) -> Response:
        """Return the session, started if needed, and how to reach it. It ends some time after its last connection."""
        site = _site(request)
        user = user_of(request)
        session = open_folders(user, timezone.now())
        told = {"host": site.host, "port": site.port, "user": FOLDERS, "fingerprint": site.fingerprint}
        told |= {"known_hosts": site.known_hosts, "commands": folder_lines_for(site), "other_kernels": []}
        told |= {"id": session.pk, "name": session.name, "status": session.status}
        told["left_out"] = left_out(user, session)
        return Response(SystemSessionBody(told).data)


class SessionSshKeyView(OneSessionView):
    """The SSH key that opens only this session."""

    serializer_class = SshPrivateKeyBody

    @extend_schema(request=SessionSshKeyRequest, responses={200: SshPrivateKeyBody})
    def post(self, request: Request, session_id: UUID) -> Response:
        """Return the private key, or with ``renew`` a new one; for the owner only."""
        session, values = self.get_object(), values_of(SessionSshKeyRequest, request.data)
        private, fingerprint = key_of(self.user, session, renew=values["renew"])
        return Response(SshPrivateKeyBody({"private_key": private, "fingerprint": fingerprint}).data)


def _site(request: Request) -> SshSite:
    site = site_for(request.get_host())
    if site is None:
        raise Conflict("SSH is switched off on this platform.", code="no-ssh")
    return site

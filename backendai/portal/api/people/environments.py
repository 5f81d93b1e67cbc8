"""SSH keys, dotfiles and bootstrap script of the user, and dotfiles of projects and domains."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from backendai.base.core.errors import NotFound
from backendai.domain.accounts.models import BootstrapScript, Domain, Dotfile, Project, SshKey
from backendai.domain.accounts.roles import Action, may_domain, may_project
from backendai.domain.accounts.scopes import Scope
from backendai.domain.accounts.services.environments import (
    Owner,
    add_ssh_key,
    dotfiles_of,
    remove_dotfile,
    remove_ssh_key,
    save_dotfile,
    set_bootstrap_script,
)
from backendai.portal.api.frame.authentication import user_of
from backendai.portal.api.frame.paging import NewestFirst, OnePage, only_page
from backendai.portal.api.frame.parsing import StrictSerializer, values_of
from backendai.portal.api.frame.views import ResourceView


class SshKeyBody(serializers.ModelSerializer[SshKey]):
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


class DotfileBody(serializers.ModelSerializer[Dotfile]):
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


class SshKeyList(ResourceView[SshKey], ListAPIView[SshKey]):
    """The user's own SSH keys."""

    queryset = SshKey.objects.all()
    serializer_class = SshKeyBody
    pagination_class = NewestFirst
    token_scopes = (Scope.ACCOUNT,)

    @extend_schema(request=SshKeyRequest, responses={201: SshKeyBody})
    def post(self, request: Request) -> Response:
        """Register a key; sessions that start from now on accept it."""
        told = values_of(SshKeyRequest, request.data)
        key = add_ssh_key(user_of(request), told["public_key"], name=told["name"], proof=told["proof"])
        return Response(SshKeyBody(key).data, status=status.HTTP_201_CREATED)


class SshKeyDetail(GenericAPIView[Any]):
    """One SSH key."""

    serializer_class = SshKeyBody
    token_scopes = (Scope.ACCOUNT,)

    def delete(self, request: Request, ssh_key_id: UUID) -> Response:
        """Delete the key; running sessions still have it."""
        remove_ssh_key(user_of(request), ssh_key_id)
        return Response(status=status.HTTP_204_NO_CONTENT)


class DotfilesView(ResourceView[Dotfile]):
    """The base of the views of the dotfiles of one owner: the user, unless a subclass says another one."""

    queryset = Dotfile.objects.none()
    serializer_class = DotfileBody
    token_scopes = (Scope.ACCOUNT,)

    def owner(self) -> Owner:
        """Return the owner of the files; 404 if not visible."""
        return self.user


class Dotfiles(DotfilesView):
    """The dotfiles of one owner, at most 30, so on one page."""

    pagination_class = OnePage

    @extend_schema(responses=DotfileBody(many=True))
    def get(self, request: Request, **_: Any) -> Response:
        """Return the files, ordered by path."""
        return only_page(DotfileBody(dotfiles_of(self.owner()), many=True).data)

    @extend_schema(request=DotfileRequest, responses={200: DotfileBody})
    def put(self, request: Request, **_: Any) -> Response:
        """Create or replace the file at this path. 409 if another file is in the way."""
        owner, values = self.owner(), values_of(DotfileRequest, request.data)
        return self.answer(save_dotfile(self.user, owner, **values))


class DotfileDetail(DotfilesView):
    """One dotfile."""

    lookup_url_kwarg = "dotfile_id"

    def delete(self, request: Request, **ids: Any) -> Response:
        """Delete the file; running sessions still have it."""
        remove_dotfile(self.user, self.owner(), ids[self.lookup_url_kwarg])
        return Response(status=status.HTTP_204_NO_CONTENT)


class _OfProject:
    token_scopes = (Scope.ADMIN,)

    def owner(self: Any) -> Owner:
        """Return the project; 404 unless the user may change its files."""
        project = Project.objects.visible_to(self.user).filter(pk=self.kwargs["project_id"]).first()
        if project is None or not may_project(self.user, Action.SET_DOTFILES, project):
            raise NotFound("Project not found.")
        return project


class _OfDomain:
    token_scopes = (Scope.ADMIN,)

    def owner(self: Any) -> Owner:
        """Return the domain; 404 unless the user may change its files."""
        domain = Domain.objects.visible_to(self.user).filter(pk=self.kwargs["domain_id"]).first()
        if domain is None or not may_domain(self.user, Action.SET_DOTFILES, domain):
            raise NotFound("Domain not found.")
        return domain


class ProjectDotfiles(_OfProject, Dotfiles):
    """Dotfiles of a project, in all of its sessions. A user's own file at the same path takes precedence."""


class ProjectDotfileDetail(_OfProject, DotfileDetail):
    """One dotfile of a project."""

    lookup_url_kwarg = "project_file_id"


class DomainDotfiles(_OfDomain, Dotfiles):
    """Dotfiles of a domain, in all of its sessions. A user's or project's file at the same path takes precedence."""


class DomainDotfileDetail(_OfDomain, DotfileDetail):
    """One dotfile of a domain."""

    lookup_url_kwarg = "domain_file_id"


class Bootstrap(GenericAPIView[Any]):
    """The user's own bootstrap script."""

    serializer_class = BootstrapBody
    token_scopes = (Scope.ACCOUNT,)

    def get(self, request: Request) -> Response:
        """Return the script."""
        script = BootstrapScript.objects.filter(user=user_of(request)).first()
        return Response(BootstrapBody(script or {"content": "", "updated_at": None}).data)

    @extend_schema(request=BootstrapRequest, responses=BootstrapBody)
    def put(self, request: Request) -> Response:
        """Replace the script; an empty one deletes it."""
        values = values_of(BootstrapRequest, request.data)
        set_bootstrap_script(user_of(request), values["content"])
        return self.get(request)

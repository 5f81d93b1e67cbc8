"""Every address has a declared policy, and every kind of person is turned away or let in as it says.

A new route fails here until it stands in the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import time
from enum import Enum
from http.cookies import SimpleCookie
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest
from django.db import connection, transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, resolve
from django.utils import timezone
from pytest_django import DjangoDbBlocker

from backendai.domain.accounts.models import AccessToken, Domain, Invitation, Membership, Project, ResourcePolicy, User
from backendai.domain.accounts.services import Invitee, create_token, get_or_create_project, invite
from backendai.domain.accounts.services.environments import add_ssh_key, save_dotfile
from backendai.domain.activity.jobs import start_job
from backendai.domain.activity.models import AuditEntry, BackgroundJob
from backendai.domain.activity.refusals import PREFIX
from backendai.domain.catalog.models import ImageShare, Registry, ResourcePreset
from backendai.domain.cluster.joining import create_join_token
from backendai.domain.cluster.models import Agent, Announcement, IdleChecker, JoinToken, SlotType
from backendai.domain.compute.models import (
    ComputeSession,
    Kernel,
    LaunchRecord,
    SessionMount,
    SessionShare,
    StopSchedule,
    UnknownKernel,
)
from backendai.domain.compute.services.launching.sharing import share_session
from backendai.domain.pipelines.models import Run, Task
from backendai.domain.pipelines.services.creating import RunSpec, create_run
from backendai.domain.serving.models import Endpoint, EndpointToken
from backendai.domain.serving.services.endpoints import create_endpoint
from backendai.domain.serving.services.tokens import create_token as create_endpoint_token
from backendai.domain.serving.spec import EndpointSpec, RevisionSpec
from backendai.domain.storage.models import Folder, FolderGrant, StorageHost
from backendai.domain.storage.services import create_folder, share_folder
from backendai.domain.templates.models import Template
from backendai.domain.templates.services.publishing import TemplateDraft, create_template
from backendai.portal.realtime.routing import websocket_urlpatterns
from backendai.portal.web.account.command import FOLDER, wheel_of
from tests.api.callers import log_gateway
from tests.cast import Cast, make_cast
from tests.effort import some
from tests.factories import make_image, make_running_session
from tests.storage.fake_file_server import FakeFileServer, make_host, serving


class Policy(Enum):
    PUBLIC = "anybody"
    SIGNED_IN = "anyone who is signed in, on what is theirs"
    VISIBLE = "the owner and administrators; 404 for others"
    READ = "anyone who is signed in reads what they may see, superadmins write; 403 for others who try"
    ABOVE = "administrators who stand above it; 403 for the one it is about, 404 for others"
    OWN = "the owner alone, whatever the role of others"
    SUPERADMIN = "superadmins; nothing to see for others"
    NODE = "nodes with their token"
    NOWHERE = "404 for anyone who is signed in"
    SHUT = "404 for everybody, until a setting opens it"


P = Policy
WHEEL = wheel_of(FOLDER)
OF_COMMAND = P.PUBLIC if WHEEL else P.SHUT  # a copy of the platform may come without the command
# address → policy and methods. Methods that change something are driven by strangers first.
TABLE: dict[str, tuple[Policy, str]] = {
    "healthz": (P.PUBLIC, "GET"),
    "readyz": (P.PUBLIC, "GET"),
    "metrics": (P.SHUT, "GET"),
    "login/": (P.PUBLIC, "GET POST"),
    "logout/": (P.PUBLIC, "POST"),
    "login/code/": (P.PUBLIC, "GET POST"),
    "login/demo/": (P.SHUT, "POST"),
    "login/passkey/": (P.PUBLIC, "GET POST"),
    "login/cancelled/": (P.PUBLIC, "GET"),
    "login/with/<slug:provider_id>/": (P.SHUT, "GET"),
    "login/with/<slug:provider_id>/callback/": (P.SHUT, "GET"),
    "signup/": (P.SHUT, "GET POST"),
    "language/": (P.PUBLIC, "POST"),
    "cli/": (OF_COMMAND, "GET"),
    "cli/<str:wheel>": (OF_COMMAND, "GET"),
    "device/": (P.SIGNED_IN, "GET POST"),
    "": (P.SIGNED_IN, "GET"),
    "sessions/terminate/": (P.SIGNED_IN, "POST"),
    "sessions/keep/": (P.SIGNED_IN, "POST"),
    "sessions/usage/": (P.SIGNED_IN, "GET"),
    "sessions/columns/": (P.SIGNED_IN, "POST"),
    "sessions/new/": (P.SIGNED_IN, "GET POST"),
    "sessions/new/amounts/": (P.SIGNED_IN, "POST"),
    "sessions/new/preview/": (P.SIGNED_IN, "POST"),
    "sessions/new/environments/": (P.SIGNED_IN, "POST"),
    "sessions/new/opening/<str:launch_key>/<slug:service>/": (P.SIGNED_IN, "GET"),
    "sessions/new/review/": (P.SIGNED_IN, "POST"),
    "sessions/new/folder/": (P.SIGNED_IN, "GET POST"),
    "sessions/new/folders/": (P.SIGNED_IN, "POST"),
    "sessions/new/recent/": (P.SIGNED_IN, "GET"),
    "sessions/new/recent/<uuid:recent_launch_id>/": (P.OWN, "POST"),
    "sessions/<uuid:session_id>/outlook/": (P.VISIBLE, "GET"),
    "sessions/<uuid:session_id>/usage/": (P.VISIBLE, "GET"),
    "sessions/<uuid:session_id>/": (P.VISIBLE, "GET"),
    "sessions/<uuid:session_id>/row/": (P.VISIBLE, "GET"),
    "sessions/<uuid:session_id>/panel/": (P.VISIBLE, "GET"),
    "sessions/<uuid:session_id>/history/": (P.VISIBLE, "GET"),
    "sessions/<uuid:session_id>/console/": (P.VISIBLE, "GET"),
    "sessions/<uuid:session_id>/home/": (P.VISIBLE, "GET"),
    "sessions/<uuid:session_id>/home/file/": (P.VISIBLE, "GET"),
    "sessions/<uuid:session_id>/home/lead/": (P.VISIBLE, "GET"),
    "sessions/<uuid:session_id>/home/directories/": (P.VISIBLE, "POST"),
    "sessions/<uuid:session_id>/home/rename/": (P.VISIBLE, "POST"),
    "sessions/<uuid:session_id>/home/move/": (P.VISIBLE, "POST"),
    "sessions/<uuid:session_id>/home/delete/": (P.VISIBLE, "POST"),
    "sessions/<uuid:session_id>/info/": (P.VISIBLE, "GET"),
    "sessions/<uuid:session_id>/idle/<int:checker_id>/longer/": (P.VISIBLE, "POST"),
    "sessions/<uuid:session_id>/variables/": (P.VISIBLE, "GET"),
    "sessions/<uuid:session_id>/log/": (P.VISIBLE, "GET"),
    "sessions/<uuid:session_id>/commit/left-out/": (P.VISIBLE, "GET"),
    "sessions/<uuid:session_id>/disk/": (P.VISIBLE, "GET"),
    "sessions/<uuid:session_id>/end-time/": (P.VISIBLE, "GET POST"),
    "sessions/<uuid:session_id>/labels/": (P.VISIBLE, "GET POST"),
    "sessions/<uuid:session_id>/rename/": (P.VISIBLE, "GET POST"),
    "sessions/<uuid:session_id>/commit/": (P.VISIBLE, "GET POST"),
    "sessions/stop/": (P.SIGNED_IN, "POST"),
    "sessions/<uuid:session_id>/stop/": (P.VISIBLE, "GET POST"),
    "sessions/<uuid:session_id>/stop-schedule/": (P.VISIBLE, "GET POST"),
    "sessions/<uuid:session_id>/resume/": (P.VISIBLE, "GET POST"),
    "sessions/<uuid:session_id>/keep-home/": (P.VISIBLE, "GET POST"),
    "sessions/<uuid:session_id>/apps/": (P.VISIBLE, "GET"),
    "sessions/<uuid:session_id>/sharing/": (P.OWN, "GET POST"),
    "sessions/<uuid:session_id>/sharing/<int:share_id>/stop/": (P.OWN, "POST"),
    "sessions/<uuid:session_id>/ssh/": (P.VISIBLE, "GET"),
    "sessions/<uuid:session_id>/ssh/key/": (P.OWN, "POST"),
    "sessions/<uuid:session_id>/terminate/": (P.VISIBLE, "GET POST"),
    "sessions/<uuid:session_id>/apps/<slug:service>/": (P.VISIBLE, "GET"),
    "sessions/<uuid:session_id>/apps/<slug:service>/public/": (P.VISIBLE, "GET POST"),
    "sessions/<uuid:session_id>/apps/<slug:service>/settings/": (P.VISIBLE, "GET POST"),
    "apps/<slug:label>/": (P.VISIBLE, "GET"),
    "about/": (P.SIGNED_IN, "GET"),
    "search/": (P.SIGNED_IN, "GET"),
    "help/": (P.SIGNED_IN, "GET"),
    "help/<slug:slug>/": (P.SIGNED_IN, "GET"),
    "help/pictures/<slug:name>.png": (P.SIGNED_IN, "GET"),
    "resources/panel/": (P.SIGNED_IN, "GET"),
    "folders/": (P.SIGNED_IN, "GET"),
    "folders/new/": (P.SIGNED_IN, "GET POST"),
    "folders/trash/": (P.SIGNED_IN, "GET"),
    "folders/many/": (P.SIGNED_IN, "POST"),
    "folders/at/<folder_digits:digits>/": (P.VISIBLE, "GET"),
    "folders/invitations/<int:grant_id>/": (P.OWN, "POST"),
    "folders/<uuid:folder_id>/": (P.VISIBLE, "GET"),
    "folders/<uuid:folder_id>/file/": (P.VISIBLE, "GET"),
    "folders/<uuid:folder_id>/enter/": (P.VISIBLE, "POST"),
    "folders/<uuid:folder_id>/lead/": (P.VISIBLE, "GET"),
    "folders/<uuid:folder_id>/directories/": (P.VISIBLE, "POST"),
    "folders/<uuid:folder_id>/rename/": (P.VISIBLE, "POST"),
    "folders/<uuid:folder_id>/move/": (P.VISIBLE, "POST"),
    "folders/<uuid:folder_id>/delete/": (P.VISIBLE, "POST"),
    "folders/<uuid:folder_id>/trash/": (P.VISIBLE, "GET"),
    "folders/<uuid:folder_id>/trash/change/": (P.VISIBLE, "POST"),
    "folders/<uuid:folder_id>/sharing/": (P.VISIBLE, "GET POST"),
    "folders/<uuid:folder_id>/sharing/<uuid:guest_id>/revoke/": (P.VISIBLE, "POST"),
    "folders/<uuid:folder_id>/sharing/<uuid:session_id>/cut-off/": (P.VISIBLE, "GET POST"),
    "folders/<uuid:folder_id>/settings/": (P.VISIBLE, "GET POST"),
    "folders/<uuid:folder_id>/clone/": (P.VISIBLE, "POST"),
    "folders/<uuid:folder_id>/purge/": (P.VISIBLE, "GET POST"),
    "folders/<uuid:folder_id>/state/<folder_verb:verb>/": (P.VISIBLE, "POST"),
    "endpoints/": (P.SIGNED_IN, "GET"),
    "endpoints/new/": (P.SIGNED_IN, "GET POST"),
    "endpoints/<uuid:endpoint_id>/": (P.VISIBLE, "GET"),
    "endpoints/<uuid:endpoint_id>/scale/": (P.VISIBLE, "POST"),
    "endpoints/<uuid:endpoint_id>/settings/": (P.VISIBLE, "POST"),
    "endpoints/<uuid:endpoint_id>/decisions/": (P.VISIBLE, "GET"),
    "endpoints/<uuid:endpoint_id>/rules/": (P.VISIBLE, "POST"),
    "endpoints/<uuid:endpoint_id>/update/": (P.VISIBLE, "GET POST"),
    "endpoints/<uuid:endpoint_id>/roll-back/": (P.VISIBLE, "POST"),
    "endpoints/<uuid:endpoint_id>/state/": (P.VISIBLE, "POST"),
    "endpoints/<uuid:endpoint_id>/tokens/": (P.VISIBLE, "POST"),
    "endpoints/<uuid:endpoint_id>/tokens/<uuid:endpoint_token_id>/revoke/": (P.VISIBLE, "POST"),
    "runs/": (P.SIGNED_IN, "GET"),
    "runs/new/": (P.SIGNED_IN, "GET POST"),
    "runs/<uuid:run_id>/": (P.VISIBLE, "GET"),
    "runs/<uuid:run_id>/board/": (P.VISIBLE, "GET"),
    "runs/<uuid:run_id>/failures/": (P.VISIBLE, "GET"),
    "runs/<uuid:run_id>/compare/": (P.VISIBLE, "GET"),
    "runs/<uuid:run_id>/copy/": (P.VISIBLE, "GET"),
    "runs/<uuid:run_id>/cancel/": (P.VISIBLE, "POST"),
    "runs/<uuid:run_id>/pause/": (P.VISIBLE, "POST"),
    "runs/<uuid:run_id>/resume/": (P.VISIBLE, "POST"),
    "runs/<uuid:run_id>/at-once/": (P.VISIBLE, "POST"),
    "runs/<uuid:run_id>/retry/": (P.VISIBLE, "POST"),
    "templates/": (P.SIGNED_IN, "GET"),
    "templates/new/": (P.SIGNED_IN, "GET POST"),
    "templates/<uuid:template_id>/": (P.VISIBLE, "GET"),
    "templates/<uuid:template_id>/start/": (P.VISIBLE, "GET"),
    "templates/<uuid:template_id>/run/": (P.VISIBLE, "GET POST"),
    "templates/<uuid:template_id>/publish/": (P.VISIBLE, "GET POST"),
    "templates/<uuid:template_id>/change/": (P.VISIBLE, "GET POST"),
    "templates/<uuid:template_id>/activate/": (P.VISIBLE, "POST"),
    "templates/<uuid:template_id>/delete/": (P.VISIBLE, "POST"),
    "dashboard/": (P.SIGNED_IN, "GET"),
    "cluster/": (P.SIGNED_IN, "GET"),
    "agents/": (P.SUPERADMIN, "GET"),
    "manage/": (P.VISIBLE, "GET"),
    "manage/users/": (P.SUPERADMIN, "GET"),
    "manage/users/new/": (P.SUPERADMIN, "GET POST"),
    "manage/users/<uuid:pk>/": (P.SUPERADMIN, "GET"),
    "manage/users/<uuid:pk>/change/": (P.SUPERADMIN, "GET POST"),
    "manage/users/<uuid:pk>/activate/": (P.SUPERADMIN, "GET POST"),
    "manage/users/<uuid:pk>/deactivate/": (P.SUPERADMIN, "GET POST"),
    "manage/users/<uuid:pk>/password/": (P.SUPERADMIN, "GET POST"),
    "manage/users/<uuid:pk>/factors/": (P.SUPERADMIN, "GET POST"),
    "manage/users/<uuid:pk>/purge/": (P.SUPERADMIN, "GET POST"),
    "manage/key-pairs/<str:pk>/": (P.SUPERADMIN, "GET POST"),
    "manage/projects/<uuid:pk>/files/": (P.SUPERADMIN, "GET POST"),
    "manage/domains/<int:pk>/files/": (P.SUPERADMIN, "GET POST"),
    "manage/projects/": (P.VISIBLE, "GET"),
    "manage/projects/new/": (P.SUPERADMIN, "GET POST"),
    "manage/projects/<uuid:pk>/": (P.VISIBLE, "GET POST"),
    "manage/projects/<uuid:pk>/change/": (P.SUPERADMIN, "GET POST"),
    "manage/projects/<uuid:pk>/delete/": (P.SUPERADMIN, "GET POST"),
    "manage/invitations/": (P.VISIBLE, "GET"),
    "manage/invitations/new/": (P.VISIBLE, "GET POST"),
    "manage/invitations/<uuid:pk>/revoke/": (P.VISIBLE, "GET POST"),
    "manage/import/": (P.VISIBLE, "GET POST"),
    "invitations/accept/": (P.PUBLIC, "GET POST"),
    "invitations/<str:text>/": (P.PUBLIC, "GET"),
    "manage/domains/": (P.SUPERADMIN, "GET"),
    "manage/domains/new/": (P.SUPERADMIN, "GET POST"),
    "manage/domains/<int:pk>/": (P.SUPERADMIN, "GET POST"),
    "manage/policies/": (P.SUPERADMIN, "GET"),
    "manage/policies/new/": (P.SUPERADMIN, "GET POST"),
    "manage/policies/<int:pk>/": (P.SUPERADMIN, "GET POST"),
    "manage/policies/<int:pk>/delete/": (P.SUPERADMIN, "GET POST"),
    "manage/statistics/": (P.SUPERADMIN, "GET"),
    "manage/domains/<int:pk>/delete/": (P.SUPERADMIN, "GET POST"),
    "manage/presets/": (P.SUPERADMIN, "GET"),
    "manage/presets/new/": (P.SUPERADMIN, "GET POST"),
    "manage/presets/<int:pk>/": (P.SUPERADMIN, "GET POST"),
    "manage/presets/<int:pk>/delete/": (P.SUPERADMIN, "GET POST"),
    "manage/images/": (P.SUPERADMIN, "GET"),
    "manage/images/new/": (P.SUPERADMIN, "GET POST"),
    "manage/images/from-agents/": (P.SUPERADMIN, "POST"),
    "manage/images/<uuid:pk>/": (P.SUPERADMIN, "GET POST"),
    "manage/images/<uuid:pk>/agents/": (P.SUPERADMIN, "GET POST"),
    "manage/images/<uuid:pk>/build/": (P.SUPERADMIN, "GET POST"),
    "manage/images/<uuid:pk>/forget/": (P.SUPERADMIN, "GET POST"),
    "manage/unknown-kernels/": (P.SUPERADMIN, "GET"),
    "manage/unknown-kernels/<int:pk>/adopt/": (P.SUPERADMIN, "GET POST"),
    "manage/unknown-kernels/<int:pk>/remove/": (P.SUPERADMIN, "GET POST"),
    "manage/storage-hosts/": (P.SUPERADMIN, "GET"),
    "manage/storage-hosts/new/": (P.SUPERADMIN, "GET POST"),
    "manage/storage-hosts/<uuid:pk>/": (P.SUPERADMIN, "GET POST"),
    "manage/storage-hosts/<uuid:pk>/delete/": (P.SUPERADMIN, "GET POST"),
    "manage/folders/": (P.SUPERADMIN, "GET"),
    "manage/folders/transfer/": (P.SUPERADMIN, "GET POST"),
    "manage/folders/link/": (P.SUPERADMIN, "GET POST"),
    "manage/registries/": (P.SUPERADMIN, "GET"),
    "manage/registries/new/": (P.SUPERADMIN, "GET POST"),
    "manage/registries/<int:pk>/": (P.SUPERADMIN, "GET POST"),
    "manage/registries/<int:pk>/scan/": (P.SUPERADMIN, "POST"),
    "manage/registries/<int:pk>/delete/": (P.SUPERADMIN, "GET POST"),
    "manage/idle-checkers/": (P.SUPERADMIN, "GET"),
    "manage/idle-checkers/new/": (P.SUPERADMIN, "GET POST"),
    "manage/idle-checkers/<int:pk>/": (P.SUPERADMIN, "GET POST"),
    "manage/idle-checkers/<int:pk>/delete/": (P.SUPERADMIN, "GET POST"),
    "manage/jobs/": (P.SUPERADMIN, "GET"),
    "manage/jobs/<uuid:pk>/cancel/": (P.SUPERADMIN, "GET POST"),
    "manage/jobs/<uuid:pk>/again/": (P.SUPERADMIN, "GET POST"),
    "manage/audit/": (P.SUPERADMIN, "GET"),
    "manage/queue/": (P.SUPERADMIN, "GET"),
    "manage/queue/<uuid:pk>/priority/": (P.SUPERADMIN, "POST"),
    "manage/queue/priorities/": (P.SUPERADMIN, "POST"),
    "manage/what-if/": (P.SUPERADMIN, "GET POST"),
    "manage/what-if/<uuid:pk>/": (P.SUPERADMIN, "GET POST"),
    "manage/agents/": (P.SUPERADMIN, "GET"),
    "manage/agents/<uuid:pk>/": (P.SUPERADMIN, "GET"),
    "manage/agents/<uuid:pk>/switches/": (P.SUPERADMIN, "GET POST"),
    "manage/agents/<uuid:pk>/drain/": (P.SUPERADMIN, "GET POST"),
    "manage/agents/<uuid:pk>/drain/cancel/": (P.SUPERADMIN, "GET POST"),
    "manage/agents/<uuid:pk>/move/": (P.SUPERADMIN, "GET POST"),
    "manage/agents/<uuid:pk>/revoke/": (P.SUPERADMIN, "GET POST"),
    "manage/agents/<uuid:pk>/renew/": (P.SUPERADMIN, "GET POST"),
    "manage/agents/<uuid:pk>/terminate/": (P.SUPERADMIN, "GET POST"),
    "manage/groups/": (P.SUPERADMIN, "GET"),
    "manage/groups/new/": (P.SUPERADMIN, "GET POST"),
    "manage/groups/<int:pk>/": (P.SUPERADMIN, "GET POST"),
    "manage/groups/<int:pk>/delete/": (P.SUPERADMIN, "GET POST"),
    "manage/slot-types/": (P.SUPERADMIN, "GET"),
    "manage/slot-types/<int:pk>/": (P.SUPERADMIN, "GET POST"),
    "manage/settings/": (P.SUPERADMIN, "GET POST"),
    "manage/announcements/": (P.SUPERADMIN, "GET"),
    "manage/announcements/new/": (P.SUPERADMIN, "GET POST"),
    "manage/announcements/<int:pk>/": (P.SUPERADMIN, "GET POST"),
    "manage/announcements/<int:pk>/delete/": (P.SUPERADMIN, "GET POST"),
    "manage/maintenance/": (P.SUPERADMIN, "GET POST"),
    "manage/information/": (P.SUPERADMIN, "GET"),
    "announcements/": (P.SIGNED_IN, "GET"),
    "manage/join-tokens/": (P.SUPERADMIN, "GET"),
    "manage/join-tokens/new/": (P.SUPERADMIN, "GET POST"),
    "manage/join-tokens/<int:pk>/revoke/": (P.SUPERADMIN, "GET POST"),
    "notifications/": (P.SIGNED_IN, "GET"),
    "notifications/bell/": (P.SIGNED_IN, "GET"),
    "notifications/cards/": (P.SIGNED_IN, "GET"),
    "notifications/cards/close/": (P.SIGNED_IN, "POST"),
    "notifications/cards/access/<int:notice_id>/close/": (P.SIGNED_IN, "POST"),
    "notifications/cards/<uuid:session_id>/close/": (P.SIGNED_IN, "POST"),
    "notifications/seen/": (P.SIGNED_IN, "POST"),
    "notifications/clear/": (P.SIGNED_IN, "POST"),
    "notifications/jobs/<uuid:job_id>/cancel/": (P.VISIBLE, "POST"),
    "account/": (P.SIGNED_IN, "GET"),
    "account/password/": (P.SIGNED_IN, "POST"),
    "account/usage/": (P.SIGNED_IN, "GET"),
    "account/tokens/": (P.SIGNED_IN, "GET POST"),
    "account/keys/": (P.SIGNED_IN, "GET POST"),
    "account/keys/<str:access_key>/": (P.OWN, "POST"),
    "account/keys/<str:access_key>/rotate/": (P.OWN, "POST"),
    "account/images/": (P.SIGNED_IN, "GET"),
    "account/images/<uuid:own_image_id>/rename/": (P.OWN, "GET POST"),
    "account/images/<uuid:own_image_id>/delete/": (P.OWN, "GET POST"),
    "account/images/<uuid:own_image_id>/share/": (P.OWN, "GET POST"),
    "account/images/<uuid:own_image_id>/share/<uuid:project_id>/take-back/": (P.OWN, "POST"),
    "account/ssh-keys/": (P.SIGNED_IN, "GET POST"),
    "folders/sftp/": (P.SIGNED_IN, "GET POST"),
    "account/ssh-keys/<uuid:ssh_key_id>/delete/": (P.OWN, "POST"),
    "account/notifications/": (P.SIGNED_IN, "GET POST"),
    "account/environment/": (P.SIGNED_IN, "GET POST"),
    "account/environment/<uuid:dotfile_id>/delete/": (P.OWN, "POST"),
    "account/environment/script/": (P.SIGNED_IN, "POST"),
    "account/security/": (P.SIGNED_IN, "GET"),
    "account/security/sign-out/": (P.SIGNED_IN, "POST"),
    "account/security/confirm/": (P.SIGNED_IN, "GET POST"),
    "account/security/confirm/code/": (P.SIGNED_IN, "GET POST"),
    "account/security/confirm/passkey/": (P.SIGNED_IN, "GET POST"),
    "account/security/app/": (P.SIGNED_IN, "GET POST"),
    "account/security/app/remove/": (P.SIGNED_IN, "GET POST"),
    "account/security/passkeys/new/": (P.SIGNED_IN, "GET POST"),
    "account/security/passkeys/<int:pk>/": (P.SIGNED_IN, "GET POST"),
    "account/security/passkeys/<int:pk>/remove/": (P.SIGNED_IN, "GET POST"),
    "account/security/codes/": (P.SIGNED_IN, "GET"),
    "account/security/codes/new/": (P.SIGNED_IN, "GET POST"),
    "account/security/codes/file/": (P.SIGNED_IN, "GET"),
    "account/tokens/<uuid:token_id>/revoke/": (P.OWN, "POST"),
    "api/schema/": (P.PUBLIC, "GET"),
    "api/docs/": (P.SIGNED_IN, "GET"),
    "api/v1/sessions/": (P.SIGNED_IN, "GET POST"),
    "api/v1/sessions/terminate/": (P.SIGNED_IN, "POST"),
    "api/v1/sessions/<uuid:session_id>/": (P.VISIBLE, "GET"),
    "api/v1/sessions/<uuid:session_id>/terminate/": (P.VISIBLE, "POST"),
    "api/v1/sessions/<uuid:session_id>/priority/": (P.VISIBLE, "POST"),
    "api/v1/sessions/<uuid:session_id>/end-time/": (P.VISIBLE, "POST"),
    "api/v1/sessions/<uuid:session_id>/labels/": (P.VISIBLE, "POST"),
    "api/v1/sessions/<uuid:session_id>/rename/": (P.VISIBLE, "POST"),
    "api/v1/sessions/<uuid:session_id>/commit/": (P.VISIBLE, "POST"),
    "api/v1/sessions/<uuid:session_id>/stop/": (P.VISIBLE, "POST"),
    "api/v1/sessions/<uuid:session_id>/stop-schedule/": (P.VISIBLE, "GET PUT DELETE"),
    "api/v1/sessions/<uuid:session_id>/resume/": (P.VISIBLE, "POST"),
    "api/v1/sessions/<uuid:session_id>/keep-home/": (P.VISIBLE, "POST"),
    "api/v1/sessions/<uuid:session_id>/logs/": (P.VISIBLE, "GET"),
    "api/v1/sessions/<uuid:session_id>/shares/": (P.OWN, "GET POST"),
    "api/v1/sessions/<uuid:session_id>/shares/<int:share_id>/": (P.OWN, "DELETE"),
    "api/v1/sessions/<uuid:session_id>/ssh/": (P.VISIBLE, "GET"),
    "api/v1/sessions/<uuid:session_id>/ssh-key/": (P.OWN, "POST"),
    "api/v1/me/ssh-config/": (P.SIGNED_IN, "GET"),
    "api/v1/system-sessions/": (P.SIGNED_IN, "POST"),
    "api/v1/sessions/<uuid:session_id>/runs/": (P.VISIBLE, "GET POST"),
    "api/v1/sessions/<uuid:session_id>/runs/<str:run_id>/": (P.VISIBLE, "GET DELETE"),
    "api/v1/sessions/<uuid:session_id>/runs/<str:run_id>/code/": (P.VISIBLE, "GET"),
    "api/v1/sessions/<uuid:session_id>/runs/<str:run_id>/input/": (P.VISIBLE, "POST"),
    "api/v1/sessions/<uuid:session_id>/runs/<str:run_id>/interrupt/": (P.VISIBLE, "POST"),
    "api/v1/sessions/<uuid:session_id>/contexts/": (P.VISIBLE, "GET POST"),
    "api/v1/sessions/<uuid:session_id>/languages/": (P.VISIBLE, "GET"),
    "api/v1/sessions/<uuid:session_id>/contexts/<str:context>/": (P.VISIBLE, "DELETE"),
    "api/v1/sessions/<uuid:session_id>/contexts/<str:context>/restart/": (P.VISIBLE, "POST"),
    "api/v1/sessions/<uuid:session_id>/complete/": (P.VISIBLE, "POST"),
    "api/v1/sessions/<uuid:session_id>/execute/": (P.VISIBLE, "POST"),
    "api/v1/sessions/<uuid:session_id>/entries/": (P.VISIBLE, "GET"),
    "api/v1/sessions/<uuid:session_id>/entry/": (P.VISIBLE, "GET"),
    "api/v1/sessions/<uuid:session_id>/search/": (P.VISIBLE, "GET"),
    "api/v1/sessions/<uuid:session_id>/directories/": (P.VISIBLE, "POST"),
    "api/v1/sessions/<uuid:session_id>/moves/": (P.VISIBLE, "POST"),
    "api/v1/sessions/<uuid:session_id>/deletions/": (P.VISIBLE, "POST"),
    "api/v1/sessions/<uuid:session_id>/archive/": (P.VISIBLE, "GET"),
    "api/v1/sessions/<uuid:session_id>/files/": (P.VISIBLE, "GET"),
    "api/v1/sessions/<uuid:session_id>/files/<path:path>": (P.VISIBLE, "GET PUT DELETE"),
    "api/v1/sessions/<uuid:session_id>/history/": (P.VISIBLE, "GET"),
    "api/v1/sessions/<uuid:session_id>/kernels/": (P.VISIBLE, "GET"),
    "api/v1/sessions/<uuid:session_id>/usage/": (P.VISIBLE, "GET"),
    "api/v1/sessions/<uuid:session_id>/explain/": (P.VISIBLE, "GET"),
    "api/v1/sessions/<uuid:session_id>/apps/": (P.VISIBLE, "GET"),
    "api/v1/sessions/<uuid:session_id>/apps/<slug:service>/": (P.VISIBLE, "POST"),
    "api/v1/sessions/<uuid:session_id>/idle/": (P.VISIBLE, "GET"),
    "api/v1/sessions/<uuid:session_id>/idle/extend/": (P.VISIBLE, "POST"),
    "api/v1/runs/": (P.SIGNED_IN, "GET POST"),
    "api/v1/run-preview/": (P.SIGNED_IN, "POST"),
    "api/v1/run-schema/": (P.SIGNED_IN, "GET"),
    "api/v1/template-schema/": (P.SIGNED_IN, "GET"),
    "api/v1/runs/<uuid:run_id>/": (P.VISIBLE, "GET"),
    "api/v1/runs/<uuid:run_id>/tasks/": (P.VISIBLE, "GET"),
    "api/v1/runs/<uuid:run_id>/failures/": (P.VISIBLE, "GET"),
    "api/v1/runs/<uuid:run_id>/explain/": (P.VISIBLE, "GET"),
    "api/v1/runs/<uuid:run_id>/compare/": (P.VISIBLE, "GET"),
    "api/v1/runs/<uuid:run_id>/cancel/": (P.VISIBLE, "POST"),
    "api/v1/runs/<uuid:run_id>/pause/": (P.VISIBLE, "POST"),
    "api/v1/runs/<uuid:run_id>/resume/": (P.VISIBLE, "POST"),
    "api/v1/runs/<uuid:run_id>/retry/": (P.VISIBLE, "POST"),
    "api/v1/runs/<uuid:run_id>/at-once/": (P.VISIBLE, "POST"),
    "api/v1/idle-checkers/": (P.SUPERADMIN, "GET POST"),
    "api/v1/idle-checkers/<int:pk>/": (P.SUPERADMIN, "GET PATCH DELETE"),
    "api/v1/sessions/<uuid:session_id>/apps/<slug:service>/public/": (P.VISIBLE, "PUT DELETE"),
    "api/v1/sessions/<uuid:session_id>/apps/<slug:service>/settings/": (P.VISIBLE, "PUT"),
    "api/v1/session-preview/": (P.SIGNED_IN, "POST"),
    "api/v1/owners/": (P.SUPERADMIN, "GET"),
    "api/v1/policies/": (P.SUPERADMIN, "GET POST"),
    "api/v1/policies/<int:pk>/": (P.SUPERADMIN, "GET PATCH DELETE"),
    "api/v1/images/": (P.SIGNED_IN, "GET POST"),
    "api/v1/images/<uuid:image_id>/": (P.READ, "GET PATCH DELETE"),
    "api/v1/images/<uuid:image_id>/pull/": (P.SUPERADMIN, "GET POST"),
    "api/v1/unknown-kernels/": (P.SUPERADMIN, "GET"),
    "api/v1/unknown-kernels/<int:pk>/adopt/": (P.SUPERADMIN, "POST"),
    "api/v1/unknown-kernels/<int:pk>/remove/": (P.SUPERADMIN, "POST"),
    "api/v1/registries/": (P.SUPERADMIN, "GET POST"),
    "api/v1/registries/<int:pk>/": (P.SUPERADMIN, "GET PATCH DELETE"),
    "api/v1/registries/<int:pk>/scan/": (P.SUPERADMIN, "POST"),
    "api/v1/presets/": (P.READ, "GET POST"),
    "api/v1/presets/<int:preset_id>/": (P.READ, "GET PATCH DELETE"),
    "api/v1/check-presets/": (P.SIGNED_IN, "POST"),
    "api/v1/resource-groups/": (P.SIGNED_IN, "GET POST"),
    "api/v1/resource-groups/<slug:group>/": (P.SIGNED_IN, "GET DELETE"),
    "api/v1/resource-groups/<slug:group>/queue/": (P.SUPERADMIN, "GET"),
    "api/v1/resource-groups/<slug:group>/settings/": (P.SUPERADMIN, "GET PATCH"),
    "api/v1/agents/": (P.SUPERADMIN, "GET"),
    "api/v1/agents/<uuid:agent_id>/": (P.SUPERADMIN, "GET PATCH"),
    "api/v1/agents/<uuid:agent_id>/drain/": (P.SUPERADMIN, "POST DELETE"),
    "api/v1/agents/<uuid:agent_id>/terminate/": (P.SUPERADMIN, "POST"),
    "api/v1/agents/<uuid:agent_id>/credential/": (P.SUPERADMIN, "POST DELETE"),
    "api/v1/slot-types/": (P.SIGNED_IN, "GET"),
    "api/v1/slot-types/<str:slot>/": (P.SIGNED_IN, "GET PATCH"),
    "api/v1/site-settings/": (P.SUPERADMIN, "GET PATCH"),
    "api/v1/announcements/": (P.SIGNED_IN, "GET POST"),
    "api/v1/announcements/<int:announcement_id>/": (P.SUPERADMIN, "GET PATCH DELETE"),
    "api/v1/audit-entries/": (P.SUPERADMIN, "GET"),
    "api/v1/join-tokens/": (P.SUPERADMIN, "GET POST"),
    "api/v1/join-tokens/<int:join_token_id>/": (P.SUPERADMIN, "DELETE"),
    "api/v1/jobs/": (P.SIGNED_IN, "GET"),
    "api/v1/jobs/<uuid:job_id>/": (P.VISIBLE, "GET"),
    "api/v1/jobs/<uuid:job_id>/cancel/": (P.VISIBLE, "POST"),
    "api/v1/jobs/<uuid:job_id>/retry/": (P.SUPERADMIN, "POST"),
    "api/v1/statistics/": (P.SIGNED_IN, "GET"),
    "api/v1/me/limits/": (P.SIGNED_IN, "GET"),
    "api/v1/users/": (P.SIGNED_IN, "GET POST"),
    "api/v1/users/<uuid:user_id>/": (P.VISIBLE, "GET PATCH"),
    "api/v1/users/<uuid:user_id>/keypairs/": (P.SUPERADMIN, "GET"),
    "api/v1/users/<uuid:user_id>/keypairs/<str:pair>/": (P.SUPERADMIN, "PATCH"),
    "api/v1/users/<uuid:user_id>/activate/": (P.ABOVE, "POST"),
    "api/v1/users/<uuid:user_id>/deactivate/": (P.ABOVE, "POST"),
    "api/v1/users/<uuid:user_id>/password/": (P.ABOVE, "POST"),
    "api/v1/users/<uuid:user_id>/second-factors/": (P.ABOVE, "DELETE"),
    "api/v1/users/<uuid:user_id>/purge/": (P.ABOVE, "POST"),
    "api/v1/projects/": (P.SIGNED_IN, "GET POST"),
    "api/v1/projects/<uuid:project_id>/": (P.ABOVE, "GET PATCH DELETE"),
    "api/v1/projects/<uuid:project_id>/members/": (P.VISIBLE, "GET POST"),
    "api/v1/projects/<uuid:project_id>/members/<uuid:user_id>/": (P.VISIBLE, "PATCH DELETE"),
    "api/v1/domains/": (P.SIGNED_IN, "GET POST"),
    "api/v1/domains/<int:domain_id>/": (P.SUPERADMIN, "GET PATCH DELETE"),
    "api/v1/invitations/": (P.SIGNED_IN, "GET POST"),
    "api/v1/invitations/<uuid:invitation_id>/": (P.VISIBLE, "DELETE"),
    "api/v1/me/": (P.SIGNED_IN, "GET"),
    "api/v1/device/": (P.PUBLIC, "POST"),
    "api/v1/device/token/": (P.PUBLIC, "POST"),
    "api/v1/me/token/": (P.SIGNED_IN, "DELETE"),
    "api/v1/me/bell/": (P.SIGNED_IN, "GET DELETE"),
    "api/v1/me/bell/seen/": (P.SIGNED_IN, "POST"),
    "api/v1/me/second-factors/": (P.SIGNED_IN, "GET"),
    "api/v1/me/notifications/": (P.SIGNED_IN, "GET PATCH"),
    "api/v1/tokens/": (P.SIGNED_IN, "GET POST"),
    "api/v1/tokens/<uuid:token_id>/": (P.OWN, "DELETE"),
    "api/v1/me/ssh-keys/": (P.SIGNED_IN, "GET POST"),
    "api/v1/me/images/": (P.SIGNED_IN, "GET"),
    "api/v1/me/images/<uuid:own_image_id>/": (P.OWN, "PATCH DELETE"),
    "api/v1/me/images/<uuid:own_image_id>/shares/": (P.OWN, "POST"),
    "api/v1/me/images/<uuid:own_image_id>/shares/<uuid:project_id>/": (P.OWN, "DELETE"),
    "api/v1/me/ssh-keys/<uuid:ssh_key_id>/": (P.OWN, "DELETE"),
    "api/v1/me/dotfiles/": (P.SIGNED_IN, "GET PUT"),
    "api/v1/me/dotfiles/<uuid:dotfile_id>/": (P.OWN, "DELETE"),
    "api/v1/me/recent-launches/": (P.SIGNED_IN, "GET"),
    "api/v1/me/recent-launches/<uuid:recent_launch_id>/": (P.OWN, "PATCH DELETE"),
    "api/v1/me/bootstrap-script/": (P.SIGNED_IN, "GET PUT"),
    "api/v1/projects/<uuid:project_id>/dotfiles/": (P.SUPERADMIN, "GET PUT"),
    "api/v1/projects/<uuid:project_id>/dotfiles/<uuid:project_file_id>/": (P.SUPERADMIN, "DELETE"),
    "api/v1/domains/<int:domain_id>/dotfiles/": (P.SUPERADMIN, "GET PUT"),
    "api/v1/domains/<int:domain_id>/dotfiles/<uuid:domain_file_id>/": (P.SUPERADMIN, "DELETE"),
    "api/v1/keypairs/": (P.SIGNED_IN, "GET POST"),
    "api/v1/keypairs/<str:access_key>/": (P.OWN, "PATCH DELETE"),
    "api/v1/keypairs/<str:access_key>/rotate/": (P.OWN, "POST"),
    "api/v1/folders/": (P.SIGNED_IN, "GET POST"),
    "api/v1/folders/transfer/": (P.SUPERADMIN, "POST"),
    "api/v1/folders/invitations/": (P.SIGNED_IN, "GET"),
    "api/v1/folders/invitations/<int:grant_id>/accept/": (P.OWN, "POST"),
    "api/v1/folders/invitations/<int:grant_id>/decline/": (P.OWN, "POST"),
    "api/v1/folders/<uuid:folder_id>/": (P.VISIBLE, "GET PATCH DELETE"),
    "api/v1/folders/<uuid:folder_id>/restore/": (P.VISIBLE, "POST"),
    "api/v1/folders/<uuid:folder_id>/retry/": (P.VISIBLE, "POST"),
    "api/v1/folders/<uuid:folder_id>/purge/": (P.VISIBLE, "POST"),
    "api/v1/folders/<uuid:folder_id>/clone/": (P.VISIBLE, "POST"),
    "api/v1/folders/<uuid:folder_id>/shares/": (P.VISIBLE, "GET POST"),
    "api/v1/folders/<uuid:folder_id>/shares/<uuid:guest_id>/": (P.VISIBLE, "DELETE"),
    "api/v1/folders/<uuid:folder_id>/uses/<uuid:session_id>/cut-off/": (P.VISIBLE, "POST"),
    "api/v1/folders/<uuid:folder_id>/leave/": (P.VISIBLE, "POST"),
    "api/v1/folders/<uuid:folder_id>/entries/": (P.VISIBLE, "GET"),
    "api/v1/folders/<uuid:folder_id>/directories/": (P.VISIBLE, "POST"),
    "api/v1/folders/<uuid:folder_id>/moves/": (P.VISIBLE, "POST"),
    "api/v1/folders/<uuid:folder_id>/copies/": (P.VISIBLE, "POST"),
    "api/v1/folders/<uuid:folder_id>/deletions/": (P.VISIBLE, "POST"),
    "api/v1/folders/<uuid:folder_id>/trash/": (P.VISIBLE, "GET DELETE"),
    "api/v1/folders/<uuid:folder_id>/operations/<str:operation>/": (P.VISIBLE, "GET DELETE"),
    "api/v1/folders/<uuid:folder_id>/trash/<str:item>/": (P.VISIBLE, "DELETE"),
    "api/v1/folders/<uuid:folder_id>/trash/<str:item>/restore/": (P.VISIBLE, "POST"),
    "api/v1/folders/<uuid:folder_id>/usage/": (P.VISIBLE, "GET"),
    "api/v1/folders/<uuid:folder_id>/uses/": (P.VISIBLE, "GET"),
    "api/v1/folders/<uuid:folder_id>/ticket/": (P.VISIBLE, "POST"),
    "api/v1/storage-hosts/": (P.READ, "GET POST"),
    "api/v1/storage-hosts/<uuid:storage_host_id>/": (P.READ, "GET PATCH DELETE"),
    "api/v1/endpoints/": (P.SIGNED_IN, "GET POST"),
    "api/v1/endpoint-preview/": (P.SIGNED_IN, "POST"),
    "api/v1/endpoints/<uuid:endpoint_id>/": (P.VISIBLE, "GET PATCH DELETE"),
    "api/v1/endpoints/<uuid:endpoint_id>/start/": (P.VISIBLE, "POST"),
    "api/v1/endpoints/<uuid:endpoint_id>/stop/": (P.VISIBLE, "POST"),
    "api/v1/endpoints/<uuid:endpoint_id>/retry/": (P.VISIBLE, "POST"),
    "api/v1/endpoints/<uuid:endpoint_id>/revisions/": (P.VISIBLE, "GET POST"),
    "api/v1/endpoints/<uuid:endpoint_id>/roll-back/": (P.VISIBLE, "POST"),
    "api/v1/endpoints/<uuid:endpoint_id>/replicas/": (P.VISIBLE, "GET"),
    "api/v1/templates/": (P.SIGNED_IN, "GET POST"),
    "api/v1/templates/<uuid:template_id>/": (P.VISIBLE, "GET PATCH DELETE"),
    "api/v1/templates/<uuid:template_id>/activate/": (P.VISIBLE, "POST"),
    "api/v1/templates/<uuid:template_id>/render/": (P.VISIBLE, "POST"),
    "api/v1/templates/<uuid:template_id>/versions/": (P.VISIBLE, "GET POST"),
    "api/v1/templates/<uuid:template_id>/versions/<int:number>/": (P.VISIBLE, "GET"),
    "api/v1/endpoints/<uuid:endpoint_id>/history/": (P.VISIBLE, "GET"),
    "api/v1/endpoints/<uuid:endpoint_id>/explain/": (P.VISIBLE, "GET"),
    "api/v1/endpoints/<uuid:endpoint_id>/metrics/": (P.VISIBLE, "GET"),
    "api/v1/endpoints/<uuid:endpoint_id>/rules/": (P.VISIBLE, "GET PUT"),
    "api/v1/endpoints/<uuid:endpoint_id>/tokens/": (P.VISIBLE, "GET POST"),
    "api/v1/endpoints/<uuid:endpoint_id>/tokens/<uuid:endpoint_token_id>/": (P.VISIBLE, "DELETE"),
    "api/^": (P.NOWHERE, "GET POST DELETE"),
    "node/v1/join": (P.NODE, "POST"),
    "node/v1/broker": (P.NODE, "POST"),
    "node/v1/sync": (P.NODE, "POST"),
    "node/v1/bundle": (P.NODE, "POST"),
    "node/v1/kernels/<uuid:kernel_id>": (P.NODE, "GET"),
    "node/v1/kernels/<uuid:kernel_id>/report": (P.NODE, "POST"),
    "node/v1/kernels/<uuid:kernel_id>/log": (P.NODE, "PUT"),
    "node/v1/kernels/<uuid:kernel_id>/registry": (P.NODE, "GET"),
    "node/v1/jobs/<str:kind>/<uuid:job_id>": (P.NODE, "GET"),
    "node/v1/jobs/<str:kind>/<uuid:job_id>/report": (P.NODE, "POST"),
}
# Methods for superadmins alone, at addresses that others may read.
STEERED = {
    ("api/v1/announcements/", "POST"),
    ("api/v1/images/", "POST"),
    ("api/v1/resource-groups/", "POST"),
    ("api/v1/resource-groups/<slug:group>/", "DELETE"),
    ("api/v1/slot-types/<str:slot>/", "PATCH"),
}
# Whose row stands for ``pk`` in the addresses of the administration pages that begin so.


def a_registry() -> Registry:
    return Registry.objects.get_or_create(name="lab", defaults={"url": "https://cr.example.org"})[0]


def an_unknown_kernel(agent: Agent) -> UnknownKernel:
    session = uuid5(NAMESPACE_DNS, "forgotten")
    values = {
        "generation": 1,
        "session_id": session,
        "manifest": {"name": "lost", "owner": "a@b.c", "cluster_size": 2, "rank": 0},
    }
    return UnknownKernel.objects.get_or_create(agent=agent, kernel_id=session, defaults=values)[0]


def a_checker() -> IdleChecker:
    return IdleChecker.objects.get_or_create(name="quiet")[0]


PANEL_ROWS: dict[str, Callable[[World], Any]] = {
    "manage/domains/": lambda world: world.cast.alice.domain,
    "api/v1/policies/": lambda _: ResourcePolicy.objects.get_or_create(name="spare")[0],
    "manage/policies/": lambda _: ResourcePolicy.objects.get_or_create(name="spare")[0],
    "manage/users/": lambda world: world.cast.alice,
    "manage/projects/": lambda world: world.invitation.project,
    "manage/key-pairs/": lambda world: world.cast.alice.key_pairs.get(),
    "manage/invitations/": lambda world: world.invitation,
    "manage/queue/": lambda world: world.session,
    "manage/agents/": lambda world: world.agent,
    "manage/groups/": lambda world: world.session.resource_group,
    "manage/slot-types/": lambda _: SlotType.objects.get(name="cpu"),
    "manage/announcements/": lambda _: Announcement.objects.get_or_create(text="Hello")[0],
    "manage/presets/": lambda world: world.preset,
    "manage/images/": lambda world: world.session.image,
    "manage/unknown-kernels/": lambda world: an_unknown_kernel(world.agent),
    "api/v1/unknown-kernels/": lambda world: an_unknown_kernel(world.agent),
    "manage/storage-hosts/": lambda _: StorageHost.objects.get(),
    "manage/registries/": lambda _: a_registry(),
    "api/v1/registries/": lambda _: a_registry(),
    "manage/idle-checkers/": lambda _: a_checker(),
    "api/v1/idle-checkers/": lambda _: a_checker(),
    "manage/jobs/": lambda world: world.job,
    "manage/what-if/": lambda _: BackgroundJob.objects.get(kind="group.what-if"),
    "manage/join-tokens/": lambda world: JoinToken.objects.get(),
}
PREFIXES = {"admin/": P.SUPERADMIN, "compat": P.SHUT}
OPEN_IN_ADMIN = {"admin/login/", "admin/logout/"}
SOCKETS = {
    "ws/events/": P.SIGNED_IN,
    "ws/sessions/<uuid:session_id>/terminal/": P.VISIBLE,
    "ws/sessions/<uuid:session_id>/logs/": P.VISIBLE,
    "ws/sessions/<uuid:session_id>/runs/": P.VISIBLE,
    "^": P.NOWHERE,
}
# POST changes nothing there: anyone who may look may ask. Or it needs no token at all, or ends the token that asks.
HARMLESS = {
    "api/v1/templates/<uuid:template_id>/render/", "api/v1/session-preview/", "api/v1/check-presets/", "api/^",
    "api/v1/device/", "api/v1/device/token/", "api/v1/me/token/",
}  # fmt: skip
WATCHED = [
    ComputeSession, Kernel, SessionShare, StopSchedule, Agent, User, BackgroundJob, Project, Membership, Invitation,
    Folder, FolderGrant, StorageHost, Endpoint, EndpointToken, Template, Run, Task,
]  # fmt: skip
QUERIES = [
    *(f"SELECT {model._meta.pk.column}, every.* FROM {model._meta.db_table} every" for model in WATCHED),
    f"SELECT id, every.* FROM {AuditEntry._meta.db_table} every WHERE action NOT LIKE '{PREFIX}%'",
    f"SELECT id FROM {AccessToken._meta.db_table}",
]
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
PRIVATE_NAME, PRIVATE_OUTPUT = "alices-own-run", b"what alice printed"
PEOPLE = ("alice", "bob", "charlie", "dana")
UNSAFE = [(route, method) for route, (_, methods) in TABLE.items() for method in methods.split() if method != "GET"]


@dataclass(frozen=True)
class World:
    """Something of Alice's in every table, and her node's gateway."""

    cast: Cast
    session: ComputeSession
    kernel: Kernel
    token: AccessToken
    agent: Agent
    job: BackgroundJob
    preset: ResourcePreset
    invitation: Invitation
    empty_domain: Domain
    browsers: dict[str, Client]
    more: dict[str, str]

    def path(self, route: str) -> str:
        ids = {"session": self.session, "kernel": self.kernel, "token": self.token, "agent": self.agent}
        ids |= {"job": self.job, "user": self.cast.alice, "project": self.invitation.project}
        ids |= {"invitation": self.invitation, "domain": self.empty_domain}
        route = route.replace("<uuid:image_id>", str(self.session.image_id))
        for name, row in ids.items():
            route = re.sub(f"<(uuid|int):{name}_id>", str(row.pk), route)
        route = route.replace("<int:preset_id>", str(self.preset.pk))
        if "<int:join_token_id>" in route:
            route = route.replace("<int:join_token_id>", str(JoinToken.objects.get().pk))
        for start, find in PANEL_ROWS.items():
            if route.startswith(start):
                route = re.sub("<(int|uuid|str):pk>", str(find(self).pk), route)
        samples = {"<slug:service>": "notes", "<slug:group>": "default", "<slug:provider_id>": "sso", "<int:pk>": "1"}
        samples |= {
            "<str:text>": "nothing",
            "<str:wheel>": WHEEL.name if WHEEL else "nothing",
            "<str:launch_key>": "nothing",
            "<str:slot>": "cpu",
            "<uuid:pull_id>": str(self.job.pk),
            "<uuid:commit_id>": str(self.job.pk),
        }
        samples |= {"<int:checker_id>": "1", "<int:notice_id>": "1"}
        if "<int:announcement_id>" in route:
            samples["<int:announcement_id>"] = str(Announcement.objects.get_or_create(text="Hello")[0].pk)
        samples |= {"<slug:label>": f"notes-{self.session.pk.hex[:12]}", "<slug:slug>": "rest", "<slug:name>": "launch"}
        samples["<str:pair>"] = self.more["<str:access_key>"]
        for part, value in (samples | self.more).items():
            route = route.replace(part, value)
        return "/" + route.replace("^", "nothing/")

    def state(self) -> list[Any]:
        """Everything that a stranger or a GET must not change; that somebody tried is written down."""
        with connection.cursor() as cursor:
            return [cursor.execute(f"{query} ORDER BY 1").fetchall() for query in QUERIES]


@pytest.fixture(scope="module")
def lasting_world(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[World]:
    """One world for all addresses, for to make it takes longer than to ask for one of them."""
    around = transaction.atomic()
    around._from_testcase = True  # type: ignore[attr-defined]  # durable blocks may begin in it, as in any test
    with django_db_blocker.unblock(), around, made_world(make_cast()) as world:
        yield world
        transaction.set_rollback(True)


@pytest.fixture
def world(lasting_world: World, db: None) -> World:
    """The world as it was made; what the test changes in it is rolled back."""
    return replace(
        lasting_world,
        cast=deepcopy(lasting_world.cast),
        browsers={who: with_cookies_of(client) for who, client in lasting_world.browsers.items()},
    )


@contextmanager
def made_world(cast: Cast) -> Iterator[World]:
    with log_gateway(200, PRIVATE_OUTPUT) as (address, _), serving(FakeFileServer()) as files:
        make_image(labels={"ai.backend.service-ports": "notes:http:8080"})
        session = make_running_session(cast.alice, name=PRIVATE_NAME)
        kernel = session.kernels.select_related("agent").get()
        Agent.objects.update(gateway_url=address)
        create_join_token(session.resource_group)
        token, _ = create_token(cast.alice, "laptop")
        job = start_job("image.pull", PRIVATE_NAME, now=timezone.now(), owner_id=cast.alice.pk)
        start_job("group.what-if", "default", now=timezone.now())
        preset = ResourcePreset.objects.create(name="small", slots={"cpu": 1, "mem": "1g"})
        project = get_or_create_project("default", PRIVATE_NAME)
        Membership.objects.create(user=cast.alice, project=project, role="admin")
        empty = Domain.objects.create(name="nobodys")
        invitation, _ = invite(cast.alice, project, Invitee("new@example.com"), now=timezone.now())
        browsers = {"nobody": Client()} | {who: signed_in(getattr(cast, who)) for who in PEOPLE}
        agent, more = Agent.objects.get(), environments(cast, project, empty) | folders(cast, files)
        more |= endpoints(cast) | templates(cast) | runs(cast)
        StopSchedule.objects.create(session=session, stop_at=time(20), time_zone="UTC")
        share = share_session(session, cast.alice, "view", project=project.pk, now=timezone.now())
        more["<int:share_id>"] = str(share.pk)
        held = {"folder_id": more["<uuid:folder_id>"], "folder_name": PRIVATE_NAME, "rights": "edit"}
        SessionMount.objects.create(session=session, target="/home/work/data", **held)
        yield World(cast, session, kernel, token, agent, job, preset, invitation, empty, browsers, more)


def environments(cast: Cast, project: Project, domain: Domain) -> dict[str, str]:
    """Write what Alice, a project and a domain bring into sessions; return the parts of addresses."""
    files = {
        name: save_dotfile(cast.alice if owner is cast.alice else cast.dana, owner, ".bashrc", PRIVATE_NAME).pk
        for name, owner in (
            ("<uuid:dotfile_id>", cast.alice),
            ("<uuid:project_file_id>", project),
            ("<uuid:domain_file_id>", domain),
        )
    }
    key = add_ssh_key(cast.alice, PUBLIC_KEY, name=PRIVATE_NAME)
    parts = files | {"<uuid:ssh_key_id>": key.pk}
    record = LaunchRecord.objects.create(owner=cast.alice, name=PRIVATE_NAME, parameters={"image": "python"})
    parts["<uuid:recent_launch_id>"] = record.pk
    own = make_image("customized_1", title=PRIVATE_NAME, is_customized=True, owner=cast.alice)
    parts["<uuid:own_image_id>"] = own.pk
    ImageShare.objects.create(image=own, project=project)
    parts["<str:access_key>"] = cast.alice.key_pairs.get().pk
    return {name: str(value) for name, value in parts.items()}


def folders(cast: Cast, files: FakeFileServer) -> dict[str, str]:
    """Give Alice a folder, and an invitation to one of an administrator; return the parts of addresses."""
    host, now = make_host(files), timezone.now()
    folder = create_folder(cast.alice, name=PRIVATE_NAME, now=now)
    other = create_folder(cast.dana, name=PRIVATE_NAME, now=now)
    grant = share_folder(other, cast.dana, cast.alice.email, "view", now=now)
    share_folder(folder, cast.alice, cast.dana.email, "view", now=now)
    parts: dict[str, Any] = {"<uuid:folder_id>": folder, "<uuid:storage_host_id>": host, "<int:grant_id>": grant}
    parts["<uuid:guest_id>"] = cast.dana
    words = {
        "<str:item>": "nothing",
        "<str:operation>": "0",
        "<folder_verb:verb>": "leave",
        "<folder_digits:digits>": folder.pk.hex[:12],
    }
    return {name: str(row.pk) for name, row in parts.items()} | words


def endpoints(cast: Cast) -> dict[str, str]:
    """Give Alice an endpoint with a token; return the parts of addresses."""
    revision = RevisionSpec("python", "serve", resources={"cpu": 1, "mem": "512m"}, model_name=PRIVATE_NAME)
    endpoint = create_endpoint(cast.alice, EndpointSpec("chat", revision))
    token, _ = create_endpoint_token(endpoint, cast.alice, PRIVATE_NAME)
    return {"<uuid:endpoint_id>": str(endpoint.pk), "<uuid:endpoint_token_id>": str(token.pk)}


def templates(cast: Cast) -> dict[str, str]:
    """Give Alice a template; return the parts of addresses."""
    made = create_template(cast.alice, TemplateDraft(PRIVATE_NAME), "image: python", now=timezone.now())
    return {"<uuid:template_id>": str(made.pk), "<int:number>": "1"}


def runs(cast: Cast) -> dict[str, str]:
    """Give Alice a run; return the parts of addresses."""
    document = {"image": "python", "resources": {"cpu": 1, "mem": "512m"}, "startup_command": PRIVATE_NAME, "array": 2}
    run, _ = create_run(cast.alice, RunSpec(document=document, name=PRIVATE_NAME), now=timezone.now())
    return {"<uuid:run_id>": str(run.pk)}


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def with_cookies_of(client: Client) -> Client:
    other = Client()
    other.cookies = SimpleCookie({name: one.value for name, one in client.cookies.items()})
    return other


def addresses(resolver: URLResolver, before: str = "") -> Iterator[str]:
    for one in resolver.url_patterns:
        here = before + str(one.pattern)
        if isinstance(one, URLResolver):
            yield from addresses(one, here)
        elif isinstance(one, URLPattern):
            yield here


def undeclared(found: list[str]) -> set[str]:
    return {route for route in found if route not in TABLE and not route.startswith(tuple(PREFIXES))}


def test_it_knows_the_policy_of_every_address() -> None:
    found = list(addresses(get_resolver()))
    assert undeclared(found) == set()
    assert set(TABLE) - set(found) == set(), "in the table but not there any more"
    assert undeclared([*found, "reports/"]) == {"reports/"}


def test_it_knows_the_policy_of_every_websocket() -> None:
    assert {str(one.pattern) for one in websocket_urlpatterns} == set(SOCKETS)


def asked_of(route: str) -> Iterator[tuple[str, Policy]]:
    for method in TABLE[route][1].split():
        yield method, P.SUPERADMIN if (route, method) in STEERED else TABLE[route][0]


@pytest.mark.django_db
@pytest.mark.parametrize("route", TABLE)
def test_it_keeps_out_whom_the_policy_does_not_name(world: World, route: str) -> None:
    before = world.state()
    for method, policy in asked_of(route):
        for who in ("nobody", "charlie", "bob", *(["dana"] if policy is P.OWN else [])):
            judge_stranger(policy, ask(world, who, method, route), who)
        if policy in (P.READ, P.VISIBLE, P.ABOVE, P.OWN, P.SUPERADMIN, P.NODE, P.NOWHERE) or method == "GET":
            assert world.state() == before, "a stranger, or a superadmin what is personal, changed something"
        before = world.state()


@pytest.mark.django_db
@some("route", TABLE, 60)
def test_it_lets_in_whom_the_policy_names(world: World, route: str) -> None:
    for method, policy in asked_of(route):
        before = world.state()
        for who in ("alice", "dana"):
            judge_owner(policy, ask(world, who, method, route), who)
        assert method != "GET" or world.state() == before, "GET changed something"


@pytest.mark.django_db
def test_it_wants_a_csrf_token_for_everything_that_changes_something(world: World) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(world.cast.alice)
    before = world.state()
    for route, method in UNSAFE:
        if TABLE[route][0] is not P.NODE:
            answer = client.generic(method, world.path(route), b"{}", content_type="application/json")
            assert answer.status_code == 403, (method, route)
    assert world.state() == before


@pytest.mark.django_db
def test_it_knows_which_scope_every_unsafe_address_of_the_api_needs(world: World) -> None:
    """A token that may only look gets no further, whatever the address; so each view says what more it needs."""
    _, text = create_token(world.cast.dana, "looks", scopes=["read"])
    script = Client(headers={"Authorization": f"Bearer {text}"})
    before = world.state()
    for route, method in UNSAFE:
        if not route.startswith("api/") or route in HARMLESS:
            continue
        view: Any = resolve(world.path(route)).func
        assert getattr(view.view_class, "token_scopes", None), f"{route}: name the scopes that {method} needs"
        answer = script.generic(method, world.path(route), b"{}", content_type="application/json")
        assert (answer.status_code, answer["Content-Type"]) == (403, "application/problem+json"), (method, route)
        assert answer.json()["code"] == "token-scope", (method, route)
    assert world.state() == before
    assert script.get("/api/v1/sessions/").status_code == 200


@pytest.mark.django_db
def test_it_opens_the_admin_to_superadmins_only(world: World) -> None:
    routes = [route for route in addresses(get_resolver()) if route.startswith("admin/") and "<" not in route]
    plain = [route for route in routes if "(" not in route and route not in OPEN_IN_ADMIN]
    assert len(plain) > 5
    for who in ("nobody", "charlie", "bob", "alice"):
        for route in plain:
            answer = ask(world, who, "GET", route)
            assert answer.status_code == 302, (who, route)
            assert answer["Location"].startswith("/admin/login/"), (who, route)
    assert ask(world, "dana", "GET", "admin/").status_code == 200


def ask(world: World, who: str, method: str, route: str) -> Any:
    client = world.browsers[who]
    if method == "GET":
        return client.get(world.path(route))
    kind = "application/json" if route.startswith(("api/", "node/")) else "application/x-www-form-urlencoded"
    return client.generic(method, world.path(route), b"{}" if kind.endswith("json") else b"", content_type=kind)


def judge_stranger(policy: Policy, answer: Any, who: str) -> None:
    status = answer.status_code
    text = "" if answer.streaming else answer.content.decode(errors="replace")
    if policy is P.PUBLIC:
        words = "400: nothing was asked; 410: no invitation; 503: not ready, which anybody may know"
        assert status in (200, 302, 400, 410, 503), words
    elif policy is P.SHUT:
        assert status == 404
    elif policy is P.NODE:
        assert status in (400, 401, 403)
    elif who == "nobody":
        assert status == 401 or (status == 302 and answer["Location"].startswith("/login/")), status
    elif policy is P.SIGNED_IN:
        assert status in (200, 204, 302, 400, 422)
    elif policy is P.READ:
        assert status == (200 if answer.wsgi_request.method == "GET" else 403)
    elif policy is P.OWN:
        assert status == 404 or (status == 302 and answer["Location"].startswith("/account/"))
    elif policy is P.SUPERADMIN and status == 200:
        assert answer.json()["results"] == []
    else:
        assert status == 404
    if policy is not P.PUBLIC and who != "dana":
        assert PRIVATE_NAME not in text
        assert PRIVATE_OUTPUT.decode() not in text


def judge_owner(policy: Policy, answer: Any, who: str) -> None:
    if policy is P.NODE or (policy in (P.SUPERADMIN, P.READ) and who == "alice"):
        judge_stranger(policy, answer, who)
    elif policy is P.SHUT:
        assert answer.status_code == 404
    elif policy is P.NOWHERE or (policy is P.OWN and who == "dana"):
        assert answer.status_code in (302, 404)
    elif policy is P.ABOVE and who == "alice":
        assert answer.status_code in (200, 400, 403), answer.content
    elif answer.request["REQUEST_METHOD"] == "DELETE" and who == "dana" and answer.status_code == 404:
        assert policy is P.VISIBLE, "Alice could not have deleted it before"
    else:
        assert answer.status_code in (200, 201, 202, 204, 302, 400, 409, 422) or policy is P.PUBLIC, answer.content
        assert not (answer.status_code == 302 and answer["Location"].startswith("/login/") and policy is not P.PUBLIC)

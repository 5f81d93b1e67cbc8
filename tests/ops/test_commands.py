"""What operators type: tokens made on the command line, commands to paste, and their help."""

from __future__ import annotations

import re
import shlex
import subprocess
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command, load_command_class
from django.test import Client
from django.urls import reverse

from backendai.domain.accounts.models import AccessToken, Membership, User
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster import agents
from tests.cast import Cast
from tests.factories import make_agent, make_group

pytestmark = pytest.mark.django_db
COMMANDS = [
    *(("backendai.ops", name) for name in ("create_token", "create_join_token", "audit", "doctor", "seed", "prepare")),
    ("backendai.agent", "agent"),
    ("backendai.gates.appproxy", "appproxy"),
    ("backendai.files", "file_server"),
]


def run(*words: str) -> str:
    out, error = StringIO(), StringIO()
    call_command(*words, stdout=out, stderr=error)
    return out.getvalue() + error.getvalue()


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def scopes_of(user: User) -> list[str]:
    return AccessToken.objects.get(user=user).scopes


def test_the_audit_log_says_that_the_command_line_made_a_token(cast: Cast) -> None:
    run("create_token", cast.alice.email)
    entry = AuditEntry.objects.get(action="token.create")
    assert (entry.actor, entry.target_type, entry.target_id) == (None, "user", str(cast.alice.pk))
    row = browser(cast.dana).get(reverse("manage:audit"), {"action": "token.create"}).content.decode()
    assert "the command line" in row
    assert "the platform</td>" not in row


def test_a_token_can_administer_only_for_users_who_administer_something(cast: Cast) -> None:
    run("create_token", cast.alice.email)
    assert scopes_of(cast.alice) == ["read", "sessions", "folders", "account"]
    run("create_token", cast.dana.email)
    assert "admin" in scopes_of(cast.dana)
    with pytest.raises(CommandError, match="administers nothing"):
        run("create_token", cast.bob.email, "--scopes", "read,admin")
    Membership.objects.filter(user=cast.bob).update(role=Membership.Role.ADMIN)
    run("create_token", cast.bob.email, "--scopes", "admin")
    assert scopes_of(cast.bob) == ["read", "admin"]


def test_wrong_scopes_and_names_are_refused_in_a_sentence(cast: Cast) -> None:
    with pytest.raises(CommandError, match="Unknown scope 'fly'"):
        run("create_token", cast.alice.email, "--scopes", "fly")
    with pytest.raises(CommandError, match="1 to 64 characters"):
        run("create_token", cast.alice.email, "--name", "")
    assert not AccessToken.objects.exists()


def test_a_join_command_can_be_pasted_as_it_is(settings: Any) -> None:
    make_group()
    settings.PORTAL_URL = "https://portal.lab.example"
    said = run("create_join_token", "--name-prefix", "sec-")
    assert "guess" not in said
    command = said.partition("On the new machine: ")[2]
    printed = subprocess.run(
        ["sh", "-c", command.replace(".venv/bin/python manage.py agent", "printf '%s\\n'")],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    host = subprocess.run(["hostname", "-s"], capture_output=True, text=True, check=True).stdout.strip()
    assert printed[:2] == ["--join", "https://portal.lab.example"]
    assert printed[-2:] == ["--name", f"sec-{host}"]


def test_an_address_that_nobody_configured_is_guessed_and_said_to_be(settings: Any) -> None:
    make_group()
    settings.PORTAL_URL, settings.PORT = "http://127.0.0.1:8080", 8080
    said = run("create_join_token")
    address = re.search(r"--join (\S+)", said)
    assert address and "<" not in said
    assert f"{address[1]} is a guess" in said
    assert shlex.split(said.partition("On the new machine: ")[2].splitlines()[0])[0].startswith(
        "BACKENDAI_JOIN_TOKEN=join_"
    )


def test_the_page_that_renews_a_credential_names_the_agent(cast: Cast, settings: Any) -> None:
    settings.PORTAL_URL = "http://127.0.0.1:8080"
    agent = make_agent("gpu-07")
    page = browser(cast.dana).post(reverse("manage:agent-renew", args=[agent.pk])).content.decode()
    assert re.search(r"BACKENDAI_JOIN_TOKEN=join_\S+ .* --name gpu-07", page) and "--token" not in page
    assert f"The address {agents.portal_address()[0]} is a guess" in re.sub("[\u2068\u2069]", "", page)
    assert "such as --data and --backend" in page and "no other machine can join" not in page


def test_a_portal_that_listens_here_only_says_that_no_machine_can_join(cast: Cast, settings: Any) -> None:
    make_group()
    settings.PORTAL_URL, settings.LISTENS_HERE_ONLY = "http://127.0.0.1:8080", True
    dana, renew = browser(cast.dana), reverse("manage:agent-renew", args=[make_agent("gpu-07").pk])
    for page in (dana.get(reverse("manage:join-token-new")), dana.post(renew)):
        assert "no other machine can join" in page.content.decode() and " is a guess" not in page.content.decode()
    assert "no other machine can join" in run("create_join_token")
    settings.PORTAL_URL = "https://portal.lab.example"  # a proxy on this machine
    assert "no other machine" not in dana.get(reverse("manage:join-token-new")).content.decode()
    assert "no other machine" not in run("create_join_token")


@pytest.mark.parametrize(("app", "name"), COMMANDS)
def test_the_help_of_a_command_has_its_own_options_each_with_a_word(app: str, name: str) -> None:
    parser = load_command_class(app, name).create_parser("manage.py", name)
    told = parser.format_help()
    assert "--settings" not in told and "--pythonpath" not in told
    undescribed = [action.dest for action in parser._actions if not action.help]
    assert undescribed == []

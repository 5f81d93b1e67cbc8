"""The pages about people, projects, invitations and imports."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from html import unescape
from typing import Any
from urllib.parse import unquote

import pytest
from allauth.mfa.models import Authenticator
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from backendai.domain.accounts.models import Domain, Invitation, Membership, Project, ResourcePolicy, User
from backendai.domain.accounts.services import (
    NewUser,
    accept_as_new,
    create_token,
    create_user,
    digest_of,
    set_user_active,
)
from backendai.domain.accounts.services.create_user import sign_up
from backendai.domain.activity.models import AuditEntry
from tests.accounts.world import World, make_world
from tests.cast import PASSWORD, Cast
from tests.factories import make_running_session, make_session
from tests.pages import markup
from tests.serving.world import make_endpoint

pytestmark = pytest.mark.django_db

Browse = Callable[[User], Client]
NEW = "x@example.com"
HOSTILE = "<script>alert(1)</script>\u202enhoj" + "🦉" * 64


@pytest.fixture
def world(db: None) -> World:
    return make_world()


def text_of(answer: Any) -> str:
    return str(markup(answer))


def test_each_role_finds_its_own_pages(world: World, browse: Browse) -> None:
    pages = {
        "dana": {"users", "projects", "domains", "invitations", "import"},
        "erin": {"users", "projects", "invitations", "import"},
        "bob": {"projects", "invitations", "import"},
        "alice": set(),
    }
    for who, allowed in pages.items():
        client = browse(world.person(who))
        for page in pages["dana"]:
            assert client.get(f"/manage/{page}/").status_code == (200 if page in allowed else 404), (who, page)
    assert 'href="/manage/projects/"' in text_of(browse(world.bob).get("/account/"))
    assert 'href="/manage/projects/"' not in text_of(browse(world.cast.alice).get("/account/"))


def test_lists_show_what_one_rules_and_names_as_text(world: World, browse: Browse) -> None:
    User.objects.filter(pk=world.gina.pk).update(full_name=HOSTILE)
    Project.objects.filter(pk=world.speech.pk).update(name=HOSTILE[:64])
    for path in ("/manage/users/", f"/manage/users/{world.gina.pk}/", "/manage/projects/"):
        shown = text_of(browse(world.erin).get(path))
        assert "<script>alert" not in shown
        assert "&lt;script&gt;alert(1)&lt;/script&gt;\u202enhoj🦉" in shown
    people = text_of(browse(world.erin).get("/manage/users/"))
    assert "gina@example.com" in people
    assert "charlie@example.com" not in people
    assert "speech" not in text_of(browse(world.bob).get("/manage/projects/"))
    inactive = text_of(browse(world.cast.dana).get("/manage/users/?is_active=false"))
    assert "Nothing matches" in inactive


def test_lists_ask_the_database_the_same_however_long_they_are(
    world: World, browse: Browse, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    client = browse(world.cast.dana)
    Invitation.objects.create(email=NEW, project=world.vision, digest="first", expires_at=timezone.now())
    for lap in range(2):
        for path, number in (("users", 5), ("projects", 5), ("invitations", 4)):  # with the domains to filter by
            with django_assert_num_queries(number):
                assert client.get(f"/manage/{path}/").status_code == 200
        for number in range(5):
            create_user(world.cast.dana, NewUser(f"p{lap}-{number}@example.com", domain=world.domain))
            project = Project.objects.create(domain=world.domain, name=f"p{lap}-{number}")
            Invitation.objects.create(email=NEW, project=project, digest=f"{lap}{number}", expires_at=timezone.now())


def test_a_person_is_made_and_changed_within_ones_own_limits(world: World, browse: Browse) -> None:
    erin = browse(world.erin)
    form = erin.get("/manage/users/new/").context["form"]
    assert "domain" not in form.fields
    assert "superadmin" not in dict(form.fields["role"].choices)
    sent = {"email": "new@example.com", "full_name": "Nora", "role": "user", "password": PASSWORD}
    made = erin.post("/manage/users/new/", sent | {"projects": [str(world.vision.pk)]})
    user = User.objects.get(email="new@example.com")
    assert made["Location"] == f"/manage/users/{user.pk}/"
    assert (user.domain, user.check_password(PASSWORD), user.projects.get()) == (world.domain, True, world.vision)
    weak = erin.post("/manage/users/new/", sent | {"email": "more@example.com", "password": "short"})
    assert weak.status_code == 422
    assert "password" in weak.context["form"].errors
    assert 'value="short"' not in text_of(weak)
    address = f"/manage/users/{user.pk}/change/"
    form = erin.get(address).context["form"]
    assert "share_weight" not in form.fields
    changed = {"email": user.email, "full_name": "Nora N.", "role": "admin", "version": form["version"].value()}
    assert erin.post(address, changed).status_code == 302
    user.refresh_from_db()
    assert (user.full_name, user.role) == ("Nora N.", "admin")
    assert erin.post(address, changed | {"full_name": "Stale"}).status_code == 422
    forged = erin.post(address, changed | {"version": form["version"].value(), "role": "superadmin"})
    assert forged.status_code == 422
    user.refresh_from_db()
    assert (user.full_name, user.role) == ("Nora N.", "admin")
    assert erin.get(f"/manage/users/{world.cast.dana.pk}/change/").status_code == 404, "she stands above"
    assert erin.get(f"/manage/users/{world.cast.charlie.pk}/").status_code == 404


def test_a_new_user_gets_the_only_project_unless_another_is_chosen(world: World, browse: Browse) -> None:
    dana = browse(world.cast.dana)
    assert not dana.get("/manage/users/new/").context["form"]["projects"].value(), "the domain has two"
    Project.objects.filter(pk=world.speech.pk).update(is_active=False)
    form = dana.get("/manage/users/new/").context["form"]
    assert (form["projects"].value(), form["domain"].value()) == ([world.vision.pk], world.domain.pk)
    assert f'<option value="{world.vision.pk}" selected>' in text_of(dana.get("/manage/users/new/"))


def test_who_has_lost_a_second_factor_is_helped_by_an_administrator(world: World, browse: Browse) -> None:
    alice, client = world.cast.alice, browse(world.cast.dana)
    assert "Reset second factors" not in text_of(client.get(f"/manage/users/{alice.pk}/"))
    Authenticator.objects.create(user=alice, type=Authenticator.Type.TOTP, data={"secret": "sealed"})
    assert "Reset second factors" in text_of(client.get(f"/manage/users/{alice.pk}/"))
    address = f"/manage/users/{alice.pk}/factors/"
    assert browse(world.cast.bob).post(address).status_code == 404
    assert client.post(address).status_code == 302
    assert not Authenticator.objects.filter(user=alice).exists()
    assert client.post(f"/manage/users/{world.cast.dana.pk}/factors/").status_code == 404


def test_the_page_of_a_person_shows_what_belongs_to_them(
    world: World, browse: Browse, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    alice = world.cast.alice
    alice.policy = ResourcePolicy.objects.create(name="students", max_sessions=2)
    alice.save()
    create_token(alice, "laptop")
    make_session(alice)
    client = browse(world.cast.dana)
    with django_assert_max_num_queries(15):
        page = text_of(client.get(f"/manage/users/{alice.pk}/"))
    for words in ("vision", "students", "1 of 1", "Deactivate", "Set a password"):
        assert words in page
    own = text_of(client.get(f"/manage/users/{world.cast.dana.pk}/"))
    assert "Deactivate" not in own


def test_a_person_is_deactivated_activated_and_given_a_password(world: World, browse: Browse) -> None:
    erin, gina = browse(world.erin), f"/manage/users/{world.gina.pk}/"
    signed_in = browse(world.gina)
    assert "All their sign-ins" in text_of(erin.get(f"{gina}deactivate/"))
    assert erin.post(f"{gina}deactivate/").status_code == 302
    assert signed_in.get("/account/").status_code == 302
    assert "deactivated" in text_of(erin.get(gina))
    assert erin.post(f"{gina}activate/").status_code == 302
    weak = erin.post(f"{gina}password/", {"password": "short"})
    assert weak.status_code == 422
    assert "password" in weak.context["form"].errors
    assert erin.post(f"{gina}password/", {"password": "battery horse staple"}).status_code == 302
    assert world.person("gina").check_password("battery horse staple")
    assert erin.get(f"/manage/users/{world.erin.pk}/deactivate/").status_code == 404, "nobody shuts themselves out"
    assert erin.get(f"{gina}purge/").status_code == 404, "that is for superadmins"


def test_an_activation_says_what_acts_for_the_person_again(world: World, browse: Browse) -> None:
    dana, alice = browse(world.cast.dana), world.cast.alice
    make_endpoint(alice)
    set_user_active(world.cast.dana, alice, False, now=timezone.now())
    asked = text_of(dana.get(f"/manage/users/{alice.pk}/activate/"))
    assert "again at once: endpoints: 1." in asked and "start their replicas again" in asked
    newcomer = sign_up("new@example.com", PASSWORD)
    assert newcomer
    asked = text_of(dana.get(f"/manage/users/{newcomer.pk}/activate/"))
    assert "for the first time" in asked and "no domain and no project yet" in asked and "as before" not in asked


def test_a_deactivation_says_how_many_sessions_go_on(world: World, browse: Browse) -> None:
    alice = world.cast.alice
    make_session(alice)
    make_running_session(alice)
    page = text_of(browse(world.cast.dana).get(f"/manage/users/{alice.pk}/deactivate/"))
    assert "keep running (1 live now)" in page


def test_a_purge_wants_the_address_and_no_live_session(world: World, browse: Browse) -> None:
    dana, alice = browse(world.cast.dana), world.cast.alice
    make_session(alice)
    address = f"/manage/users/{alice.pk}/purge/"
    person = f"/manage/users/{alice.pk}/"
    assert 'name="typed"' not in text_of(dana.get(address)), "an active account is not purged"
    set_user_active(world.cast.dana, alice, False, now=timezone.now())
    asked, shown = text_of(dana.get(address)), text_of(dana.get(person))
    for page in (asked, shown):
        assert "1 PENDING" in page and "/?owner=alice%40example.com" in page
    assert 'name="typed"' not in asked and "Purge user for good" not in asked
    assert f'href="{address}"' not in shown
    assert dana.post(address, {"typed": "alice"}).status_code == 422
    refused = dana.post(address, {"typed": alice.email})
    assert (refused.status_code, "Active sessions: 1" in text_of(refused)) == (422, True)
    set_user_active(world.cast.dana, world.gina, False, now=timezone.now())
    assert f'href="/manage/users/{world.gina.pk}/purge/"' in text_of(dana.get(f"/manage/users/{world.gina.pk}/"))
    assert 'name="typed"' in text_of(dana.get(f"/manage/users/{world.gina.pk}/purge/"))
    gone = dana.post(f"/manage/users/{world.gina.pk}/purge/", {"typed": world.gina.email})
    assert gone["Location"] == "/manage/users/"
    assert not User.objects.filter(email="gina@example.com").exists()


def test_a_project_admin_chooses_members_and_sees_limits_and_use(world: World, browse: Browse) -> None:
    bob, address = browse(world.bob), f"/manage/projects/{world.vision.pk}/"
    Project.objects.filter(pk=world.vision.pk).update(
        policy=ResourcePolicy.objects.create(name="shared", max_sessions=3)
    )
    session = make_session(world.cast.alice)
    page = text_of(bob.get(address))
    assert "shared" in page
    assert session.name not in page
    assert "/manage/users/" not in page
    assert bob.post(address, {"action": "add", "email": "gina@example.com", "role": "member"}).status_code == 302
    again = bob.post(address, {"action": "add", "email": "gina@example.com", "role": "member"})
    assert (again.status_code, "email" in again.context["form"].errors) == (422, True)
    bob.post(address, {"action": "role", "member": "gina@example.com", "role": "admin"})
    assert Membership.objects.get(user=world.gina).role == "admin"
    bob.post(address, {"action": "role", "member": "gina@example.com", "role": "king"})
    assert Membership.objects.get(user=world.gina).role == "admin"
    bob.post(address, {"action": "remove", "member": "gina@example.com"})
    assert not Membership.objects.filter(user=world.gina).exists()
    assert bob.post(address, {"action": "remove", "member": "charlie@example.com"}).status_code == 302
    assert Membership.objects.filter(user=world.cast.charlie).exists()
    assert bob.get(f"/manage/projects/{world.speech.pk}/").status_code == 404
    assert bob.get(f"{address}change/").status_code == 404


def test_projects_and_domains_are_made_and_deleted_only_while_nothing_needs_them(world: World, browse: Browse) -> None:
    dana, erin = browse(world.cast.dana), browse(world.erin)
    assert erin.post("/manage/projects/new/", {"name": "new"}).status_code == 302
    project = Project.objects.get(name="new", domain=world.domain)
    form = erin.get(f"/manage/projects/{project.pk}/change/").context["form"]
    sent = {"name": "newer", "version": form["version"].value()}
    assert erin.post(f"/manage/projects/{project.pk}/change/", sent).status_code == 302
    project.refresh_from_db()
    assert (project.name, project.is_active) == ("newer", False)
    taken = erin.post("/manage/projects/new/", {"name": "vision"})
    assert (taken.status_code, "name" in taken.context["form"].errors) == (422, True)
    assert erin.post(f"/manage/projects/{project.pk}/delete/").status_code == 302
    make_session(world.cast.alice)
    refused = erin.post(f"/manage/projects/{world.vision.pk}/delete/")
    assert (refused.status_code, "1 compute session" in text_of(refused)) == (422, True)
    refused = dana.post(f"/manage/domains/{world.domain.pk}/delete/")
    assert (refused.status_code, "6 users" in text_of(refused)) == (422, True)
    empty = Domain.objects.create(name="empty")
    assert dana.post(f"/manage/domains/{empty.pk}/delete/").status_code == 302
    assert not Domain.objects.filter(pk=empty.pk).exists()


def test_files_of_projects_and_domains_are_written_and_deleted_by_those_who_rule_them(
    world: World, browse: Browse
) -> None:
    erin, project, domain = browse(world.erin), world.vision, world.vision.domain
    path = f"/manage/projects/{project.pk}/files/"
    assert path in text_of(erin.get(f"/manage/projects/{project.pk}/"))
    assert f"/manage/domains/{domain.pk}/files/" in text_of(
        browse(world.cast.dana).get(f"/manage/domains/{domain.pk}/")
    )
    file = {"path": ".tmux.conf", "permission": "644", "content": "set -g mouse on\r\n"}
    wrong = erin.post(path, file | {"path": "../escape"})
    assert (wrong.status_code, list(wrong.context["form"].errors)) == (422, ["path"])
    assert erin.post(path, file).status_code == 302
    stored = project.dotfiles.get()
    assert stored.content == "set -g mouse on\n"
    shown = text_of(erin.get(path, {"edit": ".tmux.conf"}))
    assert "set -g mouse on" in shown and 'value=".tmux.conf"' in shown
    domain_path = f"/manage/domains/{domain.pk}/files/"
    assert erin.post(domain_path, file).status_code == 302
    assert [row.action for row in AuditEntry.objects.filter(target_type="dotfile")] == ["dotfile.create"] * 2
    for who in (world.bob, world.cast.alice):
        assert browse(who).get(path).status_code == 404
        assert browse(who).post(path, file | {"path": ".x"}).status_code == 404
    other = Domain.objects.exclude(pk=domain.pk).first()
    assert other and erin.get(f"/manage/domains/{other.pk}/files/").status_code == 404
    assert erin.post(path, {"action": "delete", "file": "nonsense"}).status_code == 404
    assert erin.post(path, {"action": "delete", "file": str(stored.pk)}).status_code == 302
    assert not project.dotfiles.exists()


def test_limits_of_a_key_pair_are_set_within_ones_own_on_its_page_and_over_rest(world: World, browse: Browse) -> None:
    alice, tight = world.cast.alice, ResourcePolicy.objects.create(name="tight", max_sessions=1)
    ResourcePolicy.objects.create(name="wide", max_sessions=99)
    pair, erin, dana = alice.key_pairs.get(), browse(world.erin), browse(world.cast.dana)
    User.objects.filter(pk=world.erin.pk).update(policy=tight)
    path, rest = f"/manage/key-pairs/{pair.pk}/", f"/api/v1/users/{alice.pk}/keypairs/"
    assert path in text_of(erin.get(f"/manage/users/{alice.pk}/"))
    version = erin.get(path).context["form"]["version"].value()
    wide = ResourcePolicy.objects.get(name="wide")
    refused = erin.post(path, {"policy": wide.pk, "rate_limit": 100, "version": version})
    assert (refused.status_code, list(refused.context["form"].errors)) == (422, ["policy"])
    assert erin.post(path, {"policy": tight.pk, "rate_limit": 100, "version": version}).status_code == 302
    pair.refresh_from_db()
    assert (pair.policy, pair.rate_limit) == (tight, 100)
    entry = AuditEntry.objects.get(action="key-pair.limit")
    assert entry.details["changes"] == {"policy": [None, "tight"], "rate_limit": [10000, 100]}
    assert dana.get(rest).json()["results"][0]["policy"] == "tight"
    body = {"policy": None, "rate_limit": 0}
    changed = dana.patch(f"{rest}{pair.pk}/", body, content_type="application/json")
    assert (changed.status_code, changed.json()["policy"], changed.json()["rate_limit"]) == (200, None, 0)
    too_wide = erin.patch(f"{rest}{pair.pk}/", {"policy": "wide"}, content_type="application/json")
    assert (too_wide.status_code, too_wide.json()["code"]) == (403, "above-own-limits")
    for who in (world.bob, alice):
        assert browse(who).get(path).status_code == 404
        assert browse(who).get(rest).status_code == 404


def test_an_invitation_shows_its_link_once_and_is_taken_back(world: World, browse: Browse) -> None:
    bob = browse(world.bob)
    form = bob.get(f"/manage/invitations/new/?project={world.vision.pk}").context["form"]
    assert (form["project"].value(), "policy" in form.fields) == (str(world.vision.pk), False)
    sent = {"email": "new@example.com", "project": str(world.vision.pk), "role": "member", "days": "7"}
    made = bob.post("/manage/invitations/new/", sent)
    link = made.context["link"]
    assert link in text_of(made)
    assert "no-store" in made["Cache-Control"]
    listed = text_of(bob.get("/manage/invitations/?state=open"))
    assert "new@example.com" in listed
    assert link not in listed
    foreign = bob.post("/manage/invitations/new/", sent | {"project": str(world.speech.pk)})
    assert (foreign.status_code, "project" in foreign.context["form"].errors) == (422, True)
    row = Invitation.objects.get()
    assert bob.post(f"/manage/invitations/{row.pk}/revoke/").status_code == 302
    assert "revoked" in text_of(bob.get("/manage/invitations/"))
    assert bob.post(f"/manage/invitations/{row.pk}/revoke/").status_code == 422


def test_a_file_is_looked_through_before_anything_happens(world: World, browse: Browse) -> None:
    erin = browse(world.erin)
    wrong = SimpleUploadedFile("people.csv", b"email,project\nnobody,vision\n")
    refused = erin.post("/manage/import/", {"file": wrong})
    assert "Enter an e-mail address." in text_of(refused)
    assert 'name="confirmed"' not in text_of(refused)
    content = f"email,full_name,project\nnew@example.com,=1+1{HOSTILE[:60]},vision\ngina@example.com,,vision\n".encode()
    preview = erin.post("/manage/import/", {"file": SimpleUploadedFile("people.csv", content)})
    assert "<script>alert" not in text_of(preview)
    assert not Invitation.objects.exists()
    done = erin.post("/manage/import/", {"confirmed": base64.b64encode(content).decode()})
    assert "no-store" in done["Cache-Control"]
    lines = base64.b64decode(done.context["links_file"]).decode().splitlines()
    assert lines[0] == "\ufeffemail,full_name,project,link,valid_until"
    assert lines[1].startswith("new@example.com,'=1+1<script>")
    text = lines[1].split("/invitations/")[1].split("/")[0]
    user = accept_as_new(digest_of(text), full_name="", password=PASSWORD, now=timezone.now())
    assert user.email == "new@example.com"
    assert world.gina.memberships.exists()
    again = erin.post("/manage/import/", {"confirmed": base64.b64encode(content).decode()})
    assert again.status_code == 422, "they are here by now"
    for broken in ({}, {"confirmed": "no base64!"}, {"file": SimpleUploadedFile("x.csv", b"\xff\xfe")}):
        assert erin.post("/manage/import/", broken).status_code == 422


def test_the_sample_file_can_be_imported_as_it_is_and_roles_have_two_names(cast: Cast, browse: Browse) -> None:
    dana = browse(cast.dana)
    Project.objects.filter(pk=cast.project.pk).update(name="default")
    page = markup(dana.get("/manage/import/"))
    link = re.search(r'download="people.csv" href="data:text/csv;charset=utf-8,([^"]+)"', page)
    assert link
    sample = unquote(unescape(link[1]))
    file = SimpleUploadedFile("people.csv", sample.encode())
    plan = dana.post("/manage/import/", {"file": file}).context["plan"]
    assert plan.problems == []
    assert [(step.entry.full_name, step.entry.role) for step in plan.steps] == [
        ("Ada Example", "admin"), ("Ben Example", "member"),
    ]  # fmt: skip

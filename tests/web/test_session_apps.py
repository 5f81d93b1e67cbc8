"""The apps on a session's page, and the page that leads into one."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.conf import settings
from django.template.loader import render_to_string
from django.test import Client, RequestFactory
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.activity.models import AuditEntry
from backendai.domain.cluster.app_domains import origin_of
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.cluster.site import change_site
from backendai.domain.compute.models import ComputeSession, PublicApp
from backendai.domain.compute.services.apps.of_session import CODE_SECONDS, App, host_of, read_code
from backendai.domain.compute.services.apps.public import open_to_everybody
from backendai.domain.compute.services.apps.settings import arguments_for
from backendai.portal.web.frame.app_reach import why_out_of_reach
from tests.api.callers import Caller
from tests.cast import Cast
from tests.factories import make_agent, make_image, make_running_session, make_session
from tests.pages import markup

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
LABEL = "ai.backend.service-ports"
LABELS = {LABEL: "jupyterlab:http:[8888],ring:tcp:9000,secret:internal:9001"}


@pytest.fixture
def session(cast: Cast) -> ComputeSession:
    make_image(labels=LABELS)
    return make_running_session(cast.alice, name="hers")


def shown(session: ComputeSession, host: str = "127.0.0.1:8080", **context: object) -> str:
    request = RequestFactory(headers={"Host": host}).get("/")
    return render_to_string("web/_session_apps.html", {"session": session, **context}, request)


def test_it_has_a_button_for_each_app_and_says_why_one_has_none(session: ComputeSession) -> None:
    text = shown(session)
    assert f'href="/sessions/{session.pk}/apps/jupyterlab/"' in text
    assert "JupyterLab" in text and 'target="_blank"' in text
    assert "This service does not speak HTTP" in text
    assert "secret" not in text


def test_it_costs_one_query_where_the_kernels_are_known(
    session: ComputeSession, django_assert_num_queries: object
) -> None:
    session = ComputeSession.objects.select_related("image", "resource_group").get()
    kernels = list(session.kernels.select_related("agent"))
    with django_assert_num_queries(2):  # type: ignore[operator]  (the settings of the site, those of the apps)
        assert "JupyterLab" in shown(session, kernels=kernels)


def test_apps_stand_in_groups_with_the_platforms_own_ways_in_first(cast: Cast) -> None:
    make_image(labels={LABEL: "tensorboard:http:[6006],odd:http:[7000],jupyter:http:[8888],db:tcp:[5432]"})
    session = make_running_session(cast.alice, preopen_ports=[9000])
    text = shown(session)
    parts = re.findall(r'id="(?:app-group|way|app)-([a-z0-9-]+)"', text)
    assert parts == [
        "utilities", "terminal", "console", "files", "development", "jupyter", "machine-learning", "tensorboard",
        "other", "odd", "db", "ports", "port-9000",
    ]  # fmt: skip
    assert "Until a program listens there" in text


def test_its_owner_finds_ssh_and_vs_code_beside_the_apps(cast: Cast, session: ComputeSession, browse: Browse) -> None:
    address, dialog = f"/sessions/{session.pk}/apps/", f'href="/sessions/{session.pk}/ssh/" data-box="ssh"'
    own = markup(browse(cast.alice).get(address))
    assert 'id="way-ssh"' in own and 'id="way-vscode"' in own and own.count(dialog) >= 2
    other = markup(browse(cast.dana).get(address))
    assert 'id="way-console"' in other and dialog not in other


def test_an_image_says_how_its_own_apps_are_called_and_where_they_stand(cast: Cast) -> None:
    labels = {LABEL: "odd:http:[7000],b:http:[7001]", "ai.backend.app.odd.title": "<b>Odd</b> One"}
    make_image(labels=labels | {"ai.backend.app.odd.category": "scientific", "ai.backend.app.b.category": "ports"})
    text = shown(make_running_session(cast.alice))
    assert "&lt;b&gt;Odd&lt;/b&gt; One" in text
    assert re.findall(r'id="app-group-([a-z-]+)"', text) == ["utilities", "scientific", "other"]


def test_a_service_without_http_comes_with_the_line_that_reaches_it(
    cast: Cast, session: ComputeSession, browse: Browse
) -> None:
    address = f"/sessions/{session.pk}/apps/"
    line = f"ssh -N -L 9000:localhost:9000 -p {settings.SSH_PUBLIC_PORT} hers@testserver"
    assert line in markup(browse(cast.alice).get(address))
    other = markup(browse(cast.dana).get(address))
    assert line not in other and "does not speak HTTP" in other


def test_an_app_gets_a_name_and_the_arguments_that_its_image_allows(cast: Cast, browse: Browse) -> None:
    make_image(labels={LABEL: "tensorboard:http:[6006]", "ai.backend.app.tensorboard.arguments": "--logdir=/logs --x="})
    session = make_running_session(cast.alice)
    alice, address = browse(cast.alice), f"/sessions/{session.pk}/apps/tensorboard/settings/"
    form = markup(alice.get(address))
    assert 'name="argument:--logdir" value="/logs"' in form and 'placeholder="TensorBoard"' in form
    assert arguments_for(session.pk, "tensorboard") == ("--logdir=/logs",)
    alice.post(address, {"title": " My  <run> ", "argument:--logdir": "/home/work/a b", "argument:--evil": "1"})
    assert arguments_for(session.pk, "tensorboard") == ("--logdir=/home/work/a b",)
    assert "My &lt;run&gt;" in markup(alice.get(f"/sessions/{session.pk}/apps/"))
    refused = markup(alice.post(address, {"title": "x", "argument:--logdir": "a\nb"}))
    assert 'id="app-argument-1-error"' in refused and 'aria-invalid="true"' in refused
    long = markup(alice.post(address, {"title": "x" * 41}))
    assert 'id="app-title-error"' in long and "at most 40 characters (41 given)" in long
    assert browse(cast.bob).post(address, {"title": "mine"}).status_code == 404
    assert browse(cast.alice).get(f"/sessions/{session.pk}/apps/nothing/settings/").status_code == 404
    entry = AuditEntry.objects.get(action="app.change")
    assert (entry.actor, entry.details["arguments"]) == (cast.alice, ["--logdir"])
    alice.post(address, {"title": "", "argument:--logdir": ""})
    assert arguments_for(session.pk, "tensorboard") == ()


def test_a_script_sets_them_too(cast: Cast) -> None:
    make_image(labels={LABEL: "tensorboard:http:[6006]", "ai.backend.app.tensorboard.arguments": "--logdir=/logs"})
    session = make_running_session(cast.alice)
    address = f"/api/v1/sessions/{session.pk}/apps/tensorboard/settings/"
    alice = Caller(cast.alice)
    answer = alice.put(address, {"title": "Runs", "arguments": {"--logdir": "/home/work"}})
    assert (answer.status_code, answer.json()["title"]) == (200, "Runs")
    found = alice.get(f"/api/v1/sessions/{session.pk}/apps/").json()["results"][0]
    assert (found["arguments"], found["category"]) == ({"--logdir": "/home/work"}, "machine-learning")
    refused = alice.put(address, {"arguments": {"--host": "0.0.0.0"}})
    assert (refused.status_code, refused.json()["code"]) == (400, "unknown-argument")
    assert Caller(cast.bob).put(address, {}).status_code == 404


def test_it_opens_an_app_to_everybody_and_closes_it_again(cast: Cast, session: ComputeSession) -> None:
    alice, address = Client(headers={"Host": "localhost"}), f"/sessions/{session.pk}/apps/"
    alice.force_login(cast.alice)
    assert "Make public" not in markup(alice.get(address))
    assert "Ask an administrator to allow it." in answer_to(alice, address, "yes")
    change_site(cast.dana, {"public_apps": True}, now=timezone.now())
    assert "Make public" in markup(alice.get(address))
    assert "Make private" in answer_to(alice, address, "yes")
    assert session.public_apps.get().opened_by == cast.alice
    assert "Make private" not in answer_to(alice, address, "no")
    assert not session.public_apps.exists()


def answer_to(client: Client, address: str, wish: str, **more: str) -> str:
    said = {"open": wish, "confirm": "yes"} | more
    return markup(client.post(f"{address}jupyterlab/public/", said, follow=True))


def test_it_asks_before_anybody_may_run_commands(cast: Cast, session: ComputeSession, browse: Browse) -> None:
    change_site(cast.dana, {"public_apps": True}, now=timezone.now())
    alice, address = browse(cast.alice), f"/sessions/{session.pk}/apps/"
    form = markup(alice.get(f"{address}jupyterlab/public/"))
    assert "Anyone with the link can run commands as you." in form
    assert re.search(r'value="1d" checked', form)
    refused = answer_to(alice, address, "yes", confirm="", public_for="1h")
    assert "Confirm that anyone with the link" in refused and re.search(r'value="1h" checked', refused)
    assert not session.public_apps.exists()
    answer_to(alice, address, "yes", public_for="1y")
    assert not session.public_apps.exists()
    answer_to(alice, address, "yes", public_for="1h")
    assert session.public_apps.get().closes_at - timezone.now() < timedelta(hours=1)
    assert browse(cast.bob).get(f"{address}jupyterlab/public/").status_code == 404
    assert alice.get(f"{address}nothing/public/").status_code == 404


def test_an_app_that_runs_no_commands_needs_no_word_of_it(cast: Cast, browse: Browse) -> None:
    make_image(labels={"ai.backend.service-ports": "tensorboard:http:[6006]"})
    session = make_running_session(cast.alice)
    change_site(cast.dana, {"public_apps": True}, now=timezone.now())
    alice, address = browse(cast.alice), f"/sessions/{session.pk}/apps/tensorboard/public/"
    assert "run commands" not in markup(alice.get(address))
    alice.post(address, {"open": "yes"})
    assert session.public_apps.get().service == "tensorboard"


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *[(name, True) for name in ("jupyterlab", "my-jupyter", "vscode", "ttyd", "web-terminal")],
        *[(name, False) for name in ("tensorboard", "mlflow", "notes", "port-8000")],
    ],
)
def test_it_knows_apps_that_run_commands_by_their_name(name: str, is_one: bool) -> None:
    assert App(name, name, "http", 8000, "").gives_shell == is_one


def badges(client: Client, session: ComputeSession) -> list[bool]:
    addresses = ("/", f"/sessions/{session.pk}/", f"/sessions/{session.pk}/row/")
    return ["public-badge" in markup(client.get(address)) for address in addresses]


def test_the_list_and_the_panel_say_that_an_app_is_public(cast: Cast, session: ComputeSession, browse: Browse) -> None:
    change_site(cast.dana, {"public_apps": True}, now=timezone.now())
    alice = browse(cast.alice)
    assert badges(alice, session) == [False] * 3
    version = ComputeSession.objects.get().version
    open_to_everybody(cast.alice, session, "jupyterlab", now=timezone.now())
    assert badges(alice, session) == [True] * 3
    assert ComputeSession.objects.get().version > version, "browsers draw the row again"
    PublicApp.objects.update(closes_at=timezone.now())
    assert badges(alice, session) == [False] * 3
    PublicApp.objects.update(closes_at=None)
    assert badges(alice, session) == [True] * 3
    change_site(cast.dana, {"public_apps": False}, now=timezone.now())
    assert badges(alice, session) == [False] * 3


def test_the_address_of_an_app_leads_to_the_page_that_opens_it(
    cast: Cast, session: ComputeSession, browse: Browse
) -> None:
    label = host_of(session, "jupyterlab").partition(".")[0]
    answer = browse(cast.alice).get(f"/apps/{label}/")
    assert answer["Location"] == f"/sessions/{session.pk}/apps/jupyterlab/"
    assert browse(cast.bob).get(f"/apps/{label}/").status_code == 404
    for wrong in ("jupyterlab", "jupyterlab-0123456789ab", f"{label}0", f"-{label[-12:]}"):
        assert browse(cast.alice).get(f"/apps/{wrong}/").status_code == 404
    assert Client(headers={"Host": "localhost"}).get(f"/apps/{label}/")["Location"].startswith("/login/?next=/apps/")


@pytest.mark.parametrize(
    ("backend", "reason"),
    [("process", "anybody on that machine could open the app"), ("simulated", "no program runs there")],
)
def test_it_says_why_there_are_no_apps_on_some_nodes(session: ComputeSession, backend: str, reason: str) -> None:
    Agent.objects.update(backend=backend)
    text = shown(session)
    assert reason in text and '/apps/jupyterlab/"' not in text


def test_it_waits_for_the_session_to_run_and_ends_with_it(cast: Cast) -> None:
    make_image(labels=LABELS)
    waiting = make_session(cast.alice)
    assert "Apps open while the session runs." in shown(waiting)
    waiting.status = "TERMINATED"
    assert "The session has ended." in shown(waiting)
    make_image("bare", labels={})
    bare = make_session(cast.alice, image="bare")
    assert "The image has no apps" in shown(bare)
    assert f"Apps of <bdi>{bare.name}</bdi>" in shown(bare)


def test_it_says_what_to_set_when_the_browser_will_not_find_the_apps(session: ComputeSession) -> None:
    text = shown(session, host="10.1.2.3:8080")
    assert "BACKENDAI_APPS_DOMAIN=apps.example.org" in text and '/apps/jupyterlab/"' not in text


@pytest.mark.parametrize(
    ("host", "is_reachable"),
    [
        ("localhost:8080", True),
        ("127.0.0.1", True),
        ("[::1]:8080", True),
        ("portal.localhost", True),
        ("192.168.1.9:8080", False),
        ("portal.example.org", False),
        ("[fd00::1]:8080", False),
    ],
)
def test_it_knows_from_where_local_names_are_found(host: str, is_reachable: bool) -> None:
    assert (why_out_of_reach(host, "apps.localhost") == "") == is_reachable
    assert why_out_of_reach(host, "apps.example.org") == ""


def test_the_way_in_is_a_form_that_may_go_to_the_apps_origin_alone(cast: Cast, session: ComputeSession) -> None:
    client = Client()
    client.force_login(cast.alice)
    answer = client.get(f"/sessions/{session.pk}/apps/jupyterlab/", headers={"Host": "127.0.0.1"})
    origin = origin_of(host_of(session, "jupyterlab"))
    assert f"form-action 'self' {origin};" in f"{answer['Content-Security-Policy']};"
    assert "script-src 'self';" in f"{answer['Content-Security-Policy']};"
    assert "no-store" in answer["Cache-Control"]
    text = markup(answer)
    assert f'action="{origin}/.backendai/enter"' in text
    code = text.partition('name="code" value="')[2].partition('"')[0]
    claims = read_code(code, timezone.now())
    assert (claims.user_id, claims.service, claims.port) == (cast.alice.pk, "jupyterlab", 8888)
    assert claims.credential.login == client.session.session_key
    assert client.session.session_key not in text, "the login stays where it is"
    assert CODE_SECONDS == 30


@pytest.mark.parametrize(
    ("service", "host", "words"),
    [
        ("ring", "127.0.0.1", "does not speak HTTP"),
        ("nothing", "127.0.0.1", "no app named"),
        ("jupyterlab", "10.0.0.9", "BACKENDAI_APPS_DOMAIN"),
    ],
)
def test_it_leads_back_with_the_reason_when_there_is_no_way_in(
    cast: Cast, session: ComputeSession, service: str, host: str, words: str
) -> None:
    client = Client()
    client.force_login(cast.alice)
    answer = client.get(f"/sessions/{session.pk}/apps/{service}/", headers={"Host": host}, follow=True)
    assert answer.redirect_chain == [(f"/sessions/{session.pk}/", 302)]
    assert words in markup(answer)


def test_the_portal_does_not_answer_to_the_names_of_apps(cast: Cast, session: ComputeSession) -> None:
    for host in (
        f"{host_of(session, 'jupyterlab')}:8080",
        settings.APPS_DOMAIN,
        f"X.{settings.APPS_DOMAIN.upper()}",
    ):
        assert Client().get("/login/", headers={"Host": host}).status_code == 421


def test_apps_live_under_the_domain_of_their_group_which_the_portal_does_not_answer_to(
    cast: Cast, session: ComputeSession
) -> None:
    ResourceGroup.objects.update(app_domain="gpu.example.net")
    session = ComputeSession.objects.get(pk=session.pk)
    host = host_of(session, "jupyterlab")
    assert host == f"jupyterlab-{session.pk.hex[:12]}.gpu.example.net"
    client = Client()
    client.force_login(cast.alice)
    text = markup(client.get(f"/sessions/{session.pk}/apps/jupyterlab/", headers={"Host": "127.0.0.1"}))
    assert f'action="{origin_of(host)}/.backendai/enter"' in text
    assert read_code(text.partition('name="code" value="')[2].partition('"')[0], timezone.now()).host == host
    assert Client().get("/login/", headers={"Host": host}).status_code == 421
    assert Client().get("/login/", headers={"Host": "127.0.0.1"}).status_code == 200


def test_a_cluster_has_the_apps_of_its_main_kernel(cast: Cast) -> None:
    make_image(labels=LABELS)
    session = make_running_session(cast.alice, make_agent(cpu=8), cluster_size=2)
    assert "jupyterlab" in shown(session)

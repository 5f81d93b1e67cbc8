"""The pages of inference endpoints."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from backendai.domain.serving.models import Endpoint, EndpointToken, State
from backendai.domain.serving.moves import note
from backendai.domain.serving.presentation import shown
from backendai.domain.serving.services.endpoints import update_endpoint
from backendai.portal.web.endpoints.forms import HIDDEN
from tests.cast import Cast
from tests.factories import make_group, make_image
from tests.pages import markup
from tests.serving.world import World, a_revision, make_endpoint, states_of

pytestmark = pytest.mark.django_db
NEW = {
    "name": "chat",
    "image": "python",
    "command": "serve",
    "port": "8000",
    "probe_path": "/health",
    "cpu": "1",
    "mem": "512m",
    "minimum": "1",
    "maximum": "2",
    "target": "4",
    "asleep_minutes": "15",
}


@pytest.fixture
def alice(cast: Cast) -> Client:
    make_group()
    make_image()
    client = Client()
    client.force_login(cast.alice)
    return client


def test_an_endpoint_is_created_by_the_form_and_shown(alice: Client, cast: Cast) -> None:
    assert "No endpoint yet" in markup(alice.get("/endpoints/"))
    assert alice.get("/endpoints/new/").status_code == 200
    made = alice.post("/endpoints/new/", NEW | {"environ": "A=b\n", "project": str(cast.project.pk)})
    endpoint = Endpoint.objects.get()
    assert made.headers["Location"] == f"/endpoints/{endpoint.pk}/"
    assert endpoint.current.environ == {"A": "b"}
    page = markup(alice.get(made.headers["Location"]))
    url = shown([endpoint], timezone.now())[0].program_url
    assert f'data-copy="{url}"' in page, "its address can be copied"
    for field, value in (("target", "4"), ("asleep_minutes", "15")):
        (box,) = re.findall(rf'<input[^>]*name="{field}"[^>]*>', page)
        assert f'value="{value}"' in box
    assert "chat" in markup(alice.get("/endpoints/"))


def test_a_fault_is_shown_at_its_field_and_what_was_typed_stays(alice: Client) -> None:
    answer = alice.post("/endpoints/new/", NEW | {"name": "Chat Bot"})
    assert answer.status_code == 422
    assert "small letters" in markup(answer)
    assert 'value="Chat Bot"' in markup(answer)
    assert not Endpoint.objects.exists()


def test_numbers_tokens_update_and_deletion(alice: Client, cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice, maximum=2), World(cast.alice)
    world.until(lambda: [state for *_, state in states_of(endpoint)] == [State.READY])
    url = f"/endpoints/{endpoint.pk}/"
    part = markup(alice.get(url, headers={"HX-Request": "true"}))
    assert "1 of 1 replica is ready" in part
    assert "<html" not in part
    alice.post(f"{url}scale/", {"minimum": 1, "maximum": 3, "target": 2})
    assert Endpoint.objects.get().maximum == 3
    alice.post(f"{url}scale/", {"minimum": 1, "maximum": 3, "target": 2, "asleep_minutes": "2"})
    assert Endpoint.objects.get().asleep_after.total_seconds() == 120
    wrong = alice.post(f"{url}scale/", {"minimum": 4, "maximum": 3, "target": 2})
    assert (wrong.status_code, "Choose 0 to 3" in markup(wrong)) == (422, True)
    before = markup(alice.get(url))
    assert 0 < before.index('href="#token-new"') < before.index('id="token-new"') < before.index('id="scaling"')
    shown = markup(alice.post(f"{url}tokens/", {"token_name": "laptop"}))
    assert 'href="#token-new"' not in shown, "the new token is filled in"
    token = EndpointToken.objects.get()
    assert "bsk-" in shown
    assert "bsk-" not in markup(alice.get(url))
    alice.post(f"{url}tokens/{token.pk}/revoke/")
    assert EndpointToken.objects.get().revoked_at
    form = markup(alice.get(f"{url}update/"))
    assert "serve --port 8000" in form
    assert 'value="512m"' in form
    alice.post(f"{url}update/", {name: NEW[name] for name in ("image", "command", "port", "cpu", "mem")})
    assert Endpoint.objects.get().next.number == 2
    alice.post(f"{url}roll-back/", {"revision": "1"})
    assert Endpoint.objects.get().next is None
    world.opened = {"one": 2}
    world.steps()
    page = markup(alice.get(url))
    assert page.index('id="stop-endpoint"') < page.index("2 requests are open") < page.index('value="stop"')
    alice.post(f"{url}state/", {"order": "stop"})
    assert Endpoint.objects.get().wish == "stopped"
    part = markup(alice.get(url, headers={"HX-Request": "true"}))
    assert "answer their open requests and end" in part and "replica is ready" not in part
    assert '<p id="open-requests" hx-swap-oob="true">' in part
    alice.post(f"{url}state/", {"order": "delete"})
    assert alice.get(url).status_code == 404


def test_an_administrator_sees_that_its_owner_is_deactivated(cast: Cast) -> None:
    endpoint, dana = make_endpoint(cast.alice), Client()
    dana.force_login(cast.dana)
    url = f"/endpoints/{endpoint.pk}/"
    assert "is deactivated" not in markup(dana.get(url))
    question = markup(dana.get(f"/manage/users/{cast.alice.pk}/deactivate/"))
    assert "endpoints: 1" in question
    dana.post(f"/manage/users/{cast.alice.pk}/deactivate/")
    assert "alice@example.com is deactivated" in markup(dana.get(url))


def test_a_list_takes_the_same_number_of_queries_for_one_and_for_many(alice: Client, cast: Cast) -> None:
    make_endpoint(cast.alice, "first")
    alice.get("/endpoints/")
    with CaptureQueriesContext(connection) as few:
        alice.get("/endpoints/")
    for number in range(4):
        make_endpoint(cast.alice, f"more-{number}")
    with CaptureQueriesContext(connection) as many:
        alice.get("/endpoints/")
    assert len(many) == len(few)


def test_revisions_are_compared_without_the_values_of_variables(alice: Client, cast: Cast) -> None:
    endpoint = make_endpoint(cast.alice, revision=a_revision(environ={"KEY": "s3cret-one"}))
    update_endpoint(endpoint, cast.alice, a_revision(environ={"KEY": "s3cret-two"}, port=9000, model_name="small"))
    page = markup(alice.get(f"/endpoints/{endpoint.pk}/"))
    assert "3 changes" in page
    assert "<del>8000</del> → <ins>9000</ins>" in page
    assert "s3cret" not in page


def test_of_long_commands_the_lines_that_differ_are_shown(alice: Client, cast: Cast) -> None:
    command = "cat > server.py <<EOF\n{}EOF\npython3 server.py --model {}"
    long = "same = 1\n" * 100
    endpoint = make_endpoint(cast.alice, revision=a_revision(command=command.format(long, "one")))
    update_endpoint(endpoint, cast.alice, a_revision(command=command.format(long, "two")))
    page = markup(alice.get(f"/endpoints/{endpoint.pk}/"))
    assert "<del>python3 server.py --model one</del> → <ins>python3 server.py --model two</ins>" in page


def test_what_is_asked_for_again_has_the_revisions_and_the_last_decision_first(alice: Client, cast: Cast) -> None:
    endpoint = make_endpoint(cast.alice)
    url = f"/endpoints/{endpoint.pk}/"
    assert 'id="endpoint-revisions" aria' in markup(alice.get(url))
    update_endpoint(endpoint, cast.alice, a_revision(port=9000))
    for code, minutes in (("at-max", 1), ("blind", 0)):
        note(endpoint.pk, code, now=timezone.now() + timedelta(minutes=minutes), message=f"The reason is {code}.")
    part = markup(alice.get(url, headers={"HX-Request": "true"}))
    assert 'id="endpoint-revisions" hx-swap-oob="true"' in part
    assert "in progress" in part
    assert part.index("is at-max") < part.index("is blind")


def test_the_page_may_send_requests_to_its_endpoint_alone(alice: Client, cast: Cast) -> None:
    endpoint = make_endpoint(cast.alice, revision=a_revision(model_name="small"))
    answer = alice.get(f"/endpoints/{endpoint.pk}/")
    url = f"{endpoint.label}.apps.localhost"
    connects = next(one for one in answer["Content-Security-Policy"].split(";") if "connect-src" in one)
    assert connects.split()[1:] == ["'self'", f"http://{url}:{connects.rpartition(':')[2]}"]
    assert 'data-model="small"' in markup(answer)


def test_values_of_variables_are_for_the_owner_alone_and_stay_through_an_update_by_others(cast: Cast) -> None:
    endpoint = make_endpoint(cast.alice, revision=a_revision(environ={"KEY": "very-secret", "MODE": "fast"}))
    for user, reveals in ((cast.alice, True), (cast.dana, False)):
        client = Client()
        client.force_login(user)
        page = markup(client.get(f"/endpoints/{endpoint.pk}/update/"))
        assert ("very-secret" in page) == reveals
        assert "KEY=" in page
    typed = NEW | {"command": "serve --better", "environ": f"KEY={HIDDEN}\nMODE=slow"}
    assert client.post(f"/endpoints/{endpoint.pk}/update/", typed).status_code == 302
    endpoint.refresh_from_db()
    assert endpoint.next.environ == {"KEY": "very-secret", "MODE": "slow"}


def test_settings_are_changed_on_the_page_and_a_wrong_one_is_shown_at_its_field(alice: Client, cast: Cast) -> None:
    endpoint = make_endpoint(cast.alice)
    settings = {
        "origins": "https://chat.example.org",
        "concurrency": "8",
        "queue": "7",
        "queue_seconds": "6",
        "hold_seconds": "120",
        "answer_timeout": "90",
        "is_repeatable": "on",
        "affinity": "X-Conversation",
        "max_surge": "0",
        "max_unavailable": "1",
        "canary": "10",
        "warm_up": "20",
    }
    assert alice.post(f"/endpoints/{endpoint.pk}/settings/", settings).status_code == 302
    endpoint.refresh_from_db()
    assert (endpoint.concurrency, endpoint.queue, endpoint.hold_seconds) == (8, 7, 120.0)
    assert (endpoint.origins, endpoint.affinity, endpoint.canary) == (
        ["https://chat.example.org"],
        "X-Conversation",
        10,
    )
    assert (endpoint.max_surge, endpoint.max_unavailable, endpoint.is_repeatable) == (0, 1, True)
    refused = alice.post(f"/endpoints/{endpoint.pk}/settings/", settings | {"hold_seconds": "0"})
    assert refused.status_code == 422
    assert "Enter a number from 0.1 to 600" in markup(refused)
    assert "<details open>" in markup(refused)


def test_an_update_is_cancelled_where_it_is_shown(alice: Client, cast: Cast) -> None:
    endpoint = make_endpoint(cast.alice)
    update_endpoint(endpoint, cast.alice, a_revision(command="serve --better"))
    page = markup(alice.get(f"/endpoints/{endpoint.pk}/"))
    assert page.count("Cancel update") == 2
    assert ("0 → 1" in page, "1 → 1" in page) == (True, False)
    assert 'name="revision" value="2"' not in page
    alice.post(f"/endpoints/{endpoint.pk}/roll-back/", {"revision": "1"})
    endpoint.refresh_from_db()
    assert endpoint.next is None


def test_the_list_is_filtered_by_name_and_paged(alice: Client, cast: Cast) -> None:
    for name in ("chat", "translate"):
        make_endpoint(cast.alice, name)
    page = markup(alice.get("/endpoints/?q=TRANS"))
    assert ("translate</bdi>" in page, "chat</bdi>" in page) == (True, False)
    assert "No endpoint has this in its name" in markup(alice.get("/endpoints/?q=nothing"))
    Endpoint.objects.bulk_create(
        Endpoint(name=f"many-{n:02}", owner=cast.alice, project=cast.project, resource_group=make_group())
        for n in range(60)
    )
    first, second = (markup(alice.get(f"/endpoints/?q=many&page={page}")) for page in (1, 2))
    assert ("many-00" in first, "many-59" in first) == (True, False)
    assert "q=many&amp;page=2" in first
    assert ("many-00" in second, "many-59" in second) == (False, True)


def test_replicas_that_ended_stay_with_their_logs_and_sessions_lead_back(alice: Client, cast: Cast) -> None:
    endpoint, world = make_endpoint(cast.alice), World(cast.alice, broken={1})
    world.until(lambda: endpoint.replicas.filter(state=State.ENDED).exists())
    ended = endpoint.replicas.get(state=State.ENDED)
    page = markup(alice.get(f"/endpoints/{endpoint.pk}/"))
    assert "Ended replicas" in page
    assert f"/sessions/{ended.session_id}/log/" in page
    assert f'href="/endpoints/{endpoint.pk}/"' in markup(alice.get(f"/sessions/{ended.session_id}/"))
    decisions = markup(alice.get(f"/endpoints/{endpoint.pk}/decisions/"))
    assert "Created by alice@example.com with 1 replica." in decisions

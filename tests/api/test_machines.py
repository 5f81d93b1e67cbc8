"""Resource groups, agents and join tokens over REST, as superadmins steer them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from backendai.base.wire.messages import JoinUp
from backendai.domain.cluster.joining import join_agent
from backendai.domain.cluster.models import Agent, ResourceGroup
from backendai.domain.cluster.services import agent_of_token
from tests.api.callers import LAUNCH, SESSIONS, Caller
from tests.cast import Cast
from tests.certificates import certificate
from tests.factories import make_agent, make_group, make_image, make_running_session

pytestmark = pytest.mark.django_db
GROUPS, AGENTS, TOKENS = "/api/v1/resource-groups/", "/api/v1/agents/", "/api/v1/join-tokens/"


def test_a_group_is_made_read_changed_and_deleted(cast: Cast) -> None:
    dana, alice = Caller(cast.dana), Caller(cast.alice)
    body = {"name": "gpu", "is_public": False, "projects": [str(cast.project.pk)], "pending_timeout": "3600"}
    made = dana.post(GROUPS, body | {"domains": ["elsewhere"], "session_defaults": {"priority": 30}})
    assert made.status_code == 201, made.content
    assert (made.json()["domains"], made.json()["pending_timeout"]) == (["elsewhere"], "01:00:00")
    group = ResourceGroup.objects.get(name="gpu")
    assert (group.pending_timeout, list(group.projects.all())) == (timedelta(hours=1), [cast.project])
    assert alice.get(f"{GROUPS}gpu/").json()["allowed_session_types"] == ["interactive", "batch", "inference", "system"]
    settings = f"{GROUPS}gpu/settings/"
    more = {"is_default": True, "projects": [], "sequence": "drf", "app_domain": "gpu.example.net"}
    changed = dana.patch(settings, more)
    assert changed.json()["app_domain"] == "gpu.example.net"
    assert (changed.json()["is_default"], changed.json()["projects"]) == (True, [])
    assert alice.get(f"{GROUPS}gpu/").status_code == 404, "no list names her any more"
    for path, act in (
        (settings, alice.get),
        (settings, alice.patch),
        (GROUPS, alice.post),
        (f"{GROUPS}gpu/", alice.delete),
    ):
        assert act(path).status_code == 404
    assert dana.delete(f"{GROUPS}gpu/").status_code == 204
    assert not ResourceGroup.objects.filter(name="gpu").exists()


def test_a_wrong_setting_is_refused_by_name_and_a_group_in_use_stays(cast: Cast) -> None:
    dana, _ = Caller(cast.dana), make_agent(group=make_group())
    for body, field in (
        ({"colour": "red"}, "colour"),
        ({"sequence": "random"}, "sequence"),
        ({"slot_order": ["cpu", "cpu"]}, "slot_order"),
        ({"session_defaults": {"priority": -1}}, "session_defaults"),
        ({"projects": ["7"]}, "projects"),
        ({"app_domain": "no domain"}, "app_domain"),
    ):
        answer = dana.patch(f"{GROUPS}default/settings/", body)
        assert (answer.status_code, answer.json()["field"]) == (400, field), answer.content
    refused = dana.delete(f"{GROUPS}default/")
    assert (refused.status_code, refused.json()["data"]["used_by"]) == (409, {"agent": 1})
    assert dana.post(GROUPS, {"name": "default"}).json()["code"] == "name-taken"


def test_who_names_no_group_reads_which_one_it_will_be(cast: Cast) -> None:
    alice, first = Caller(cast.alice), make_group("first")
    make_image()
    assert alice.get("/api/v1/me/").json()["default_resource_group"] == "first"
    make_group("second")
    assert alice.get("/api/v1/me/").json()["default_resource_group"] is None
    refused = alice.post(SESSIONS, LAUNCH)
    assert (refused.status_code, refused.json()["code"]) == (400, "resource-group-needed")
    Caller(cast.dana).patch(f"{GROUPS}first/settings/", {"is_default": True})
    assert alice.get("/api/v1/me/").json()["default_resource_group"] == "first"
    assert alice.post(SESSIONS, LAUNCH).json()["resource_group"] == first.name


def test_an_agent_is_switched_moved_drained_and_given_up(cast: Cast) -> None:
    agent, dana = make_agent("node-1"), Caller(cast.dana)
    make_running_session(cast.alice, agent)
    make_group("far")
    path = f"{AGENTS}{agent.pk}/"
    assert dana.patch(path, {"schedulable": False, "max_kernels": 3}).json()["max_kernels"] == 3
    refused = dana.patch(path, {"resource_group": "far"})
    assert (refused.status_code, refused.json()["data"]["kernels"]) == (409, 1)
    assert dana.patch(path, {"resource_group": "far", "force": True}).json()["resource_group"] == "far"
    assert dana.patch(path, {"resource_group": "nowhere"}).json()["field"] == "resource_group"
    until = (timezone.now() + timedelta(hours=2)).isoformat()
    drained = dana.post(f"{path}drain/", {"ends_at": until}).json()
    assert (drained["status"], drained["drain_kernels"]) == ("DRAINING", 1)
    assert dana.post(f"{path}terminate/").status_code == 409
    assert dana.delete(f"{path}drain/").json()["drain_started_at"] is None
    assert dana.delete(f"{path}drain/").status_code == 409
    Agent.objects.update(status=Agent.Status.LOST)
    assert dana.post(f"{path}terminate/").json()["status"] == "TERMINATED"
    alice = Caller(cast.alice)
    assert alice.post(f"{path}drain/").status_code == alice.delete(f"{path}credential/").status_code == 404


def test_a_node_joins_with_a_token_from_here_and_is_turned_away(cast: Cast) -> None:
    make_group()
    dana = Caller(cast.dana)
    made = dana.post(TOKENS, {"resource_group": "default", "name_prefix": "gpu-"})
    token = made.json()["token"]
    assert made["Cache-Control"] == "no-store"
    assert made.json()["command"].startswith(f"BACKENDAI_JOIN_TOKEN={token} .venv")
    assert made.json()["command"].endswith(' --name "gpu-$(hostname -s)"')
    assert token not in str(dana.get(TOKENS).json())
    agent, text = join_agent(JoinUp(token=token, name="gpu-1", gateway_url=""))
    assert [row["used_at"] is None for row in dana.get(TOKENS).json()["results"]] == [False]
    assert dana.delete(f"{AGENTS}{agent.pk}/credential/").json()["revoked_at"]
    assert agent_of_token(text) is None
    renewed = dana.post(f"{AGENTS}{agent.pk}/credential/").json()
    own = renewed["token"]
    assert renewed["command"].startswith(f"BACKENDAI_JOIN_TOKEN={own} ")
    assert renewed["command"].endswith(" --name gpu-1")
    assert join_agent(JoinUp(token=own, name="gpu-1", gateway_url=""))[0] == agent
    rows = dana.get(TOKENS).json()["results"]
    assert {row["agent"] for row in rows} == {None, "gpu-1"}
    for body, field in (
        ({"resource_group": "none"}, "resource_group"),
        ({"resource_group": "default", "name_prefix": "-"}, "name_prefix"),
        ({"resource_group": "default", "expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
    ):
        assert dana.post(TOKENS, body).json()["field"] == field
    assert dana.delete(f"{TOKENS}{rows[0]['id']}/").status_code == 204
    alice = Caller(cast.alice)
    assert alice.get(TOKENS).json()["results"] == []
    assert alice.post(TOKENS, {"resource_group": "default"}).status_code == 404


def test_slot_types_and_settings_are_read_and_changed(cast: Cast) -> None:
    dana, alice = Caller(cast.dana), Caller(cast.alice)
    slots, settings = "/api/v1/slot-types/", "/api/v1/site-settings/"
    rows = {row["name"]: row for row in alice.get(slots).json()["results"]}
    assert (rows["cpu"]["rank"], rows["cuda.shares"]["step"], rows["mem"]["kind"]) == (10, "0.01", "bytes")
    changed = dana.patch(f"{slots}cuda.shares/", {"display_name": "GPU parts", "step": "0.05"})
    assert (changed.json()["display_name"], changed.json()["step"]) == ("GPU parts", "0.05")
    assert dana.patch(f"{slots}mem/", {"step": "0.5"}).json()["field"] == "step"
    assert alice.patch(f"{slots}cpu/", {"rank": 1}).status_code == alice.get(settings).status_code == 404
    assert dana.get(settings).json()["container_caps"] == {}
    caps = dana.patch(settings, {"container_caps": {"mem": "1g"}}).json()["container_caps"]
    assert caps == {"mem": str(2**30)}
    hosts = {"session_no_proxy": ["a.example"], "session_authorities": certificate()}
    assert {name: dana.patch(settings, hosts).json()[name] for name in hosts} == hosts
    assert dana.patch(settings, {"package_index": "pypi"}).json()["field"] == "package_index"
    assert dana.patch(settings, {"colour": "red"}).json()["field"] == "colour"
    make_group()
    make_image()
    refused = alice.post(SESSIONS, LAUNCH | {"resources": {"cpu": 1, "mem": "2g"}})
    assert (refused.status_code, refused.json()["code"]) == (400, "above-container-cap")
    assert alice.get("/api/v1/announcements/").json() == {"next": None, "previous": None, "results": []}

"""Every key of a launch request survives the ways into the launcher: templates, recent launches, sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from backendai.base.core.slots import Slots
from backendai.base.core.written_documents import written
from backendai.domain.accounts.models import User
from backendai.domain.catalog.models import ResourcePreset
from backendai.domain.compute.models import ComputeSession, SessionFile
from backendai.domain.compute.services.launching.recent import recent_launches
from backendai.domain.compute.spec_document import USUAL, document_of, spec_of
from backendai.domain.storage.models import Folder
from backendai.domain.storage.services import create_folder
from backendai.domain.templates.documents import NEVER
from backendai.domain.templates.services.publishing import TemplateDraft, create_template
from backendai.portal.web.launch.values import sent_by
from tests.cast import Cast
from tests.factories import make_agent, make_group, make_image
from tests.storage.fake_file_server import FakeFileServer, make_host, serving

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
LAUNCH = "/sessions/new/"
WORKER = {
    "count": 2,
    "image": "python",
    "resources": {"cpu": 1, "mem": "512m"},
    "shm": "32m",
    "environ": {"WORKER": "yes"},
    "startup_command": "work",
    "mounts": [{"folder": "data", "target": "for-worker"}],
    "on_failure": "tolerate",
    "after": ["main"],
    "ready": {"tcp": 8786, "within": 60},
}
BASE: dict[str, Any] = {
    "image": "python",
    "type": "batch",
    "startup_command": "run",
    "resources": {"cpu": 2, "mem": "1g"},
}
# What templates say beside BASE: each key in one of them, beside all that it goes with.
DOCUMENTS: dict[str, dict[str, Any]] = {
    "one": {
        "image": "other",
        "type": "batch",
        "preset": "medium",
        "resources": {"cpu": 3, "mem": "2g"},
        "resource_group": "second",
        "shm": "128m",
        "environ": {"EPOCHS": "3"},
        "startup_command": 'python train.py --lr "$PARAM_LR"\nexit $?',
        "preopen_ports": [8080, 9000],
        "priority": 7,
        "labels": {"experiment": "baseline", "team": "vision 2"},
        "note": "First try.\nWith fewer epochs.",
        "batch_timeout": 5400,
        "retry_on_agent_loss": True,
        "may_be_stopped": True,
        "mounts": [{"folder": "data", "path": "part", "target": "here", "rights": "view"}],
        "start_in": "data",
    },
    "cluster": {
        "cluster_size": 3,
        "cluster_mode": "multi-node",
        "placement": "spread",
        "agents": ["one", "two"],
        "command_in": "main",
    },
    "roles": {"roles": {"worker": WORKER}, "mounts": [], "done_when": "worker"},
    # What not every way keeps.
    "name": {"name": "of-a-template"},
    "project": {"project": "vision"},
    "files": {"files": [{"path": "train.py", "content": "print(1)\n"}]},
}
SAID = {key for document in DOCUMENTS.values() for key in document}


@pytest.fixture
def site(cast: Cast) -> Iterator[Cast]:
    make_image()
    make_image("other")
    make_agent("one", cpu=32, mem="32g")
    make_agent("two", cpu=32, mem="32g")
    make_agent("three", cpu=32, mem="32g", group=make_group("second"))
    ResourcePreset.objects.create(name="medium", slots={"cpu": 4, "mem": "2g"})
    with serving(FakeFileServer()) as server:
        make_host(server)
        create_folder(cast.alice, name="data", now=timezone.now())
        Folder.objects.update(status="READY")
        yield cast


def sent(form: Any) -> dict[str, Any]:
    """Return what a browser sends of the form that it was shown."""
    data = form.data if form.is_bound else sent_by(form)
    return {name: data.getlist(name) for name in data}


def launched(client: Client, **query: str) -> ComputeSession:
    """Launch the form that the address fills, as it stands, and return its session."""
    answer = client.get(LAUNCH, query)
    form = answer.context["form"]
    done = client.post(LAUNCH, {**sent(form), "name": [""]} if "from" not in query else sent(form))
    assert done.status_code == 302, done.context["form"].errors
    return ComputeSession.objects.order_by("-created_at")[0]


def told(session: ComputeSession, key: str) -> Any:
    """Return what the session's own document says of a key."""
    if key == "project":
        return session.project.name
    if key == "files":
        return [{"path": one.path, "content": one.content} for one in SessionFile.objects.filter(session=session)]
    if key == "cluster_size":
        return session.cluster_size
    return exact(key, session.spec.get(key, USUAL[key]))


def exact(key: str, value: Any) -> Any:
    return Slots.parse(value).to_json() if key == "resources" else value


def asked(document: dict[str, Any]) -> dict[str, Any]:
    told = document_of(spec_of({"version": 1, **BASE, **document}))
    return {key: exact(key, told.get(key, USUAL[key])) for key in document}


def test_every_key_is_said_but_for_those_of_one_launch() -> None:
    assert SAID | set(NEVER) == set(USUAL)


@pytest.mark.parametrize("case", DOCUMENTS)
def test_keys_survive_template_recent_launch_session_and_saving(site: Cast, browse: Browse, case: str) -> None:
    document, client = DOCUMENTS[case], browse(site.alice)
    locked = [] if case == "name" else list(document)  # one name is for one session
    text = written({**BASE, **document, "locked": locked})
    template = create_template(site.alice, TemplateDraft("origin"), text, now=timezone.now())
    first = launched(client, **{"from": str(template.pk)})
    wanted = asked(document)

    def kept(session: ComputeSession) -> dict[str, Any]:
        return {key: told(session, key) for key in document}

    assert kept(first) == wanted, "from the template"
    if case == "name":  # each further session has one of its own
        return
    again = launched(client, recent=str(recent_launches(site.alice)[0].pk))
    assert kept(again) == wanted, "from the recent history"
    if case != "files":  # they are copied by the page of the session
        assert kept(launched(client, like=str(again.pk))) == wanted, "from the session"
    if case == "project":  # a template is not bound to one
        return
    for query in (f"session={first.pk}", f"recent={recent_launches(site.alice)[0].pk}"):
        text = client.get(f"/templates/new/?{query}").context["form"]["text"].value()
        saved = create_template(site.alice, TemplateDraft(f"saved-{query[:3]}"), text, now=timezone.now())
        assert kept(launched(client, **{"from": str(saved.pk)})) == wanted, (query, text)


@pytest.mark.parametrize("start", ["here", "/home/work/here", "data"])
def test_a_template_may_lock_the_folder_to_start_in_by_its_mount_path(site: Cast, browse: Browse, start: str) -> None:
    mounts = [{"folder": "data", "target": "here"}]
    text = written({**BASE, "mounts": mounts, "start_in": start, "locked": ["start_in"]})
    template = create_template(site.alice, TemplateDraft("origin"), text, now=timezone.now())
    assert launched(browse(site.alice), **{"from": str(template.pk)}).start_in == "/home/work/here"


def test_what_a_template_refuses_is_said_in_the_launcher(site: Cast, browse: Browse) -> None:
    text = "params:\n  lr: {type: number, max: 1}\n" + written(BASE)
    template = create_template(site.alice, TemplateDraft("train"), text, now=timezone.now())
    client = browse(site.alice)
    shown = client.get(LAUNCH, {"from": str(template.pk), "p.lr": "7"}).content.decode()
    assert "Use at most 1" in shown
    assert " not found" in client.get(LAUNCH, {"from": "nothing"}).content.decode()

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
# By key: what a template says beside BASE. None: the key belongs to one launch, so no template says it.
SAMPLES: dict[str, dict[str, Any] | None] = {
    "image": {"image": "other"},
    "name": {"name": "of-a-template"},
    "type": {"type": "batch"},
    "resources": {"resources": {"cpu": 3, "mem": "2g"}},
    "preset": {"preset": "medium", "resources": {"cpu": 3}},
    "resource_group": {"resource_group": "second"},
    "project": {"project": "vision"},
    "shm": {"shm": "128m"},
    "environ": {"environ": {"EPOCHS": "3"}},
    "startup_command": {"startup_command": 'python train.py --lr "$PARAM_LR"\nexit $?'},
    "preopen_ports": {"preopen_ports": [8080, 9000]},
    "cluster_size": {"cluster_size": 3},
    "cluster_mode": {"cluster_size": 2, "cluster_mode": "multi-node"},
    "priority": {"priority": 7},
    "batch_timeout": {"batch_timeout": 5400},
    "agents": {"agents": ["one", "two"]},
    "placement": {"placement": "spread"},
    "retry_on_agent_loss": {"retry_on_agent_loss": True},
    "files": {"files": [{"path": "train.py", "content": "print(1)\n"}]},
    "mounts": {"mounts": [{"folder": "data", "path": "part", "target": "here", "rights": "view"}]},
    "start_in": {"mounts": [{"folder": "data"}], "start_in": "data"},
    "roles": {"roles": {"worker": WORKER}, "mounts": []},
    "done_when": {"roles": {"worker": {"count": 2}}, "done_when": "worker"},
    "command_in": {"cluster_size": 2, "command_in": "main"},
    **dict.fromkeys(NEVER),
}
SAID = [key for key, value in SAMPLES.items() if value is not None]


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


def asked(key: str, sample: dict[str, Any]) -> Any:
    spec = spec_of({"version": 1, **BASE, **sample})
    return exact(key, document_of(spec).get(key, USUAL[key]))


def test_every_key_has_a_sample() -> None:
    assert set(SAMPLES) == set(USUAL)


@pytest.mark.parametrize("key", SAID)
def test_a_key_survives_template_recent_launch_session_and_saving(site: Cast, browse: Browse, key: str) -> None:
    sample, client = SAMPLES[key], browse(site.alice)
    assert sample is not None
    locked = [] if key == "name" else [key]  # one name is for one session
    document = {**BASE, **sample, "locked": locked}
    template = create_template(site.alice, TemplateDraft("origin"), written(document), now=timezone.now())
    first = launched(client, **{"from": str(template.pk)})
    wanted = asked(key, sample)
    assert told(first, key) == wanted, "from the template"
    if key == "name":  # each further session has one of its own
        return
    again = launched(client, recent=str(recent_launches(site.alice)[0].pk))
    assert told(again, key) == wanted, "from the recent history"
    if key != "files":  # they are copied by the page of the session
        like = launched(client, like=str(again.pk))
        assert told(like, key) == wanted, "from the session"
    if key == "project":  # a template is not bound to one
        return
    for query in (f"session={first.pk}", f"recent={recent_launches(site.alice)[0].pk}"):
        text = client.get(f"/templates/new/?{query}").context["form"]["text"].value()
        saved = create_template(site.alice, TemplateDraft(f"saved-{query[:3]}"), text, now=timezone.now())
        assert told(launched(client, **{"from": str(saved.pk)}), key) == wanted, (query, text)


def test_what_a_template_refuses_is_said_in_the_launcher(site: Cast, browse: Browse) -> None:
    text = "params:\n  lr: {type: number, max: 1}\n" + written(BASE)
    template = create_template(site.alice, TemplateDraft("train"), text, now=timezone.now())
    client = browse(site.alice)
    shown = client.get(LAUNCH, {"from": str(template.pk), "p.lr": "7"}).content.decode()
    assert "Use at most 1" in shown
    assert " not found" in client.get(LAUNCH, {"from": "nothing"}).content.decode()

"""Templates in the browser: gallery, creating, publishing, starting from one, saving a session as one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession, Kernel
from backendai.domain.compute.services.launching.create import create_session
from backendai.domain.compute.services.launching.recent import launch_and_remember, recent_launches
from backendai.domain.compute.spec import MountRequest, RoleSpec, SessionSpec
from backendai.domain.storage.models import Folder, FolderGrant, StorageHost
from backendai.domain.templates.models import Template
from backendai.domain.templates.services.publishing import TemplateDraft, create_template, publish_version
from backendai.portal.web.gallery.changes import EXAMPLES
from tests.cast import Cast
from tests.effort import some
from tests.factories import make_agent, make_image
from tests.pages import markup

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
LAUNCH = "/sessions/new/"
TEXT = """\
params:
  lr: {type: number, default: 0.1, max: 1, title: Learning rate}
  size: {type: choice, choices: [small, large], default: small}
  hf_token: {type: secret}
image: python
type: batch
startup_command: python train.py --lr "$PARAM_LR"
resources: {cpu: 2, mem: 1g}
environ: {RUN: "lr-${{ params.lr }}", HF_TOKEN: "${{ params.hf_token }}"}
roles:
  worker: {count: 2, resources: {cpu: 1, mem: 512m}}
locked: [resources, type]
"""


@pytest.fixture
def site(cast: Cast) -> Cast:
    make_image()
    make_agent(cpu=32, mem="32g")
    return cast


def made(user: User, text: str = TEXT, name: str = "train", **wish: Any) -> Template:
    return create_template(user, TemplateDraft(name, **wish), text, now=timezone.now())


def page(answer: Any) -> str:
    return markup(answer)


def sent(form: Any) -> dict[str, Any]:
    """Return what a browser sends of the form that it was shown."""
    return {name: form.data.getlist(name) for name in form.data}


def test_the_gallery_shows_what_one_may_see_and_searches(site: Cast, browse: Browse) -> None:
    assert "No templates yet" in page(browse(site.alice).get("/templates/"))
    made(site.alice, title="Training", description="of language models")
    made(site.dana, name="shared", scope="public")
    shown = page(browse(site.alice).get("/templates/"))
    assert "Training" in shown and "shared" in shown
    assert "Training" not in page(browse(site.charlie).get("/templates/"))
    found = page(browse(site.alice).get("/templates/?q=language"))
    assert "Training" in found and ">shared<" not in found
    assert "No template matches" in page(browse(site.alice).get("/templates/?q=nothing"))
    made(site.alice, "steps:\n  one: {image: python, startup_command: a}\n", name="flow")
    for kind, shown, hidden in (("pipeline", ">flow<", "Training"), ("session", "Training", ">flow<")):
        found = page(browse(site.alice).get(f"/templates/?kind={kind}"))
        assert shown in found and hidden not in found and f'<option value="{kind}" selected>' in found


def test_one_creates_publishes_activates_and_deletes(site: Cast, browse: Browse) -> None:
    client = browse(site.alice)
    form = {"name": "train", "place": "private/", "icon": "cpu", "text": TEXT.replace("image:", "imge:")}
    refused = client.post("/templates/new/", form)
    assert refused.status_code == 422 and "Line 5, column 1: A template has no key" in page(refused)
    assert client.post("/templates/new/", form | {"text": TEXT}).status_code == 302
    template = Template.objects.get()
    address = f"/templates/{template.pk}/"
    assert client.post(f"{address}publish/", {"text": TEXT + "# better\n", "note": "better"}).status_code == 302
    template.refresh_from_db()
    assert template.current.number == 1 and "Activate version 2" in page(client.get(address))
    assert client.post(f"{address}activate/", {"version": "9"}).status_code == 422
    assert client.post(f"{address}activate/", {"version": "2"}).status_code == 302
    assert client.post(f"{address}change/", {"title": "Train", "icon": "box", "deprecated": "old"}).status_code == 302
    assert "Deprecated:" in page(client.get(address))
    assert client.post(f"{address}delete/").status_code == 302 and Template.objects.exists(), "it is to be confirmed"
    client.post(f"{address}delete/", {"confirm": "delete"})
    assert not Template.objects.exists()


def test_who_may_only_look_is_offered_no_change(site: Cast, browse: Browse) -> None:
    template = made(site.dana, scope="public")
    publish_version(site.dana, template, TEXT + "#\n", now=timezone.now())
    client, address = browse(site.alice), f"/templates/{template.pk}/"
    shown = page(client.get(address))
    assert "Start from template" in shown and "Publish version" not in shown and "Activate version" not in shown
    for verb in ("publish", "change"):
        assert client.get(f"{address}{verb}/").status_code == 404
    for verb in ("activate", "delete"):
        assert client.post(f"{address}{verb}/", {"version": "2"}).status_code == 404
    assert Template.objects.get().current.number == 1


def test_its_parameters_are_asked_and_its_sources_shown(site: Cast, browse: Browse) -> None:
    template, client = made(site.alice), browse(site.alice)
    address = f"/templates/{template.pk}/start/"
    first = page(client.get(address))
    assert "Learning rate" in first and "template private/train@1" in first and "parameter lr" in first
    assert "typed in the launcher" in first and 'name="p.hf_token"' not in first
    wrong = page(client.get(address, {"p.lr": "7", "p.size": "small", "go": "launch"}))
    assert "Use at most 1" in wrong
    led = client.get(address, {"p.lr": "0.5", "p.size": "large", "go": "launch"})
    assert led["Location"] == f"{LAUNCH}?from={template.pk}&p.lr=0.5&p.size=large"


def test_the_launcher_is_filled_and_launches_it(site: Cast, browse: Browse) -> None:
    template, client = made(site.alice), browse(site.alice)
    answer = client.get(LAUNCH, {"from": str(template.pk), "p.lr": "0.5", "p.size": "large"})
    shown = page(answer)
    assert "Filled in from template" in shown and "PARAM_HF_TOKEN" in shown
    form = sent(answer.context["form"])
    assert client.post(LAUNCH, form).status_code == 422, "the secret is still to be typed"
    names = form["environ.name"]
    form["environ.value"] = [
        "hf_x" if name == "PARAM_HF_TOKEN" else text for name, text in zip(names, form["environ.value"], strict=True)
    ]
    reviewed = client.post(LAUNCH, form | {"go": "review"})
    assert reviewed.status_code == 200, page(reviewed)[:3000]
    review = reviewed.context["review"]
    assert [(role.name, role.count) for role in review.roles] == [("main", 1), ("worker", 2)]
    assert (review.number, review.total.to_json()) == (3, {"cpu": "4", "mem": "2147483648"})
    assert "private/train@1" in page(reviewed)
    done = client.post(LAUNCH, form)
    assert done.status_code == 302, page(done)
    session = ComputeSession.objects.get()
    assert session.environ == {
        "RUN": "lr-0.5",
        "HF_TOKEN": "hf_x",
        "PARAM_LR": "0.5",
        "PARAM_SIZE": "large",
        "PARAM_HF_TOKEN": "hf_x",
    }
    assert session.spec["template"] == "private/train@1"
    assert session.spec["parameters"] == {"lr": 0.5, "size": "large"} and "hf_x" not in str(session.spec)
    kernels = [(kernel.hostname, kernel.slots["cpu"]) for kernel in session.kernels.order_by("rank")]
    assert kernels == [("main1", "2"), ("worker1", "1"), ("worker2", "1")]


def test_what_is_locked_cannot_be_changed_in_the_form(site: Cast, browse: Browse) -> None:
    template, client = (
        made(
            site.alice,
            TEXT.replace("  hf_token: {type: secret}\n", "").replace(', HF_TOKEN: "${{ params.hf_token }}"', ""),
        ),
        browse(site.alice),
    )
    form = sent(client.get(LAUNCH, {"from": str(template.pk)}).context["form"])
    refused = client.post(LAUNCH, form | {"cpu": "3"})
    assert refused.status_code == 422 and "resources is fixed by template private/train@1" in page(refused)
    assert client.post(LAUNCH, form | role_form({})).status_code == 302, "roles are not locked"


def role_form(*rows: dict[str, str]) -> dict[str, list[str]]:
    parts = ("name", "count", "image", "cpu", "mem", "slots", "command", "more")
    return {f"roles.{part}": [row.get(part, "") for row in rows] for part in parts}


@some(
    ("role", "part", "said"),
    [
        ({"name": "worker", "more": "cout: 2"}, "more", "A launch request has no key"),
        ({"name": "worker", "more": "after: [main\n"}, "more", "Line 2"),
        ({"name": "worker", "more": "image: python"}, "more", "image has a field of its own"),
        ({"name": "worker", "count": "0"}, "count", "needs at least 1 kernel"),
        ({"name": "worker", "count": "two"}, "count", "Enter a whole number of kernels"),
        ({"name": "worker", "image": "nothing"}, "image", "nothing"),
        ({"name": "worker", "cpu": "many"}, "cpu", "many"),
        ({"name": "worker", "slots": "cuda.device"}, "slots", "cuda.device=1"),
        ({"name": "Worker 1"}, "name", "is not a role"),
        ({"count": "2"}, "name", "This role has no name"),
    ],
)
def test_roles_that_cannot_be_are_refused_at_their_field(
    site: Cast, browse: Browse, role: dict[str, str], part: str, said: str
) -> None:
    client = browse(site.alice)
    usual = {"image": "python", "name": "run-1", "session_type": "interactive", "project": str(site.project.pk)}
    form = usual | {"resource_group": "default", "preset": "", "cpu": "2", "mem": "1g"}
    refused = client.post(LAUNCH, form | role_form({"name": "first"}, role))
    assert refused.status_code == 422
    wrong = refused.context["form"].role_rows()[1].wrong
    assert wrong.keys() == {part} and said in wrong[part], refused.context["form"].errors
    (fault,) = refused.context["review"].faults
    assert (fault.row, fault.part) == (1, part) and f'id="id_roles_1{part}_error"' in page(refused)


def test_roles_are_launched_from_rows(site: Cast, browse: Browse) -> None:
    usual = {"image": "python", "name": "run-1", "session_type": "batch", "project": str(site.project.pk)}
    form = usual | {"resource_group": "default", "preset": "", "cpu": "2", "mem": "1g", "startup_command": "run"}
    rows = role_form(
        {},
        {"name": "worker", "count": "2", "cpu": "1", "mem": "512m", "command": "a\r\nb", "more": "environ: {A: c}"},
        {"name": "helper"},
    )
    assert browse(site.alice).post(LAUNCH, form | rows).status_code == 302
    told = [(one.hostname, one.slots["cpu"], one.startup_command) for one in Kernel.objects.order_by("rank")]
    assert told == [("main1", "2", ""), ("worker1", "1", "a\nb"), ("worker2", "1", "a\nb"), ("helper1", "2", "")]
    assert Kernel.objects.get(hostname="worker2").environ == {"A": "c"}


def test_a_session_with_roles_is_started_again_with_them(site: Cast, browse: Browse) -> None:
    roles = {"worker": RoleSpec(count=2, resources={"cpu": 1, "mem": "512m"}, environ={"RANK_FILE": "x"})}
    spec = SessionSpec(image="python", name="clustered", resources={"cpu": 2, "mem": "1g"}, roles=roles)
    session = create_session(site.alice, spec)
    client = browse(site.alice)
    form = client.get(LAUNCH, {"like": str(session.pk)}).context["form"]
    (row,) = form["roles"].value()
    assert (row["name"], row["count"], row["cpu"], row["mem"]) == ("worker", "2", "1", "512m")
    assert "RANK_FILE: x" in row["more"]


def test_locked_roles_launch_as_they_are_and_not_otherwise(site: Cast, browse: Browse) -> None:
    text = (
        "image: python\nroles: {worker: {count: 2, resources: {cpu: 1, mem: 512m}, after: [main]}}\nlocked: [roles]\n"
    )
    client = browse(site.alice)
    form = sent(client.get(LAUNCH, {"from": str(made(site.alice, text).pk)}).context["form"])
    refused = client.post(LAUNCH, form | {"roles.count": ["3"]})
    assert refused.status_code == 422 and "roles is fixed by template" in page(refused)
    assert client.post(LAUNCH, form).status_code == 302


def test_a_session_and_a_recent_launch_are_saved_as_a_template(site: Cast, browse: Browse) -> None:
    spec = SessionSpec(
        image="python", name="night", resources={"cpu": 2, "mem": "1g"}, environ={"A": "1", "API_KEY": "secret-text"}
    )
    launch_and_remember(site.alice, spec, now=timezone.now())
    session, record = ComputeSession.objects.get(), recent_launches(site.alice)[0]
    client = browse(site.alice)
    for query in (f"session={session.pk}", f"recent={record.pk}"):
        form = client.get(f"/templates/new/?{query}").context["form"]
        text = form["text"].value()
        assert "secret-text" not in text and "${{ params.api_key }}" in text
        assert "resources:\n  cpu: 2\n  mem: 1g\n" in text, "amounts as people write them"
        assert dict(form.fields["icon"].choices)["chart-bar"] == "Chart"
        values = {"name": query[:6], "place": "private/", "icon": "box", "text": text}
        assert client.post("/templates/new/", values).status_code == 302
    assert browse(site.bob).get(f"/templates/new/?session={session.pk}").context["form"]["name"].value() is None
    assert "API_KEY" in Template.objects.first().current.document["environ"]


def test_a_saved_template_names_its_folders(site: Cast, browse: Browse) -> None:
    now = timezone.now()
    common = {"host": StorageHost.objects.create(name="local", address="http://127.0.0.1:1"), "status": "READY"}
    data, other = (Folder.objects.create(name=name, user=site.alice, **common) for name in ("data", "other"))
    twin = Folder.objects.create(name="other", user=site.bob, **common)
    FolderGrant.objects.create(folder=twin, user=site.alice, rights="view", kind="invitation", accepted_at=now)
    mounts = [MountRequest(str(data.pk)), MountRequest(str(other.pk))]
    launch_and_remember(site.alice, SessionSpec(image="python", name="night", mounts=mounts), now=now)
    for query in (f"session={ComputeSession.objects.get().pk}", f"recent={recent_launches(site.alice)[0].pk}"):
        text = browse(site.alice).get(f"/templates/new/?{query}").context["form"]["text"].value()
        assert "folder: data" in text and str(data.pk) not in text
        assert str(other.pk) in text, "two folders have its name"


def test_the_gallery_takes_a_fixed_number_of_queries(
    site: Cast, browse: Browse, django_assert_max_num_queries: Any
) -> None:
    for number in range(5):
        made(site.alice, name=f"train-{number}")
    client = browse(site.alice)
    client.get("/templates/")
    with django_assert_max_num_queries(12):
        client.get("/templates/")


def test_the_launcher_names_what_is_locked_and_makes_it_read_only(site: Cast, browse: Browse) -> None:
    text = "image: python\ntype: batch\nstartup_command: run\npriority: 5\nlocked: [startup_command, priority]\n"
    client = browse(site.alice)
    answer = client.get(LAUNCH, {"from": str(made(site.alice, text).pk)})
    form = answer.context["form"]
    assert "startup_command, priority" in page(answer)
    assert "readonly" in str(form["startup_command"]) and "readonly" in str(form["priority"])
    assert "readonly" not in str(form["name"]) and "readonly" not in str(form["shm"])


def test_locked_choices_and_amounts_are_named_to_the_page_also_when_it_is_refused(site: Cast, browse: Browse) -> None:
    text = (
        "image: python\nresources: {cpu: 2}\nenviron: {A: b}\nlocked: [image, resources.cpu, cluster_mode, environ.A]\n"
    )
    client, template = browse(site.alice), made(site.alice, text)
    answer = client.get(LAUNCH, {"from": str(template.pk)})
    names = ["image", "environment", "version", "manual_image", "cpu", "preset", "cluster_mode", "environ=A"]
    assert json.loads(answer.context["form"].locked_text) == names
    assert re.search(r'name="cpu"[^>]* readonly', page(answer)) and not re.search(
        r'name="mem"[^>]* readonly', page(answer)
    )
    refused = client.post(LAUNCH, {"template": f"{template.pk}@1", "session_type": "batch", "go": "review"})
    assert json.loads(refused.context["form"].locked_text) == names


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_each_example_of_parameters_fills_the_form_and_can_be_published(site: Cast, browse: Browse, name: str) -> None:
    client = browse(site.alice)
    assert f'href="?example={name}"' in page(client.get(reverse("web:template_new")))
    text = client.get(reverse("web:template_new"), {"example": name}).context["form"].initial["text"]
    assert text.startswith("params:") and made(site.alice, text, name).current is not None

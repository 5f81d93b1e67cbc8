"""Folders on the launch form and on the page of a session."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from backendai.base.wire.messages import KernelReport, KernelState
from backendai.domain.accounts.models import User
from backendai.domain.compute.models import ComputeSession, LaunchRecord
from backendai.domain.compute.services.life.reports import ReceivedReport, kernels_reported
from backendai.domain.compute.spec import MountRequest
from backendai.domain.compute.status import Status
from backendai.domain.storage.models import Folder, FolderGrant, HostOnAgent
from backendai.domain.storage.status import FolderStatus, Rights, Usage
from backendai.portal.web.launch.steps import step_of
from tests.cast import Cast
from tests.factories import make_agent, make_image, make_running_session, make_session
from tests.mount_tools import ready_folder, storage_host
from tests.pages import markup
from tests.storage.fake_file_server import FakeFileServer, make_host, serving
from tests.web.test_launch_form import typed

pytestmark = pytest.mark.django_db
Browse = Callable[[User], Client]
LAUNCH = "web:launch"


@pytest.fixture
def site(cast: Cast) -> Cast:
    make_image()
    storage_host("local", make_agent())
    return cast


def rows_of(page: str) -> int:
    return page.count("data-mount=")


def test_it_mounts_what_is_ticked_with_its_alias_and_starts_there(site: Cast, browse: Browse) -> None:
    data, other = ready_folder(site.alice), ready_folder(site.alice, "other")
    sent = typed(site, mounts=[str(data.pk)], start_in=str(data.pk))
    sent |= {f"mount.{data.pk}.target": "train", f"mount.{data.pk}.rights": "view", f"mount.{other.pk}.target": "x"}
    browse(site.alice).post(reverse(LAUNCH), sent)
    session = ComputeSession.objects.get()
    mount = session.mounts.get()
    assert (mount.folder, mount.target, mount.rights) == (data, "/home/work/train", "view")
    assert session.start_in == "/home/work/train"
    assert LaunchRecord.objects.get().parameters["mounts"][0]["folder"] == str(data.pk)


def test_the_step_lists_what_can_be_mounted_and_nothing_else(site: Cast, browse: Browse) -> None:
    page = markup(browse(site.alice).get(reverse(LAUNCH)))
    assert "You have no folder to mount yet." in page
    ready_folder(site.alice, "mine")
    ready_folder(None, "ours", project=site.project)
    ready_folder(site.alice, "gone", status=FolderStatus.TRASHED)
    ready_folder(site.alice, ".cache")
    shared, _foreign = ready_folder(site.charlie, "shared"), ready_folder(site.charlie, "foreign")
    grant = FolderGrant.objects.create(
        folder=shared, user=site.alice, rights=Rights.VIEW, accepted_at=shared.created_at
    )
    page = markup(browse(site.alice).get(reverse(LAUNCH)))
    assert rows_of(page) == 3
    assert "of project vision" in page and "of charlie@example.com" in page and "foreign" not in page
    assert "Mounted automatically where the agent can: .cache." in page
    assert f"mount.{shared.pk}.rights" not in page  # it can only be read
    grant.delete()
    assert rows_of(markup(browse(site.alice).get(reverse(LAUNCH)))) == 2


def test_a_refusal_stands_at_the_field_on_its_step(site: Cast, browse: Browse) -> None:
    data = ready_folder(site.alice)
    sent = typed(site, mounts=[str(data.pk)]) | {f"mount.{data.pk}.target": "/etc"}
    answer = browse(site.alice).post(reverse(LAUNCH), sent)
    page = markup(answer)
    assert answer.status_code == 422 and "belongs to the system" in page
    assert step_of("mounts") == 3 and 'id="id_mounts_error"' in page and "checked" in page
    assert not ComputeSession.objects.exists()


def test_the_review_tells_what_is_mounted_or_that_nothing_is(site: Cast, browse: Browse) -> None:
    data = ready_folder(site.alice)
    look = reverse("web:launch_review")
    assert "review-no-folder" in markup(browse(site.alice).post(look, typed(site)))
    sent = typed(site, mounts=[str(data.pk)], start_in=str(data.pk))
    page = markup(browse(site.alice).post(look, sent))
    assert "review-no-folder" not in page and "/home/work/data" in page and "Start here" in page
    assert "review-read-only" not in page


def test_the_review_warns_when_no_selected_folder_can_be_written(site: Cast, browse: Browse) -> None:
    data, model = ready_folder(site.alice), ready_folder(site.alice, "model", usage=Usage.MODEL)
    ready_folder(site.alice, ".cache")  # mounted automatically, for programs of its own
    shared = ready_folder(site.charlie, "shared")
    now = timezone.now()
    FolderGrant.objects.create(folder=shared, user=site.alice, rights=Rights.VIEW, accepted_at=now)
    client, look = browse(site.alice), reverse("web:launch_review")

    def is_warned(**rights: str) -> bool:
        sent = typed(site, mounts=[str(one.pk) for one in (data, model, shared)])
        sent |= {f"mount.{one.pk}.rights": rights.get(one.name, "") for one in (data, model)}
        page = markup(client.post(look, sent))
        assert "/home/work/shared" in page
        return "review-read-only" in page

    assert is_warned(data="view")
    assert not is_warned()
    assert not is_warned(data="view", model="edit")


def test_to_start_again_and_recent_launches_keep_the_mounts(site: Cast, browse: Browse) -> None:
    data = ready_folder(site.alice)
    wish = MountRequest("data", path="part", target="train", rights="view")
    session = make_session(site.alice, mounts=[wish], start_in="train")
    page = markup(browse(site.alice).get(reverse(LAUNCH), {"like": str(session.pk)}))
    assert f'name="mounts" value="{data.pk}" id="mount-{data.pk}" checked' in page
    assert f'name="mount.{data.pk}.path" value="part"' in page
    assert f'name="start_in" value="{data.pk}"' in page and page.count('name="start_in"') == 3
    sent = typed(site, mounts=[str(data.pk)], start_in=str(data.pk)) | {f"mount.{data.pk}.target": "alias"}
    browse(site.alice).post(reverse(LAUNCH), sent)
    record = LaunchRecord.objects.get()
    page = markup(browse(site.alice).get(reverse(LAUNCH), {"recent": str(record.pk)}))
    assert f'id="mount-{data.pk}" checked' in page and 'value="alias"' in page and "/home/work/alias" in page
    Folder.objects.update(status=FolderStatus.TRASHED)
    page = markup(browse(site.alice).get(reverse("web:recent")))
    assert "No longer available: a folder" in page


def test_the_start_is_the_only_folder_to_write_to_unless_the_home_is_chosen(site: Cast, browse: Browse) -> None:
    data = ready_folder(site.alice)
    sent, person = typed(site, mounts=[str(data.pk)], start_in=""), browse(site.alice)
    starts = re.compile(r"/home/work(/\w+)?</span> <span class=\"badge\">(?:Read only|Start here)")
    page = markup(person.post(reverse("web:launch_review"), sent))
    assert starts.findall(page) == ["/data"]
    page = markup(person.post(reverse("web:launch_review"), sent | {"start_in": "/home/work"}))
    assert starts.findall(page) == [""]
    person.post(reverse(LAUNCH), sent | {"start_in": "/home/work"})
    session = ComputeSession.objects.get()
    assert session.start_in == ""
    page = markup(person.get(reverse(LAUNCH), {"like": str(session.pk)}))
    assert re.search(r'name="start_in" value="/home/work" [^>]* checked', page)


def test_an_address_ticks_folders(site: Cast, browse: Browse) -> None:
    data = ready_folder(site.alice)
    said = {"mounts": str(data.pk), f"mount.{data.pk}.target": "train", "start_in": str(data.pk)}
    page = markup(browse(site.alice).get(reverse(LAUNCH), said))
    assert f'id="mount-{data.pk}" checked' in page and 'value="train"' in page
    foreign = ready_folder(site.charlie, "foreign")
    page = markup(browse(site.alice).get(reverse(LAUNCH), {"mounts": str(foreign.pk)}))
    assert "foreign" not in page


def test_the_page_of_a_session_tells_its_folders(site: Cast, browse: Browse) -> None:
    ready_folder(site.alice)
    ready_folder(site.alice, ".cache")
    agent = make_agent()
    storage_host("local", agent)
    session = make_running_session(site.alice, agent, mounts=[MountRequest("data", rights="view")], start_in="data")
    page = reverse("web:session", args=[session.pk])
    text = markup(browse(site.alice).get(page))
    assert "/home/work/data" in text and "Read only" in text and "Nothing is mounted." not in text
    assert "/home/work/.cache" in text and "Not mounted:" not in text
    HostOnAgent.objects.update(fault="It is gone.")
    assert markup(browse(site.alice).get(page)).count("Not mounted:") == 1
    kernel = session.kernels.get()
    told = "Not mounted on this agent: .cache. The share of gpu3 is away."
    word = KernelReport(kernel_id=kernel.pk, generation=kernel.generation, state=KernelState.RUNNING, message=told)
    kernels_reported([ReceivedReport(agent, word)], now=timezone.now())
    assert told in markup(browse(site.alice).get(page))
    kernels_reported([ReceivedReport(agent, word.model_copy(update={"message": ""}))], now=timezone.now())
    assert told not in markup(browse(site.alice).get(page))
    plain = make_running_session(site.bob)
    assert "Nothing is mounted." in markup(browse(site.bob).get(reverse("web:session", args=[plain.pk])))


def test_folders_beyond_the_first_200_are_found_sorted_and_kept_when_checked(site: Cast, browse: Browse) -> None:
    usual = {"host": storage_host(), "status": FolderStatus.READY, "user": site.alice}
    Folder.objects.bulk_create(Folder(name=f"f{number:03}", used_bytes=number, **usual) for number in range(200))
    zebra = ready_folder(site.alice, "zebra", used_bytes=10**9)
    client = browse(site.alice)
    page = markup(client.get(reverse(LAUNCH)))
    assert rows_of(page) == 200 and 'data-mount="zebra"' not in page and "search for others" in page
    chosen = str(Folder.objects.get(name="f007").pk)
    sent = {"mounts_search": "ZEB", "mounts": chosen}
    rows = markup(client.post(reverse("web:launch_folders"), sent))
    assert re.findall('data-mount="([^"]+)"', rows) == ["f007", "zebra"]
    by_size = markup(client.post(reverse("web:launch_folders"), {"mounts_sort": "size"}))
    assert re.findall('data-mount="([^"]+)"', by_size)[:2] == ["zebra", "f199"]
    page = markup(client.get(reverse(LAUNCH), {"mounts": str(zebra.pk)}))
    assert f'value="{zebra.pk}" id="mount-{zebra.pk}" checked' in page
    bobs = browse(site.bob).post(reverse("web:launch_folders"), {"mounts": str(zebra.pk), "mounts_search": "zebra"})
    assert "zebra" not in re.findall('data-mount="([^"]+)"', markup(bobs))


def test_folders_lead_to_the_explorer_and_the_explorer_to_the_launcher(site: Cast, browse: Browse) -> None:
    data = ready_folder(site.alice)
    explorer = reverse("web:folder", args=[data.pk])
    client = browse(site.alice)
    page = markup(client.get(reverse(LAUNCH)))
    assert f'href="{explorer}"' in page and f'name="mount.{data.pk}.path"' in page
    session = make_running_session(site.alice, make_agent("a2"), mounts=[MountRequest("data", path="sub")])
    page = reverse("web:session", args=[session.pk])
    assert f'href="{explorer}?path=sub"' in markup(client.get(page))
    Folder.objects.update(user=site.bob)
    assert explorer not in markup(client.get(page))  # lost since, so the link would lead nowhere
    Folder.objects.update(user=site.alice)
    assert f'href="{reverse(LAUNCH)}?mounts={data.pk}"' in markup(client.get(explorer))


def test_folders_cost_the_form_no_query_each(site: Cast, browse: Browse) -> None:
    client, numbers = browse(site.alice), []
    for number in (1, 12):
        for each in range(number):
            ready_folder(site.alice, f"f{number}-{each}")
        client.get(reverse(LAUNCH))
        with CaptureQueriesContext(connection) as queries:
            client.get(reverse(LAUNCH))
        numbers.append(len(queries))
    assert numbers[0] == numbers[1]


def test_rest_launches_with_folders_and_tells_them(site: Cast, browse: Browse) -> None:
    data = ready_folder(site.alice)
    body = {
        "image": "python",
        "resources": {"cpu": 1, "mem": "512m"},
        "mounts": [{"folder": "data", "target": "/data", "rights": "view"}],
        "start_in": "/data",
    }
    client = browse(site.alice)
    made = client.post("/api/v1/sessions/", body, content_type="application/json")
    assert made.status_code == 201, made.content
    mount = {
        "folder": str(data.pk), "name": "data", "path": "", "target": "/data", "rights": "view", "role": "",
        "is_automatic": False,
    }  # fmt: skip
    assert made.json()["mounts"] == [mount] and made.json()["start_in"] == "/data"
    assert client.get(f"/api/v1/sessions/{made.json()['id']}/").json()["mounts"] == [mount]
    body["mounts"] = [{"folder": "nothing"}]
    refused = client.post("/api/v1/sessions/", body, content_type="application/json")
    assert refused.status_code in (400, 422) and refused.json()["code"] == "unknown-folder"
    assert ComputeSession.objects.get().status == Status.PENDING


def test_a_folder_is_created_on_the_form_and_ticked(site: Cast, browse: Browse) -> None:
    taken = ready_folder(site.alice, "taken")
    client, address = browse(site.alice), reverse("web:launch_folder")
    assert 'name="new_folder-name"' in markup(client.get(address))
    with serving(FakeFileServer("disk")) as files:
        host = make_host(files, is_default=False)
        new = {"new_folder-name": "fresh", "new_folder-host": str(host.pk), "new_folder-usage": "general"}
        sent = typed(site, mounts=[str(taken.pk)]) | {f"mount.{taken.pk}.target": "old"}
        answer = client.post(address, sent | new)
        page, fresh = markup(answer), Folder.objects.get(name="fresh")
        assert answer["HX-Trigger-After-Settle"] == "folder-created" and fresh.user == site.alice
        assert f'id="mount-{fresh.pk}" checked' in page and f'id="mount-{taken.pk}" checked' in page
        assert 'value="old"' in page  # what was typed before stays
        refused = client.post(address, sent | new | {"new_folder-name": "taken"})
        assert refused["HX-Retarget"] == "#new-folder-form" and "taken" in markup(refused)
        assert "HX-Trigger-After-Settle" not in refused and Folder.objects.count() == 2
        files.refuses = (503, "storage-missing")
        page = markup(client.post(address, sent | new | {"new_folder-name": "later"}))
    assert Folder.objects.get(name="later").status != FolderStatus.READY
    assert "The folder" in page and "is being created" in page


def test_a_launch_creates_a_folder_to_start_in_under_the_name_of_the_session(site: Cast, browse: Browse) -> None:
    client, address = browse(site.alice), reverse("web:launch_folder")
    asked = {"new_folder-then": "launch", "session_type": "batch"}
    form = markup(client.get(address, asked | {"name": "train-7"}))
    assert 'value="train-7"' in form and "Create folder and launch" in form
    assert re.search(r'value="batch-\d{8}-\d{6}"', markup(client.get(address, asked)))
    with serving(FakeFileServer("disk")) as files:
        host = make_host(files, is_default=False)
        new = {"new_folder-then": "launch", "new_folder-name": "train-7", "new_folder-host": str(host.pk)}
        sent = typed(site) | new | {"new_folder-usage": "model"}
        answer = client.post(address, sent)
        made = Folder.objects.get()
        page = markup(answer)
        assert answer["HX-Trigger-After-Settle"] == "folder-to-start-in"
        assert f'id="mount-{made.pk}" checked' in page
        assert re.search(rf'name="start_in" value="{made.pk}" [^>]* checked', page)
        assert 'value="edit" data-writes selected' in page
        refused = client.post(address, sent)  # the name is taken now
        assert refused["HX-Retarget"] == "#new-folder-form" and "Create folder and launch" in markup(refused)
        assert "HX-Trigger-After-Settle" not in refused and Folder.objects.count() == 1
        files.refuses = (503, "storage-missing")
        answer = client.post(address, sent | {"new_folder-name": "later"})
    assert answer["HX-Trigger-After-Settle"] == "folder-created", "nothing is launched without the folder"
    assert "is being created" in markup(answer)


def test_only_the_owner_is_offered_to_create_a_folder(site: Cast, browse: Browse) -> None:
    assert 'data-dialog="new-folder"' in markup(browse(site.alice).get(reverse(LAUNCH)))
    sent = {"go": "owner", "owner": site.alice.email, "for_whom": "other"}
    page = markup(browse(site.dana).post(reverse(LAUNCH), sent))
    assert "new-folder" not in page

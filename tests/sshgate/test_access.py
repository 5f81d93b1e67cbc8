"""Keys of accounts and of sessions, and what pages and REST say about SSH."""

from __future__ import annotations

import subprocess
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from django.test import Client
from django.utils import timezone
from django.utils.html import escape

from backendai.base.core.errors import Conflict, NotFound
from backendai.domain.accounts.models import SshKey, User
from backendai.domain.accounts.services import environments
from backendai.domain.accounts.services.environments import add_ssh_key, proof_text
from backendai.domain.activity.models import AuditEntry
from backendai.domain.compute.models import SessionSshKey
from backendai.gates.gateways.site_keys import fingerprint_of, host_key, public_text
from backendai.gates.gateways.ssh_access import folder_lines_for, key_of, lines_for, site_for
from backendai.gates.gateways.targets import Denied
from backendai.gates.sshgate.entrances import entrance_for, open_at
from tests.cast import Cast
from tests.factories import make_agent, make_running_session, make_session

pytestmark = pytest.mark.django_db
NOW = timezone.now()


def new_key(folder: Path, name: str) -> Path:
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


def signed(key: Path, text: str, namespace: str = "backendai") -> str:
    command = ["ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", str(key)]
    return subprocess.run(command, input=text.encode(), capture_output=True, check=True).stdout.decode()


def test_a_key_moves_to_another_account_only_with_a_signature(cast: Cast, tmp_path: Path) -> None:
    key = new_key(tmp_path, "alice")
    public = Path(f"{key}.pub").read_text()
    add_ssh_key(cast.bob, public)  # squatted
    text = proof_text(cast.alice.email)
    other = new_key(tmp_path, "other")
    bad = ["", "nonsense", signed(other, text), signed(key, text, "git"), signed(key, proof_text(cast.bob.email))]
    for proof in bad:
        with pytest.raises(Conflict) as refused:
            add_ssh_key(cast.alice, public, proof=proof)
        assert refused.value.code == "ssh-key-of-another" and text in str(refused.value)
    add_ssh_key(cast.alice, public, proof=signed(key, text + "\n"))
    assert SshKey.objects.get().user == cast.alice
    assert AuditEntry.objects.filter(action="ssh-key.move").count() == 1


def test_a_key_of_several_accounts_opens_nothing_until_its_holder_proves_it(cast: Cast, tmp_path: Path) -> None:
    private = new_key(tmp_path, "alice")
    public = Path(f"{private}.pub").read_text()
    session = make_running_session(cast.alice)
    key = add_ssh_key(cast.alice, public)
    SshKey.objects.update(is_contested=True)
    SshKey.objects.create(
        user=cast.bob, name="x", public_key=key.public_key, fingerprint=key.fingerprint, is_contested=True
    )
    entrance = entrance_for(key.fingerprint, session.name, NOW)
    assert entrance is not None and entrance.kernel_id is None and "Several accounts" in entrance.apology
    with pytest.raises(Conflict) as refused:
        add_ssh_key(cast.alice, public)
    assert refused.value.code == "ssh-key-of-another"
    assert add_ssh_key(cast.alice, public, proof=signed(private, proof_text(cast.alice.email))) == key
    entrance = entrance_for(key.fingerprint, session.name, NOW)
    assert entrance is not None and entrance.kernel_id is not None
    assert SshKey.objects.get().user == cast.alice
    with pytest.raises(Conflict) as refused:
        add_ssh_key(cast.alice, public)
    assert refused.value.code == "ssh-key-exists"


def test_two_registrations_at_once_give_the_key_to_one_account(
    cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = Path(f"{new_key(tmp_path, 'alice')}.pub").read_text()
    save = environments._save_once

    def late(key: SshKey, user: User) -> None:
        """The other account registers it after ours has looked."""
        save(SshKey(user=cast.bob, name="x", public_key=key.public_key, fingerprint=key.fingerprint), cast.bob)
        save(key, user)

    monkeypatch.setattr(environments, "_save_once", late)
    with pytest.raises(Conflict) as refused:
        add_ssh_key(cast.alice, public)
    assert refused.value.code == "ssh-key-of-another"


def test_page_and_rest_take_the_proof(cast: Cast, client: Client, tmp_path: Path) -> None:
    keys = [new_key(tmp_path, name) for name in ("one", "two")]
    texts = [Path(f"{key}.pub").read_text() for key in keys]
    for text in texts:
        add_ssh_key(cast.bob, text)
    proofs = [signed(key, proof_text(cast.alice.email) + "\n") for key in keys]
    client.force_login(cast.alice)
    page = client.post("/account/ssh-keys/", {"public_key": texts[0]})
    assert page.status_code == 422 and 'name="proof"' in page.content.decode()
    assert "ssh-keygen -Y sign" in page.content.decode() and proof_text(cast.alice.email) in page.content.decode()
    assert client.post("/account/ssh-keys/", {"public_key": texts[0], "proof": proofs[0]}).status_code == 302
    order = {"public_key": texts[1]}
    refused = client.post("/api/v1/me/ssh-keys/", order, content_type="application/json")
    assert (refused.status_code, refused.json()["code"]) == (409, "ssh-key-of-another")
    order["proof"] = proofs[1]
    assert client.post("/api/v1/me/ssh-keys/", order, content_type="application/json").status_code == 201
    assert set(SshKey.objects.values_list("user__email", flat=True)) == {cast.alice.email}


def test_the_key_of_a_session_opens_it_alone_until_it_is_replaced(cast: Cast) -> None:
    session, other = make_running_session(cast.alice, name="ones"), make_session(cast.alice, name="two2")
    private, fingerprint = key_of(cast.alice, session)
    assert "OPENSSH PRIVATE KEY" in private and key_of(cast.alice, session)[1] == fingerprint
    for name in ("work", "ones", "two2", "nothing"):
        entrance = entrance_for(fingerprint, name, NOW)
        assert entrance is not None and open_at(entrance, NOW).session_id == session.pk
    assert key_of(cast.alice, other)[1] != fingerprint
    second = key_of(cast.alice, session, renew=True)[1]
    assert second != fingerprint and entrance_for(fingerprint, "ones", NOW) is None
    with pytest.raises(Denied):
        open_at(entrance, NOW)
    assert entrance_for(second, "ones", NOW) is not None
    with pytest.raises(NotFound):
        key_of(cast.dana, session)
    assert SessionSshKey.objects.count() == 2


def test_an_account_that_is_not_active_opens_nothing(cast: Cast, tmp_path: Path) -> None:
    key = add_ssh_key(cast.alice, Path(f"{new_key(tmp_path, 'alice')}.pub").read_text())
    session = make_running_session(cast.alice)
    entrances = [entrance_for(found, session.name, NOW) for found in (key.fingerprint, key_of(cast.alice, session)[1])]
    cast.alice.is_active = False
    cast.alice.save()
    for entrance in entrances:
        assert entrance is not None
        with pytest.raises(Denied):
            open_at(entrance, NOW)
    assert entrance_for(key.fingerprint, session.name, NOW) is None


def test_odd_names_are_answered(cast: Cast, tmp_path: Path) -> None:
    key = add_ssh_key(cast.alice, Path(f"{new_key(tmp_path, 'alice')}.pub").read_text())
    make_running_session(cast.alice, name="mine")
    make_running_session(cast.bob, name="theirs")
    for name in (
        "",
        "+",
        "mine+sub9",
        "mine+",
        "theirs",
        "x" * 5000,
        "a\0b",
        "\x1b[31m",
        "../mine",
        "mine' OR 1=1",
        "한글",
    ):
        entrance = entrance_for(key.fingerprint, name, NOW)
        assert entrance is not None
        assert (entrance.kernel_id is not None) == (name == "mine+")
        assert "\x1b" not in entrance.apology and "\0" not in entrance.apology


@pytest.mark.parametrize(
    ("portal", "host", "scp", "known"),
    [
        ("[::1]:8080", "::1", "scp -P 2200 FILE 'train@[::1]':", "[::1]:2200 "),
        ("[fd00::7]", "fd00::7", "scp -P 2200 FILE 'train@[fd00::7]':", "[fd00::7]:2200 "),
        (
            "lab.example.org:8080",
            "lab.example.org",
            "scp -P 2200 FILE train@lab.example.org:",
            "[lab.example.org]:2200 ",
        ),
        ("lab.example.org", "lab.example.org", "scp -P 2200 FILE train@lab.example.org:", "[lab.example.org]:2200 "),
    ],
)
def test_the_commands_name_hosts_of_every_kind(portal: str, host: str, scp: str, known: str) -> None:
    site = site_for(portal)
    assert site is not None and site.known_hosts.startswith(known)
    lines = lines_for(site, "train")
    assert (lines["shell"], lines["scp"]) == (f"ssh -p 2200 train@{host}", scp)
    assert "'" not in lines["vscode"] and f"HostName {host}\n" in site.config(["train"])
    into_a_folder = f"{scp.replace('train', 'folders')}FOLDER/"  # beside the folders files are deleted with the session
    assert folder_lines_for(site)["scp"] == into_a_folder
    assert folder_lines_for(site)["rsync"].endswith(f" -a DIRECTORY/ {into_a_folder.rpartition(' ')[2]}")


def test_a_cluster_names_the_way_into_each_kernel(cast: Cast, client: Client) -> None:
    session = make_running_session(cast.alice, name="train", cluster_size=3)
    client.force_login(cast.alice)
    page = client.get(f"/sessions/{session.pk}/ssh/").content.decode()
    told = client.get(f"/api/v1/sessions/{session.pk}/ssh/").json()["other_kernels"]
    assert told == [f"ssh -p 2200 train+sub{number}@testserver" for number in (1, 2)]
    assert all(line in page for line in told)


def test_openssh_reads_the_lines_for_all_sessions(cast: Cast, client: Client, tmp_path: Path) -> None:
    make_running_session(cast.alice, name="train", cluster_size=3)
    make_session(cast.alice, name="other")
    make_running_session(cast.bob, name="theirs")
    client.force_login(cast.alice)
    told = client.get("/api/v1/me/ssh-config/").json()["config"]
    assert escape(told) in client.get("/account/ssh-keys/").content.decode() and "theirs" not in told
    file = tmp_path / "config"
    file.write_text(told)
    for name in ("train", "train+sub1", "train+sub2", "other", "folders"):
        told = subprocess.run(["ssh", "-G", "-F", file, name], capture_output=True, text=True, check=True).stdout
        assert {f"user {name}", "hostname testserver", "port 2200"} <= set(told.splitlines()), name


def test_vs_code_asks_for_the_folder_where_only_the_agent_knows_the_home(cast: Cast, client: Client) -> None:
    native = make_running_session(cast.alice, make_agent(backend="process"), name="train")
    client.force_login(cast.alice)
    link = client.get(f"/api/v1/sessions/{native.pk}/ssh/").json()["commands"]["vscode"]
    assert link == "vscode://vscode-remote/ssh-remote+train@testserver:2200?windowId=_blank"
    assert link in client.get(f"/sessions/{native.pk}/ssh/").content.decode()


def test_where_second_factors_are_required_keys_count_for_a_while_after_a_sign_in(
    cast: Cast, tmp_path: Path, settings: Any
) -> None:
    key = add_ssh_key(cast.alice, Path(f"{new_key(tmp_path, 'alice')}.pub").read_text())
    session = make_running_session(cast.alice, name="train")
    own = key_of(cast.alice, session)[1]

    def opens(now: datetime) -> list[bool]:
        found = [entrance_for(fingerprint, "train", now) for fingerprint in (key.fingerprint, own)]
        told = [(one.kernel_id is not None, "Sign in to the portal" in one.apology) for one in found if one]
        assert all(is_open != is_told for is_open, is_told in told)
        return [is_open for is_open, _ in told]

    settings.SSH_FRESH_LOGIN = timedelta(hours=12)
    assert opens(NOW) == [True, True], "no second factor is required"
    settings.REQUIRE_MFA = "all"
    assert opens(NOW) == [False, False]
    User.objects.filter(pk=cast.alice.pk).update(last_login=NOW)
    assert opens(NOW + timedelta(hours=11)) == [True, True] and opens(NOW + timedelta(hours=13)) == [False, False]
    settings.SSH_FRESH_LOGIN = timedelta(0)
    assert opens(NOW + timedelta(days=400)) == [True, True]


def test_page_and_rest_tell_the_same(cast: Cast, client: Client) -> None:
    session = make_running_session(cast.alice, name="train")
    client.force_login(cast.alice)
    page = client.get(f"/sessions/{session.pk}/ssh/").content.decode()
    site = site_for("testserver")
    assert site is not None and site.fingerprint == fingerprint_of(public_text(host_key()))
    assert site.fingerprint in page and "ssh -p 2200 train@testserver" in page and "vscode://" in page
    told = client.get(f"/api/v1/sessions/{session.pk}/ssh/").json()
    assert (told["user"], told["port"], told["known_hosts"]) == ("train", 2200, site.known_hosts)
    assert "Host train\n" in client.get("/api/v1/me/ssh-config/").json()["config"]
    file = client.post(f"/sessions/{session.pk}/ssh/key/")
    again = client.post(f"/api/v1/sessions/{session.pk}/ssh-key/", {}, content_type="application/json").json()
    shown = public_text(load_ssh_private_key(file.content, password=None))  # type: ignore[arg-type]
    assert fingerprint_of(shown) == again["fingerprint"] and "attachment" in file["Content-Disposition"]
    client.force_login(cast.dana)
    assert "Only its owner" in client.get(f"/sessions/{session.pk}/ssh/").content.decode()
    assert client.post(f"/sessions/{session.pk}/ssh/key/").status_code == 404
    client.force_login(cast.charlie)
    assert client.get(f"/sessions/{session.pk}/ssh/").status_code == 404

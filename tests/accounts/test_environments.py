"""SSH keys, dotfiles and the bootstrap script: what is taken, and what a session then finds."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.dsa import generate_private_key as dsa_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as rsa_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from backendai.base.core.errors import Conflict, NotAllowed, NotFound, UserError
from backendai.domain.accounts.homes import Home, Residents, homes_of
from backendai.domain.accounts.models import BootstrapScript, Dotfile, SshKey, User
from backendai.domain.accounts.services.environments import (
    MOST_BYTES,
    MOST_DOTFILES,
    MOST_SSH_KEYS,
    add_ssh_key,
    dotfiles_of,
    read_public_key,
    remove_dotfile,
    remove_ssh_key,
    save_dotfile,
    set_bootstrap_script,
)
from backendai.domain.activity.models import AuditEntry
from tests.cast import Cast

pytestmark = pytest.mark.django_db
KNOWN = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"


def new_key(private: Any = None) -> str:
    public = (private or Ed25519PrivateKey.generate()).public_key()
    return str(public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode())


def home_of(cast: Cast, user: User | None = None) -> Home:
    one = Residents((user or cast.alice).pk, cast.project.pk, cast.project.domain_id)
    return homes_of([one])[one]


def test_it_takes_public_keys_as_they_are_pasted() -> None:
    plain, fingerprint, comment = read_public_key(f"  {KNOWN} alice@laptop at home\n")
    assert (plain, comment) == (KNOWN, "alice@laptop at home")
    assert fingerprint == "SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA", "as ssh-keygen -l says"
    assert len(base64.b64decode(fingerprint.removeprefix("SHA256:") + "=")) == 32
    assert read_public_key(new_key(rsa_key(65537, 2048)))[0].startswith("ssh-rsa ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Paste one public key"),
        ("hello", "Paste one public key"),
        (f"{KNOWN}\n{KNOWN}", "on one line"),
        (f'command="rm -rf /" {KNOWN}', "beginning with"),
        (KNOWN[:-9], "damaged"),
        (KNOWN.replace("ssh-ed25519", "ssh-rsa"), "damaged"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nabc", "private key"),
        (f"{KNOWN} {'x' * 9000}", "Paste one public key"),
    ],
)
def test_it_refuses_what_is_no_public_key(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as refused:
        read_public_key(text)
    assert (refused.value.code, refused.value.field) == ("invalid-ssh-key", "public_key")


def test_it_refuses_weak_keys() -> None:
    for weak in (rsa_key(65537, 1024), dsa_key(1024)):
        with pytest.raises(UserError):
            read_public_key(new_key(weak))


def test_keys_are_ones_own_each_once_and_limited(cast: Cast) -> None:
    key = add_ssh_key(cast.alice, f"{KNOWN} laptop")
    assert (key.name, key.public_key) == ("laptop", KNOWN)
    with pytest.raises(Conflict, match="already"):
        add_ssh_key(cast.alice, KNOWN, name="again")
    with pytest.raises(Conflict, match="Another account"):
        add_ssh_key(cast.bob, KNOWN, name="shared desk")
    with pytest.raises(NotFound):
        remove_ssh_key(cast.bob, key.pk)
    with pytest.raises(UserError, match="one line without control"):
        add_ssh_key(cast.alice, new_key(), name="two\nlines")
    for number in range(MOST_SSH_KEYS - 1):
        add_ssh_key(cast.alice, new_key(), name=f"k{number}")
    with pytest.raises(Conflict, match="20"):
        add_ssh_key(cast.alice, new_key())
    remove_ssh_key(cast.alice, key.pk)
    assert SshKey.objects.visible_to(cast.alice).count() == MOST_SSH_KEYS - 1


@pytest.mark.parametrize(
    "path",
    [
        "", "/etc/passwd", "~/.bashrc", "../x", "a/../b", "a//b", "a/", "./a", ".", "a\0b", "a\nb", "x" * 256,
        ".ssh", ".ssh/authorized_keys", ".ssh/authorized_keys/x", ".bootstrap.sh", ".bootstrap.pending",
    ],
)  # fmt: skip
def test_it_refuses_paths_that_lead_elsewhere_or_are_taken(cast: Cast, path: str) -> None:
    with pytest.raises(UserError) as refused:
        save_dotfile(cast.alice, cast.alice, path, "x")
    assert refused.value.field == "path"
    assert not Dotfile.objects.exists()


def test_it_refuses_odd_permissions_and_contents(cast: Cast) -> None:
    for permission in ("", "7777", "4755", "088", "rwx", "044", "+44", "644\n"):
        with pytest.raises(UserError, match="octal"):
            save_dotfile(cast.alice, cast.alice, ".bashrc", "x", permission=permission)
    with pytest.raises(UserError, match="NUL"):
        save_dotfile(cast.alice, cast.alice, ".bashrc", "a\0b")
    with pytest.raises(UserError, match="64 KiB"):
        save_dotfile(cast.alice, cast.alice, ".bashrc", "é" * (MOST_BYTES // 2))


def test_files_of_an_owner_fit_beside_each_other_and_into_the_limit(cast: Cast) -> None:
    save_dotfile(cast.alice, cast.alice, ".config/app", "1")
    for path in (".config", ".config/app/deeper"):
        with pytest.raises(Conflict, match="cannot be a directory"):
            save_dotfile(cast.alice, cast.alice, path, "x")
    save_dotfile(cast.alice, cast.alice, ".config/app", "2", permission="600")
    file = dotfiles_of(cast.alice).get()
    assert (file.content, file.permission) == ("2", "600"), "the same path is written anew"
    save_dotfile(cast.alice, cast.alice, ".big", "x" * (MOST_BYTES - 20))
    with pytest.raises(UserError, match="64 KiB"):
        save_dotfile(cast.alice, cast.alice, ".more", "x" * 20)
    save_dotfile(cast.alice, cast.alice, ".big", "")
    for number in range(MOST_DOTFILES - 2):
        save_dotfile(cast.alice, cast.alice, f".f{number}", "")
    with pytest.raises(Conflict, match="30"):
        save_dotfile(cast.alice, cast.alice, ".last", "")
    with pytest.raises(NotFound):
        remove_dotfile(cast.bob, cast.bob, file.pk)
    remove_dotfile(cast.alice, cast.alice, file.pk)
    save_dotfile(cast.alice, cast.alice, ".last", "")
    entries = AuditEntry.objects.filter(target_type="dotfile")
    assert {entry.action for entry in entries} == {"dotfile.create", "dotfile.change", "dotfile.delete"}
    assert not any("content" in entry.details for entry in entries)


def test_files_of_projects_and_domains_are_for_their_domains_admins(cast: Cast) -> None:
    for owner in (cast.project, cast.project.domain, cast.bob):
        with pytest.raises(NotAllowed):
            save_dotfile(cast.alice, owner, ".bashrc", "evil")
    cast.bob.role = User.Role.ADMIN
    cast.bob.save()
    for owner in (cast.project, cast.project.domain):
        save_dotfile(cast.bob, owner, ".bashrc", "good")
        save_dotfile(cast.dana, owner, ".bashrc", "better")
    with pytest.raises(NotAllowed):
        save_dotfile(cast.bob, cast.elsewhere, ".bashrc", "evil")
    assert Dotfile.objects.count() == 2


def test_a_home_has_the_users_files_over_the_projects_over_the_domains(
    cast: Cast, django_assert_num_queries: Any
) -> None:
    domain = cast.project.domain
    for owner, words in ((domain, "domain"), (cast.project, "project"), (cast.alice, "alice")):
        save_dotfile(cast.dana if owner is not cast.alice else cast.alice, owner, ".bashrc", words)
        save_dotfile(cast.dana if owner is not cast.alice else cast.alice, owner, f".{words}", words)
    save_dotfile(cast.dana, domain, ".config/deep/file", "lost: the project has a file where the folder would be")
    save_dotfile(cast.dana, cast.project, ".config/deep", "kept", permission="755")
    add_ssh_key(cast.alice, KNOWN, name="laptop")
    set_bootstrap_script(cast.alice, "#!/bin/sh\r\necho hello\r\n")
    save_dotfile(cast.bob, cast.bob, ".bashrc", "bob")
    with django_assert_num_queries(1):
        home = home_of(cast)
    found = {file.path: (file.content, file.mode) for file in home.files}
    assert found == {
        ".bashrc": ("alice", 0o644),
        ".alice": ("alice", 0o644),
        ".project": ("project", 0o644),
        ".domain": ("domain", 0o644),
        ".config/deep": ("kept", 0o755),
        ".ssh/authorized_keys": (f"{KNOWN} laptop\n", 0o600),
    }
    assert home.bootstrap == "#!/bin/sh\necho hello\n"
    bobs = home_of(cast, cast.bob)
    assert {file.path: file.content for file in bobs.files}[".bashrc"] == "bob"
    assert not any(file.path.startswith(".ssh") for file in bobs.files)
    everybody = [Residents(one.pk, cast.project.pk, domain.pk) for one in (cast.alice, cast.bob)]
    with django_assert_num_queries(1):
        both = homes_of(everybody)
    assert both == {everybody[0]: home, everybody[1]: bobs}
    assert "kept" not in repr(home.files), "contents stay out of logs"


def test_an_empty_script_is_none_and_a_long_one_is_refused(cast: Cast) -> None:
    set_bootstrap_script(cast.alice, "echo hi")
    with pytest.raises(UserError, match="64 KiB"):
        set_bootstrap_script(cast.alice, "x" * (MOST_BYTES + 1))
    assert BootstrapScript.objects.get().content == "echo hi"
    set_bootstrap_script(cast.alice, " \n")
    assert home_of(cast) == Home()

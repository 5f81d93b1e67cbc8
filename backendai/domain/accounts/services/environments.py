"""Changes the SSH keys, dotfiles and scripts of people. The audit log does not record contents, which may be secret."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

from asyncssh import Error as AsyncSSHError
from asyncssh import validate_sshsig
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from django.db import IntegrityError, transaction
from django.utils import timezone

from backendai.base.core.errors import Conflict, NotAllowed, NotFound, UserError
from backendai.base.core.messages import Message
from backendai.base.core.names import clean_line
from backendai.base.core.slots import format_size
from backendai.base.paths.home_paths import clash, is_reserved, path_problem
from backendai.domain.accounts.models import BootstrapScript, Domain, Dotfile, Project, SshKey, User
from backendai.domain.accounts.roles import Action, check_domain, check_project
from backendai.domain.activity.services import audit

MOST_SSH_KEYS = 20
MOST_DOTFILES = 30
MOST_BYTES = 64 * 2**10
_PERMISSION = re.compile(r"[4-7][0-7]{2}\Z")

Owner = User | Project | Domain


def add_ssh_key(user: User, public_key: str, *, name: str = "", proof: str = "") -> SshKey:
    """Add a public key to the user's SSH keys.

    The default name is the key's comment. If other accounts have the key, a valid ``proof`` (signed with the private
    key) moves it to this user. Raises UserError, or Conflict (``ssh-key-of-another``: the proof is missing).
    """
    plain, fingerprint, comment = read_public_key(public_key)
    name = clean_line((name.strip() or comment.strip() or plain.partition(" ")[0])[:64])
    with transaction.atomic():
        own = SshKey.objects.visible_to(_held(user))
        there: SshKey | None = own.filter(fingerprint=fingerprint).first()
        if there is not None and not there.is_contested:
            raise Conflict("You have this key already.", field="public_key", code="ssh-key-exists")
        if there is None and own.count() >= MOST_SSH_KEYS:
            raise Conflict(
                "You have {most_ssh_keys} SSH keys already; delete one.",
                most_ssh_keys=MOST_SSH_KEYS,
                code="too-many-ssh-keys",
            )
        others = list(SshKey.objects.exclude(user=user).filter(fingerprint=fingerprint))
        if others or there is not None:
            _take(user, plain, others, proof)
        if there is not None:
            there.is_contested = False
            there.save(update_fields=["is_contested"])
            audit(user.pk, "ssh-key.prove", "ssh-key", [there.pk], name=there.name, fingerprint=fingerprint)
            return there
        key = SshKey(user=user, name=name, public_key=plain, fingerprint=fingerprint)
        _save_once(key, user)
        audit(user.pk, "ssh-key.create", "ssh-key", [key.pk], name=name, fingerprint=fingerprint)
    return key


def _take(user: User, public_key: str, others: list[SshKey], proof: str) -> None:
    """Delete the key from other accounts. Raises Conflict without a valid proof."""
    if not proof or not is_proved(public_key, user.email, proof[:LONGEST_PROOF]):
        raise _unproved(user)
    for key in others:
        audit(user.pk, "ssh-key.move", "ssh-key", [key.pk], fingerprint=key.fingerprint, holder=str(key.user_id))
    SshKey.objects.filter(pk__in=[key.pk for key in others]).delete()


def _save_once(key: SshKey, user: User) -> None:
    """Save a new key. Raises Conflict if another account has registered it in the meantime."""
    try:
        with transaction.atomic():
            key.save(force_insert=True)
    except IntegrityError:
        raise _unproved(user) from None


def _unproved(user: User) -> Conflict:
    text = Message(
        "Another account has this key. If it is yours, sign with it: echo '{text}' | ssh-keygen -Y sign "
        "-n {namespace} -f YOUR_KEY, and send the signature as the proof.",
        text=proof_text(user.email),
        namespace=PROOF_NAMESPACE,
    )
    return Conflict(text, field="proof", code="ssh-key-of-another")


def remove_ssh_key(user: User, key_id: object) -> None:
    """Delete an SSH key of the user. Running sessions keep it."""
    with transaction.atomic():
        key = SshKey.objects.visible_to(user).filter(pk=key_id).first()
        if key is None:
            raise NotFound("SSH key not found.")
        audit(user.pk, "ssh-key.delete", "ssh-key", [key.pk], name=key.name, fingerprint=key.fingerprint)
        key.delete()


def dotfiles_of(owner: Owner) -> Any:
    """Return the owner's dotfiles, ordered by path."""
    return Dotfile.objects.filter(**_as_field(owner)).order_by("path")


def save_dotfile(actor: User, owner: Owner, path: str, content: str, *, permission: str = "644") -> Dotfile:
    """Create or replace the owner's dotfile at this path.

    Raises UserError (path, permission, size), Conflict (another file is in the way, or too many files), or NotAllowed.
    """
    _check_actor(actor, owner)
    _check_file(path, content, permission)
    with transaction.atomic():
        _held(owner)
        others = [one for one in dotfiles_of(owner) if one.path != path]
        _check_room(others, path, content)
        values = {"permission": permission, "content": content, "updated_at": timezone.now()}
        file, made = Dotfile.objects.update_or_create(path=path, **_as_field(owner), defaults=values)
        _audit(actor, owner, "create" if made else "change", file)
    return file


def remove_dotfile(actor: User, owner: Owner, file_id: object) -> None:
    """Delete a dotfile of the owner. Running sessions keep it."""
    _check_actor(actor, owner)
    with transaction.atomic():
        file = dotfiles_of(owner).filter(pk=file_id).first()
        if file is None:
            raise NotFound("Dotfile not found.")
        _audit(actor, owner, "delete", file)
        file.delete()


def set_bootstrap_script(user: User, content: str) -> None:
    """Save the user's bootstrap script; an empty text deletes it."""
    content = _unix(content)
    size = len(content.encode())
    if size > MOST_BYTES or "\0" in content:
        text = Message(
            "A bootstrap script has at most {most_bytes} of text ({size} given).",
            most_bytes=format_size(MOST_BYTES),
            size=format_size(size),
        )
        raise UserError(text, field="content", code="too-long")
    with transaction.atomic():
        if content.strip():
            values = {"content": content, "updated_at": timezone.now()}
            BootstrapScript.objects.update_or_create(user=user, defaults=values)
        else:
            BootstrapScript.objects.filter(user=user).delete()
        audit(user.pk, "bootstrap-script.change", "user", [user.pk], bytes=size)


def size_of(path: str, content: str) -> int:
    """Return the size of a dotfile for the limit, in bytes: path and content."""
    return len(path.encode()) + len(content.encode())


def _unix(text: str) -> str:
    """Return the text with Unix line ends. Browsers send Windows ones, which shells misread."""
    return text.replace("\r\n", "\n")


def _check_actor(actor: User, owner: Owner) -> None:
    """Raise NotAllowed unless the actor may change the owner's dotfiles.

    Dotfiles of projects and domains run in the sessions of many people, so their own admins may not change them.
    """
    if isinstance(owner, Project):
        check_project(actor, Action.SET_DOTFILES, owner)
    elif isinstance(owner, Domain):
        check_domain(actor, Action.SET_DOTFILES, owner)
    elif owner.pk != actor.pk:
        raise NotAllowed("Only their owner can manage personal dotfiles.", code="not-allowed")


def _check_file(path: str, content: str, permission: str) -> None:
    if problem := path_problem(path):
        raise UserError(problem, field="path", code="invalid-path")
    if is_reserved(path):
        raise UserError("{path} is written by the platform itself.", path=path, field="path", code="reserved-path")
    if not _PERMISSION.match(permission):
        text = Message("Enter the permission as three octal digits; the owner must be able to read: 644, 600, 755.")
        raise UserError(text, field="permission", code="invalid-permission")
    if "\0" in content:
        raise UserError("A dotfile is text and cannot contain NUL.", field="content", code="invalid-content")


def _check_room(others: list[Dotfile], path: str, content: str) -> None:
    if len(others) >= MOST_DOTFILES:
        raise Conflict(
            "There are {most_dotfiles} dotfiles already; delete one.",
            most_dotfiles=MOST_DOTFILES,
            code="too-many-dotfiles",
        )
    if other := next((one for one in others if clash(one.path, path)), None):
        raise Conflict(
            "{path} is a file: it cannot be a directory too.", path=other.path, field="path", code="path-conflict"
        )
    size = size_of(path, content) + sum(size_of(one.path, one.content) for one in others)
    if size > MOST_BYTES:
        text = Message(
            "All dotfiles together may have {most_bytes}; with this one they would have {size}.",
            most_bytes=format_size(MOST_BYTES),
            size=format_size(size),
        )
        raise UserError(text, field="content", code="too-long", bytes=size, limit=MOST_BYTES)


def _held(owner: Any) -> Any:
    """Lock the owner's row until the transaction ends, and return the owner.

    So two requests cannot pass a limit together.
    """
    owner._meta.model.objects.select_for_update().filter(pk=owner.pk).first()
    return owner


def _as_field(owner: Owner) -> dict[str, Any]:
    return {_kind(owner): owner}


def _audit(actor: User, owner: Owner, action: str, file: Dotfile) -> None:
    audit(actor.pk, f"dotfile.{action}", "dotfile", [file.pk], path=file.path, owner=f"{_kind(owner)} {owner}")


def _kind(owner: Owner) -> str:
    # Not the type's name: the signed-in user is wrapped.
    return str(owner._meta.model_name)


LONGEST_KEY = LONGEST_PROOF = 8192
PROOF_NAMESPACE = "backendai"
LEAST_RSA_BITS = 2048
_KINDS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)


def read_public_key(text: str) -> tuple[str, str, str]:
    """Return type and content of the key, its fingerprint, and its comment.

    The fingerprint is as ``ssh-keygen -l`` prints it. Raises UserError for text that is not a strong public key, or has
    options before the key.
    """
    words = text.strip().split(None, 2)
    if "PRIVATE KEY" in text:
        raise _refused(
            Message("This is a private key: keep it to yourself. Paste the public one, of the file named .pub.")
        )
    if len(text) > LONGEST_KEY or len(text.strip().splitlines()) != 1 or len(words) < 2 or words[0] not in _KINDS:
        raise _refused(Message("Paste one public key on one line, beginning with one of {kinds}.", kinds=_KINDS[:5]))
    plain = f"{words[0]} {words[1]}"
    try:
        key = load_ssh_public_key(plain.encode())
        content = base64.b64decode(words[1], validate=True)
    except (ValueError, UnsupportedAlgorithm):
        raise _refused(Message("The key is damaged: copy the whole key again.")) from None
    if isinstance(key, RSAPublicKey) and key.key_size < LEAST_RSA_BITS:
        raise _refused(
            Message(
                "This RSA key has {key_size} bits; use at least {least_rsa_bits}, or an Ed25519 key.",
                key_size=key.key_size,
                least_rsa_bits=LEAST_RSA_BITS,
            )
        )
    digest = base64.b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return plain, f"SHA256:{digest}", words[2] if len(words) > 2 else ""


def proof_text(email: str) -> str:
    """Return the text that the holder of a key signs to prove ownership."""
    return f"This SSH key belongs to {email}."


def is_proved(public_key: str, email: str, signature: str) -> bool:
    """Return whether the signature (of ``ssh-keygen -Y sign``) proves that the account holds the key."""
    signers = f'* namespaces="{PROOF_NAMESPACE}" {public_key}\n'.encode()
    texts = (proof_text(email), f"{proof_text(email)}\n", f"{proof_text(email)}\r\n")  # as shells of all kinds pipe it
    try:
        return any(validate_sshsig(text.encode(), signature.strip().encode(), email, signers) for text in texts)
    except (ValueError, AsyncSSHError):
        return False


def _refused(text: str) -> UserError:
    return UserError(text, field="public_key", code="invalid-ssh-key")

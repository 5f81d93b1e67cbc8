"""Rules for names, shared by forms, REST and services."""

from __future__ import annotations

import re
import unicodedata

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message

FOLDERS = "folders"  # used by file clients instead of a session's name, to reach all folders of a user
_SHORTEST, _LONGEST = 4, 64
_ALLOWED = re.compile(r"^[A-Za-z0-9._-]+\Z")
_STARTS = re.compile(r"^[A-Za-z0-9]")
_ENDS = re.compile(r"[A-Za-z0-9]\Z")
_OWN_IMAGE_SHORTEST, _OWN_IMAGE_LONGEST = 4, 32
_OWN_IMAGE = re.compile(r"^[A-Za-z0-9_-]+\Z")
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
# Names that the platform sets, that select devices, or that the dynamic linker reads before a program starts.
_RESERVED = re.compile(r"^(?:BACKENDAI_|_BACKEND_|LD_|NVIDIA_|DOCKER_|(?:CUDA|ROCR|HIP)_VISIBLE_DEVICES\Z)")


# Invisible characters of other categories than Cf: fillers of Hangul, the empty pattern of Braille.
_FILLERS = frozenset("\u115f\u1160\u3164\uffa0\u2800")
_JOINERS = frozenset("\u200c\u200d")  # some scripts need these between letters
_UNSEEN = frozenset({"Cf", "Cn", "Co", "Mn", "Zs"})
_NOT_IN_A_LINE = frozenset({"Cc", "Cs", "Zl", "Zp"})


def clean_line(text: str, *, longest: int = _LONGEST, field: str = "name", of_person: bool = False) -> str:
    """Return a display name without surrounding spaces; it may be empty. Letters of all writing systems are allowed.

    Raises UserError if the name is too long, has several lines, or has invisible or direction-changing characters.
    Names of persons may contain direction-changing characters besides letters, as pages isolate these names.
    """
    line = text.strip()
    if len(line) > longest:
        raise UserError(
            "Use at most {longest} characters ({number} given).",
            longest=longest,
            number=len(line),
            field=field,
            code="invalid-name",
        )
    if any(unicodedata.category(letter) in _NOT_IN_A_LINE for letter in line):
        raise UserError("Use one line without control characters.", field=field, code="invalid-name")
    if not of_person and (hidden := next((letter for letter in line if is_hidden(letter)), None)):
        text = Message(
            "The name has an invisible character (U+{hidden}): delete it, or type the name again.",
            hidden=f"{ord(hidden):04X}",
        )
        raise UserError(text, field=field, code="invalid-name")
    if line and all(unicodedata.category(letter) in _UNSEEN for letter in line):
        raise UserError("The name cannot be seen: write a letter or a digit.", field=field, code="invalid-name")
    return line


def is_hidden(letter: str) -> bool:
    """Return whether the character is invisible or changes the direction of text."""
    return letter in _FILLERS or (unicodedata.category(letter) == "Cf" and letter not in _JOINERS)


def check_session_name(name: str, *, field: str = "name") -> str:
    """Return the name if it is allowed for a session. Else raises UserError that names the violated part of the rule.

    The rule: 4 to 64 letters, digits, dots, dashes and underscores, with a letter or digit at both ends, and not
    ``folders``.
    """
    if len(name) < _SHORTEST:
        raise UserError(
            "Use at least {shortest} characters ({number} given).",
            shortest=_SHORTEST,
            number=len(name),
            field=field,
            code="invalid-name",
        )
    if name == FOLDERS:
        raise UserError(
            "{name} is what folders are reached by: use another name.", name=name, field=field, code="reserved-name"
        )
    if len(name) > _LONGEST:
        raise UserError(
            "Use at most {longest} characters ({number} given).",
            longest=_LONGEST,
            number=len(name),
            field=field,
            code="invalid-name",
        )
    if not _ALLOWED.match(name):
        odd = next(letter for letter in name if not _ALLOWED.match(letter))
        what = Message("A space") if odd == " " else repr(odd)
        raise UserError(
            "{what} is not allowed: use letters a–z, digits, dot, dash and underscore.",
            what=what,
            field=field,
            code="invalid-name",
        )
    if not _STARTS.match(name):
        raise UserError("Begin with a letter or a digit.", field=field, code="invalid-name")
    if not _ENDS.search(name):
        raise UserError("End with a letter or a digit.", field=field, code="invalid-name")
    return name


def check_catalogue_name(name: str, *, field: str = "name", longest: int = _LONGEST) -> str:
    """Return the name if it is allowed for a preset or an alias. Else raises UserError.

    The rule: 1 to ``longest`` letters, digits, dots, dashes and underscores, with a letter or digit first.
    """
    if not name or len(name) > longest:
        raise UserError(
            "Use 1 to {longest} characters ({number} given).",
            longest=longest,
            number=len(name),
            field=field,
            code="invalid-name",
        )
    odd = next((letter for letter in name if not _ALLOWED.match(letter)), None)
    if odd is not None:
        raise UserError(
            "{odd} is not allowed: use letters a–z, digits, dot, dash and underscore.",
            odd=repr(odd),
            field=field,
            code="invalid-name",
        )
    if not _STARTS.match(name):
        raise UserError("Begin with a letter or a digit.", field=field, code="invalid-name")
    return name


def check_own_image_name(name: str, *, field: str = "name") -> str:
    """Return the name if it is allowed for an image saved from a session. Else raises UserError that names the violated
    part of the rule.

    The rule: 4 to 32 letters, digits, dashes and underscores.
    """
    if len(name) < _OWN_IMAGE_SHORTEST:
        text = Message(
            "Use at least {own_image_shortest} characters ({number} given).",
            own_image_shortest=_OWN_IMAGE_SHORTEST,
            number=len(name),
        )
        raise UserError(text, field=field, code="invalid-name", limit=_OWN_IMAGE_SHORTEST)
    if len(name) > _OWN_IMAGE_LONGEST:
        text = Message(
            "Use at most {own_image_longest} characters ({number} given).",
            own_image_longest=_OWN_IMAGE_LONGEST,
            number=len(name),
        )
        raise UserError(text, field=field, code="invalid-name", limit=_OWN_IMAGE_LONGEST)
    if not _OWN_IMAGE.match(name):
        odd = next(letter for letter in name if not _OWN_IMAGE.match(letter))
        what = Message("A space") if odd == " " else repr(odd)
        text = Message("{what} is not allowed: use letters a–z, digits, dash and underscore.", what=what)
        raise UserError(text, field=field, code="invalid-name")
    return name


def check_variable_name(name: str, *, field: str = "environ") -> str:
    """Return the name if users can set an environment variable with this name. Else raises UserError with the
    reason."""
    if not _VARIABLE.match(name):
        text = Message(
            "{name} is not a variable name: use A to Z, digits and underscore, no digit first.",
            name=repr(name[:_LONGEST]),
        )
        raise UserError(text, field=field, code="invalid-variable")
    if _RESERVED.match(name):
        raise UserError(
            "{name} is reserved: the platform sets it, or it acts on programs before they start. You can set it "
            "inside the session.",
            name=name,
            field=field,
            code="reserved-variable",
        )
    return name


_ARCHITECTURES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}


def architecture_name(name: str) -> str:
    """Return the canonical name of a machine architecture: ``x86_64``, ``aarch64``."""
    return _ARCHITECTURES.get(name.lower(), name.lower())

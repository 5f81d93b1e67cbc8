"""The names of the kinds of sessions on pages."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.functional import Promise

from backendai.base.core.session_kinds import KINDS
from backendai.base.texts.translation import gettext_lazy as _


@dataclass(frozen=True, slots=True)
class KindWords:
    """The texts of a kind of session.

    ``word``: inside a sentence; ``title``: of tabs and choices; ``help``: its description for a launch.
    """

    word: str | Promise
    title: str | Promise
    help: str | Promise = ""


_WORDS = {
    "interactive": KindWords(
        _("interactive"),
        _("Interactive"),
        _(
            "You work in it: a terminal, notebooks, other apps. It stays until you end it, or until it has been idle "
            "for longer than an administrator allows."
        ),
    ),
    "batch": KindWords(
        _("batch"),
        _("Batch"),
        _(
            "Runs one command and stops when it finishes. The log and the result are kept. It can start at a later "
            "time and end after a given one."
        ),
    ),
    "inference": KindWords(_("inference"), _("Inference")),
    "system": KindWords(_("file access"), _("File access")),
}


def words_of(name: str) -> KindWords:
    """Return the texts of a kind; without texts its internal name."""
    return _WORDS.get(name) or KindWords(name, name.capitalize())


def word_of(name: str) -> str | Promise:
    """Return the name of the kind inside a sentence."""
    return words_of(name).word


def kinds_to_launch() -> list[tuple[str, KindWords, bool, bool]]:
    """Return the kinds that people launch.

    Each has its name, its texts, whether it runs a program, and whether people work in it.
    """
    return [
        (kind.name, words_of(kind.name), kind.runs_program, kind.is_worked_in)
        for kind in KINDS.values()
        if kind.is_launched
    ]

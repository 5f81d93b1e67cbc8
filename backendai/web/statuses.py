"""How a status looks: a word, a colour beside it, and whether something is moving."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Appearance:
    """The word people read, the tone (busy, good, wait, bad, over) and whether a spinner turns."""

    word: str
    tone: str
    is_moving: bool = False


_LOOKS = {
    "PENDING": Appearance("Pending", "wait"),
    "SCHEDULED": Appearance("Scheduled", "busy", is_moving=True),
    "PREPARING": Appearance("Preparing", "busy", is_moving=True),
    "PULLING": Appearance("Pulling image", "busy", is_moving=True),
    "CREATING": Appearance("Creating", "busy", is_moving=True),
    "RUNNING": Appearance("Running", "good"),
    "TERMINATING": Appearance("Terminating", "over", is_moving=True),
    "TERMINATED": Appearance("Terminated", "over"),
    "CANCELLED": Appearance("Cancelled", "over"),
    "ERROR": Appearance("Error", "bad"),
    "ALIVE": Appearance("Alive", "good"),
    "LOST": Appearance("Lost", "bad"),
    "SUCCESS": Appearance("Success", "good"),
    "FAILURE": Appearance("Failure", "bad"),
    "FAILED": Appearance("Failed", "bad"),
    "EXPIRED": Appearance("Expired", "bad"),
    "GIVE_UP": Appearance("Given up", "bad"),
    "NEED_RETRY": Appearance("Trying again", "wait"),
    "STALE": Appearance("Stale", "over"),
    "SKIPPED": Appearance("Skipped", "over"),
}


def appearance_of(status: str) -> Appearance:
    """Return how a status appears; an unknown one keeps its own word in grey."""
    return _LOOKS.get(status) or Appearance(status.replace("_", " ").capitalize(), "over")

"""How a status looks: a word, a colour beside it, whether something is moving; and what its changes mean."""

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

_DEEDS = {
    "SCHEDULED": "An agent was chosen.",
    "PREPARING": "The agent makes room.",
    "PULLING": "The agent fetches the image.",
    "CREATING": "The agent makes the container.",
    "RUNNING": "It is ready to be used.",
    "TERMINATING": "It was asked to end.",
    "TERMINATED": "Its end is confirmed.",
    "CANCELLED": "It left the queue.",
}


def deed_of(from_status: str, to_status: str) -> str:
    """Return what a change of status means, in one sentence."""
    if not from_status:
        return "Launched."
    return _DEEDS.get(to_status, "") if from_status != to_status else ""


def appearance_of(status: str) -> Appearance:
    """Return how a status appears; an unknown one keeps its own word in grey."""
    return _LOOKS.get(status) or Appearance(status.replace("_", " ").capitalize(), "over")

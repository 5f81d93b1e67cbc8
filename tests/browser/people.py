"""Who visits the portal in these tests, with names that must come out as text."""

from __future__ import annotations

import json
from dataclasses import dataclass

ADMIN = "admin@example.com"
ALICE, CHARLIE = "alice@example.com", "charlie@example.com"
PASSWORD = "correct horse battery"

SCRIPT = "<script>document.title='owned'</script>"
RIGHT_TO_LEFT = "\N{RIGHT-TO-LEFT OVERRIDE}שלום gnp.exe"
EMOJI = "\N{TEST TUBE}" * 64


@dataclass(frozen=True)
class Tokens:
    """Bearer tokens of those who act by script too."""

    alice: str
    charlie: str


def tokens_in(printed: str) -> Tokens:
    """Return the tokens that ``make`` has printed."""
    return Tokens(**json.loads(printed.strip().splitlines()[-1]))


def make() -> None:
    """Write the people into the database of a platform and print their tokens. Runs inside ``manage.py shell``."""
    from backendai.accounts.models import User
    from backendai.accounts.services import create_person, create_token, get_or_create_project
    from backendai.catalog.models import Image

    admin = User.objects.get(email=ADMIN)
    admin.set_password(PASSWORD)
    admin.save()
    vision = get_or_create_project("default", EMOJI)
    other = get_or_create_project(SCRIPT, RIGHT_TO_LEFT)
    alice = create_person(ALICE, password=PASSWORD, project=vision, full_name=SCRIPT)
    charlie = create_person(CHARLIE, password=PASSWORD, project=other, full_name=RIGHT_TO_LEFT)
    Image.objects.exclude(name__in=["shell", "tiny"]).delete()
    Image.objects.filter(name="tiny").update(title=SCRIPT, description=EMOJI)
    Image.objects.filter(name="shell").update(title="Shell")
    tokens = {"alice": create_token(alice, SCRIPT)[1], "charlie": create_token(charlie, RIGHT_TO_LEFT)[1]}
    print(json.dumps(tokens))  # noqa: T201

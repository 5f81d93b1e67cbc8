"""Run as a program: makes a data folder ready for a platform under test and prints a bearer token.

Arguments: ``name=reference`` of every image to put into the catalogue. The platform's own images are taken out of
it, so that no platform under test builds them.
"""

from __future__ import annotations

import os
import sys

import django

ADMIN = "admin@example.com"
_SMALL = {"cpu": "0.1", "mem": str(16 * 2**20)}


def prepare(images: list[str]) -> str:
    """Bring the database up to date and return a token of the administrator."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "backendai.settings.portal"
    django.setup()
    from django.core.management import call_command

    from backendai.accounts.models import User
    from backendai.accounts.services import create_token
    from backendai.catalog.models import Image

    call_command("prepare", verbosity=0)
    Image.objects.filter(is_built_here=True).update(is_built_here=False)
    for name, reference in (image.split("=", 1) for image in images):
        Image.objects.update_or_create(name=name, defaults={"reference": reference, "minimum": _SMALL})
    return create_token(User.objects.get(email=ADMIN), "system tests")[1]


if __name__ == "__main__":
    print(prepare(sys.argv[1:]))

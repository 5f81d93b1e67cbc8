"""Run as a program: makes a data folder ready for a platform under test and writes a bearer token to the output.

Arguments: ``name=reference`` of every image to put into the catalogue. The platform's own images count as bought in, so
that no platform under test builds them.
"""

from __future__ import annotations

import os
import sys

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "backendai.settings.portal"
django.setup()

from django.conf import settings  # noqa: E402  (models need the set-up above)
from django.core.management import call_command  # noqa: E402

from backendai.domain.accounts.models import User  # noqa: E402
from backendai.domain.accounts.services import create_token  # noqa: E402
from backendai.domain.catalog.models import Image  # noqa: E402
from backendai.ops.run import up  # noqa: E402
from backendai.ops.run.data_folder import mark_prepared  # noqa: E402

_SMALL = {"cpu": "0.1", "mem": str(16 * 2**20)}


def prepare(images: list[str]) -> str:
    """Bring the database up to date and return a token of the first administrator."""
    call_command("prepare", verbosity=0)
    mark_prepared(settings.DATA_DIR, up.source_stamp())
    Image.objects.filter(is_built_here=True).update(is_built_here=False)
    for name, reference in (image.split("=", 1) for image in images):
        Image.objects.update_or_create(name=name, defaults={"reference": reference, "minimum": _SMALL})
    return create_token(User.objects.get(role=User.Role.SUPERADMIN), "system tests")[1]


if __name__ == "__main__":
    sys.stdout.write(f"{prepare(sys.argv[1:])}\n")

"""``manage.py build_images``: build the images of the catalogue that are made on this machine and are missing."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from backendai.ops.image_builds import build_missing


class Command(BaseCommand):
    help = "Build the images that the catalogue promises and this machine's engine does not have."

    def handle(self, *args: Any, **options: Any) -> None:
        log = settings.DATA_DIR / "logs" / "build-images.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        if build_missing(settings.BASE_DIR / "bin" / "build-images", log):
            raise SystemExit(1)

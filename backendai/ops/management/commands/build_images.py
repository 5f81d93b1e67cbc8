"""``manage.py build_images``: builds the missing images of the catalogue that are built on this machine."""

import signal
from argparse import ArgumentParser
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from backendai.base.core.command_help import DJANGOS_OWN
from backendai.ops.run.image_builds import Builder, BuildStopped, ImageWatch, build_missing


class Command(BaseCommand):
    help = "Build the platform's enabled images that this machine's container engine does not have."
    suppressed_base_arguments = DJANGOS_OWN

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--watch",
            action="store_true",
            help="run until stopped: retry failed builds, and build images on request of administrators in the portal",
        )
        parser.add_argument(
            "--may-run-natively",
            action="store_true",
            help="with --watch: while no image can be built, let a superadmin switch the agents of this data folder "
            "to native processes",
        )

        parser.add_argument(
            "--environments",
            type=Path,
            metavar="FOLDER",
            help="build the Python environment of native sessions in this folder instead of images",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        log = settings.DATA_DIR / "logs" / "build-images.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        environments = options["environments"]
        command = settings.BASE_DIR / "bin" / ("build-native" if environments else "build-images")
        builder = Builder(command, log, options["may_run_natively"], environments)
        signal.signal(signal.SIGTERM, _stop)
        signal.signal(signal.SIGINT, _stop)
        try:
            if options["watch"]:
                ImageWatch(builder, settings.DATA_DIR / "agents").run()
            elif build_missing(builder):
                raise SystemExit(1)
        except BuildStopped:
            return


def _stop(number: int, frame: FrameType | None) -> None:
    raise BuildStopped

"""``manage.py texts``: updates the translation catalogues to the texts of templates and code."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from backendai.base.core.command_help import DJANGOS_OWN
from backendai.ops.tools.texts.files import bring_up, languages, texts


class Command(BaseCommand):
    help = "Update locale/*/LC_MESSAGES/*.po and *.mo from the sources, and list texts without a translation."
    suppressed_base_arguments = DJANGOS_OWN
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Write the catalogues; translations of unchanged texts are kept."""
        found = texts()
        for language in languages():
            missing = bring_up(language, found)
            for message in missing:
                text = message.id if isinstance(message.id, str) else message.id[0]
                self.stdout.write(f"{language}: {text}")
            self.stdout.write(f"{language}: {len(missing)} missing of {len(found)}")

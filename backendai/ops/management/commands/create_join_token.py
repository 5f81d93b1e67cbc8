"""``manage.py create_join_token``: prints what a new node needs to join."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from backendai.cluster.agents import join_command
from backendai.cluster.models import ResourceGroup
from backendai.cluster.services import create_join_token


class Command(BaseCommand):
    help = "Print a join token for a new node, and the command to run there."
    requires_system_checks: list[str] = []  # they load every page, which takes as long as the rest

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--group", default="default")
        parser.add_argument("--name-prefix", default="")
        parser.add_argument("--reusable", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        group = ResourceGroup.objects.filter(name=options["group"]).first()
        if group is None:
            raise CommandError(f"There is no resource group {options['group']!r}.")
        token = create_join_token(group, name_prefix=options["name_prefix"], reusable=options["reusable"])
        self.stdout.write(token)
        self.stderr.write(f"On the new node: {join_command(token)}")

"""``manage.py create_join_token``: prints a join token with the command for a new agent."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from backendai.base.core.command_help import DJANGOS_OWN
from backendai.base.core.errors import UserError
from backendai.domain.cluster.agents import check_prefix, is_closed_to_others, join_command, portal_address
from backendai.domain.cluster.joining import create_join_token
from backendai.domain.cluster.models import ResourceGroup


class Command(BaseCommand):
    help = "Print a join token for a new agent, and the command to run on its machine."
    suppressed_base_arguments = DJANGOS_OWN
    requires_system_checks: list[str] = []  # they load every page, which takes as long as the rest

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--group", default="default", help="resource group of the agent (default: default)")
        parser.add_argument(
            "--name-prefix", default="", help="required prefix of the agent's name, such as gpu- (default: any name)"
        )
        parser.add_argument(
            "--reusable", action="store_true", help="let many agents join with the token (default: one agent, once)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        group = ResourceGroup.objects.filter(name=options["group"]).first()
        if group is None:
            raise CommandError(f"Resource group {options['group']!r} not found.")
        prefix = options["name_prefix"]
        try:
            check_prefix(prefix)
        except UserError as error:
            raise CommandError(error.message) from error
        token = create_join_token(group, name_prefix=prefix, reusable=options["reusable"])
        self.stdout.write(token)
        self.stderr.write(f"On the new machine: {join_command(token, name_prefix=prefix)}")
        address, is_guess = portal_address()
        if is_closed_to_others():
            self.stderr.write("This portal listens on 127.0.0.1 only: no other machine can join. Use --host 0.0.0.0.")
        elif is_guess:
            self.stderr.write(f"{address} is a guess; set BACKENDAI_PORTAL_URL if agents reach the portal elsewhere.")

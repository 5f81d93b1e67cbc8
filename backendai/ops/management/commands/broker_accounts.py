"""``manage.py broker_accounts``: creates the missing broker accounts of agents."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from backendai.base.core.command_help import DJANGOS_OWN
from backendai.base.wire.broker.accounts import BrokerAway, NoAccounts, Settled, account_name, nodes_with_accounts
from backendai.domain.cluster.broker_access import settle_broker_access, wanted_accounts
from backendai.domain.cluster.models import Agent


class Command(BaseCommand):
    help = "Create missing accounts of agents at the broker, delete superfluous ones, and list all."
    suppressed_base_arguments = DJANGOS_OWN

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="only check; exit status 1 if an account is missing")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            settled = Settled([], []) if options["check"] else settle_broker_access()
            there = nodes_with_accounts()
        except NoAccounts as error:
            raise CommandError(f"The broker lets the portal make no accounts: {error}") from error
        except BrokerAway as error:
            raise CommandError(f"The broker does not answer: {error}") from error
        wanted = wanted_accounts()
        for name in Agent.objects.registered().order_by("name").values_list("name", flat=True):
            self.stdout.write(f"{name:<32} {_state(name, wanted, there, settled)}")
        for name in settled.dropped:
            self.stdout.write(f"{name:<32} taken away")
        if missing := [name for name, digest in wanted.items() if there.get(name) != digest]:
            raise CommandError(f"{len(missing)} accounts are missing: {', '.join(sorted(missing))}")


def _state(name: str, wanted: dict[str, str], there: dict[str, str], settled: Settled) -> str:
    if name not in wanted:
        return "has not asked for an account (it works by polling, or was told another broker)"
    if there.get(name) != wanted[name]:
        return "missing"
    return account_name(name) + (" made" if name in settled.made else "")

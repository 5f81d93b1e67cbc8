"""All commands, each loaded when it is called."""

from __future__ import annotations

import click

from bai import VERSION
from bai.commands import account, admin, files, information, launching, reach, serving, sessions
from bai.state import State


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--profile", "profile_name", metavar="NAME", help="The profile to use (BAI_PROFILE).")
@click.option("-v", "--verbose", is_flag=True, help="Errors with their code and values; must come first.")
@click.version_option(VERSION, message="%(version)s")
@click.pass_context
def cli(ctx: click.Context, profile_name: str | None, verbose: bool) -> None:
    """Compute sessions, folders and endpoints of your portal.

    Exit codes: 0 done, 1 refused, 2 usage, 3 not found, 4 sign in, 5 the portal does not answer. `run`, `wait` and
    `ssh` end with the code of the program.
    """
    ctx.obj = State(profile_name or "", verbose)


for module in (sessions, launching, information, files, reach, serving, admin, account):
    for command in module.COMMANDS:
        cli.add_command(command)

"""All commands, each loaded when it is called."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from bai import VERSION
from bai.commands import account, admin, files, information, launching, reach, serving, sessions
from bai.state import State


class _Root(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; it ends quietly if nobody reads its output, as in ``bai ps | head``."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
            return code
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 141  # as after SIGPIPE, which would end a program for its sockets as well


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"]})
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

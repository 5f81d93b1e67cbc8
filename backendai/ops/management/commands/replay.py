"""``manage.py replay``: what other scheduling rules would have done with recorded sessions."""

from __future__ import annotations

import csv
import json
import os
import resource
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice, product
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from backendai.base.core.errors import UserError
from backendai.domain.cluster.models import ResourceGroup
from backendai.domain.forecasts.traces import FORMATS, MOST_JOBS, own_jobs
from backendai.domain.forecasts.what_if import added_agents, agents_of, run_what_if
from backendai.scheduler.forecasts.replay import Job, Outcome, replay
from backendai.scheduler.snapshot import AgentView, Rules
from backendai.scheduler.strategies import check_rules

_MOST_BYTES, _NICE = 2 * 2**30, 10
_FIGURES = ("jobs", "never", "wait_p50_s", "wait_p95_s", "wait_max_s", "used", "fairness", "moved")


class Command(BaseCommand):
    help = "Replays recorded sessions under other scheduling rules, and prints waits, use and fairness of each."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options of the command."""
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument("--own", metavar="DAYS", type=int, help="the sessions of this platform's last DAYS days")
        source.add_argument("--job", type=UUID, help="a job of the page What if, which gets the result")
        for name in FORMATS:
            source.add_argument(f"--{name}", metavar="FILE", help=f"a trace in the format {name}; - reads the input")
        parser.add_argument("--group", default="default", help="the resource group of --own and its agents (default)")
        parser.add_argument(
            "--agents", metavar="SPEC", action="append", default=[],
            help='agents, such as "16 x cpu=32,mem=128g,cuda.device=8"; with a leading + beside those of the group',
        )  # fmt: skip
        parser.add_argument("--strategy", default="fifo", help="one or several sequences: fifo,lifo,drf,fair-share")
        parser.add_argument("--backfill", default="off", help="off, on or both: on,off")
        parser.add_argument("--format", choices=("table", "json", "csv"), default="table")

    def handle(self, *args: Any, **options: Any) -> None:
        """Replay, and print one row for each policy."""
        if options["job"]:
            os.nice(_NICE)
            resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
            run_what_if(options["job"], timezone.now)
            return
        try:
            jobs = list(islice(_jobs(options), MOST_JOBS))
            agents = _agents(options)
            rows = [_row(name, outcome, jobs) for name, outcome in _outcomes(jobs, agents, options)]
        except (UserError, ValueError, OSError) as error:
            raise CommandError(str(getattr(error, "message", error))) from error
        for row in rows:
            row["moved"] = sum(1 for pk, at in row["starts"].items() if rows[0]["starts"].get(pk) != at)
        for row in rows:
            del row["starts"]
        self._print(rows, options["format"])

    def _print(self, rows: Sequence[dict[str, Any]], how: str) -> None:
        if how == "json":
            self.stdout.write(json.dumps(rows))
            return
        if how == "csv":
            writer = csv.DictWriter(self.stdout, ("policy", *_FIGURES))
            writer.writeheader()
            writer.writerows({name: row[name] for name in ("policy", *_FIGURES)} for row in rows)
            return
        self.stdout.write(f"{'':24}" + "".join(f"{row['policy']:>22}" for row in rows))
        for name in _FIGURES:
            self.stdout.write(f"{name:24}" + "".join(f"{row[name]!s:>22}" for row in rows))


def _outcomes(
    jobs: Sequence[Job], agents: Sequence[AgentView], options: dict[str, Any]
) -> Iterator[tuple[str, Outcome]]:
    for sequence, backfill in product(options["strategy"].split(","), options["backfill"].split(",")):
        if backfill not in ("on", "off"):
            raise CommandError("--backfill takes on, off or on,off.")
        rules = Rules(sequence=sequence, backfill=backfill == "on")
        check_rules(rules.sequence, rules.selection)
        yield f"{sequence}{' + backfill' if rules.backfill else ''}", replay(jobs, agents, rules)


def _row(policy: str, outcome: Outcome, jobs: Sequence[Job]) -> dict[str, Any]:
    used = ", ".join(f"{slot} {share:.0%}" for slot, share in sorted(outcome.used.items()) if share)
    waits = dict(zip(_FIGURES[2:5], (outcome.p50, outcome.p95, outcome.longest), strict=True))
    return {
        "policy": policy, "jobs": len(jobs), "never": outcome.never, "used": used, "starts": outcome.starts,
        "fairness": round(outcome.fairness, 3), **{name: round(value) for name, value in waits.items()},
    }  # fmt: skip


def _jobs(options: dict[str, Any]) -> Iterator[Job]:
    if options["own"] is not None:
        yield from own_jobs(_group(options), timezone.now() - timedelta(days=options["own"]))
        return
    name = next(name for name in FORMATS if options[name])
    if options[name] == "-":
        yield from FORMATS[name](sys.stdin)
        return
    with Path(options[name]).open(encoding="utf-8", errors="replace") as lines:
        yield from FORMATS[name](lines)


def _agents(options: dict[str, Any]) -> list[AgentView]:
    specs: list[str] = options["agents"]
    agents: list[AgentView] = []
    if not specs or any(spec.startswith("+") for spec in specs):
        agents = agents_of(_group(options), timezone.now())
    for spec in specs:
        agents += added_agents(spec.lstrip("+"))
    if not agents:
        raise CommandError("The group has no agents: name some by --agents.")
    return agents


def _group(options: dict[str, Any]) -> ResourceGroup:
    group = ResourceGroup.objects.filter(name=options["group"]).first()
    if group is None:
        raise CommandError(f"There is no resource group {options['group']!r}.")
    return group

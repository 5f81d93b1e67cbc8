"""Endpoints and pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from bai.commands.launching import logs
from bai.names import find, noun_argument
from bai.output import clean, columns, listing, show, show_one
from bai.sdk import api
from bai.sdk.call import Problem
from bai.state import State, pass_state
from bai.waiting import until_ended

_ENDPOINTS = columns(
    "*id name health ready requests_per_second *p95 url why",
    ready=lambda one: f"{one.ready}/{one.desired}",
    url=lambda one: one.data.get("program_url") or one.url,
    why=lambda one: (one.reason or {}).get("message"),
)
_RUNS = columns(
    "*id name kind status elements created_at why",
    elements=lambda one: _counted(one.counts),
    why=lambda one: one.waits or one.message,
)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {state}" for state, number in counts.items() if number)


@click.group()
def endpoint() -> None:
    """Inference endpoints."""


@endpoint.command("ls")
@listing
@pass_state
def endpoint_ls(state: State, output: str, quiet: bool) -> None:
    """List endpoints."""
    show(state.portal.each(api.endpoints()), _ENDPOINTS, output=output, quiet=quiet)


@endpoint.command("show")
@noun_argument("endpoint")
@listing
@pass_state
def endpoint_show(state: State, endpoint: str, output: str, quiet: bool) -> None:
    """Show one endpoint."""
    show_one(find(state.portal, "endpoint", endpoint), _ENDPOINTS, output=output, quiet=quiet)


@endpoint.command("token")
@noun_argument("endpoint")
@click.option("--name", default="bai", show_default=True, help="What the token is for.")
@click.option("--per-minute", type=int, help="The most requests in a minute.")
@pass_state
def endpoint_token(state: State, endpoint: str, name: str, per_minute: int | None) -> None:
    """Create a token that opens an endpoint, and print it this once."""
    found = find(state.portal, "endpoint", endpoint)
    told: dict[str, Any] = {"name": name} | ({"per_minute": per_minute} if per_minute else {})
    click.echo(state.portal.send(api.create_endpoint_token(found.id, **told))["token"])


@endpoint.command("logs")
@noun_argument("endpoint")
@click.option("-f", "--follow", is_flag=True, help="Go on until the replica ends.")
@click.option("--tail", type=int, metavar="LINES", help="The last lines only.")
@click.pass_context
def endpoint_logs(ctx: click.Context, endpoint: str, follow: bool, tail: int | None) -> None:
    """Write the output of the newest replica."""
    portal = ctx.ensure_object(State).portal
    found = find(portal, "endpoint", endpoint)
    sessions = [one["session"] for one in portal.each(api.replicas(found.id)) if one["session"]]
    if not sessions:
        raise Problem(404, {"code": "no-replica", "detail": f"{found.name} has no replica with a session."})
    ctx.invoke(logs, session=sessions[-1], follow=follow, tail=tail, kernel=None, app=None)


@click.group()
def pipeline() -> None:
    """Pipelines and arrays."""


@pipeline.command("ls")
@listing
@pass_state
def pipeline_ls(state: State, output: str, quiet: bool) -> None:
    """List runs, the newest first."""
    show(state.portal.each(api.runs()), _RUNS, output=output, quiet=quiet)


@pipeline.command("run")
@click.argument("document", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", help="A name for the run.")
@click.option("-p", "--parameter", multiple=True, metavar="NAME=VALUE", help="A parameter of the document.")
@click.option("--wait", "waits", is_flag=True, help="Wait for the end: exit code 0 if all succeeded.")
@pass_state
def pipeline_run(state: State, document: Path, name: str | None, parameter: tuple[str, ...], waits: bool) -> int:
    """Start a pipeline from a document in YAML or JSON; prints its ID."""
    told: dict[str, Any] = {"text": document.read_text()} | ({"name": name} if name else {})
    if parameter:
        told["parameters"] = {key: value for key, _, value in (one.partition("=") for one in parameter)}
    run = state.portal.send(api.start_run(**told))
    click.echo(run.id)
    return until_ended(state.portal, run) if waits else 0


@pipeline.command("status")
@noun_argument("run")
@listing
@pass_state
def pipeline_status(state: State, run: str, output: str, quiet: bool) -> None:
    """Show one run and its steps."""
    found = state.portal.send(api.run(find(state.portal, "run", run).id))
    show_one(found, _RUNS, output=output, quiet=quiet)
    if output in ("table", "wide") and not quiet:
        for step in found.steps:
            click.echo(clean(f"  {step['name']}: {_counted(step['counts'])} {step['message']}".rstrip()))


@pipeline.command("retry")
@noun_argument("run")
@click.option("--step", help="Only this step.")
@pass_state
def pipeline_retry(state: State, run: str, step: str | None) -> None:
    """Let failed and cancelled elements run again."""
    state.portal.send(api.retry_run(find(state.portal, "run", run).id, **({"step": step} if step else {})))


COMMANDS = [endpoint, pipeline]

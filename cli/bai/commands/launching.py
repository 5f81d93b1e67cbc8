"""Running programs: run, submit, logs."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from bai.launch_options import apply_options, launch_options
from bai.logs import follow_log
from bai.names import completing, find_session, noun_argument
from bai.running import CodeRun, Detached, order_for_file
from bai.scripts import Document, command_of, name_of, read_script
from bai.sdk import api
from bai.sdk.call import PASSING, Problem, Unreachable
from bai.sdk.nouns import Run, Session
from bai.state import State, pass_state, tell
from bai.waiting import until_ended, until_running, why_lines

_SIMPLE = {"cpu": 1, "mem": "512m"}


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("-c", "--code", help="Python to run instead of a file.")
@click.option("-s", "--session", help="Run in this session.", shell_complete=completing("session"))
@click.option("--keep", is_flag=True, help="Do not end the session that was started for it.")
@click.option("--plots", type=click.Path(file_okay=False, path_type=Path), help="Keep pictures in this folder.")
@launch_options
@pass_state
def run(
    state: State,
    /,
    file: Path | None,
    arguments: tuple[str, ...],
    code: str | None,
    session: str | None,
    keep: bool,
    plots: Path | None,
    **options: Any,
) -> int:
    """Run a file or code, with its output here.

    The session is started for it, unless --session names one, and ends with it. A .py file runs in the interpreter of
    the session, any other with bash. Options come before the file, its arguments behind it. The exit code is its own.
    """
    if (file is None) == (code is None):
        raise click.UsageError("Name a file, or write -c CODE.")
    portal, is_ours = state.portal, session is None
    found = find_session(portal, session, ended=False) if session else _launch_for_run(state, file, options)
    leaves_it = keep or not is_ours
    try:
        until_running(portal, found)
        order: dict[str, Any] = {"code": code}
        if file is not None:
            portal.send(api.put_session_file(found.id, file.name, content=file.read_bytes()))
            order = order_for_file(file.name, arguments)
        return CodeRun(portal, found.id, order, plots).follow()
    except Detached:
        leaves_it = True
        tell(f"It goes on in {found.name}.")
        return 0
    except (Problem, Unreachable) as error:  # a portal that is away ends nothing: the program goes on
        leaves_it |= isinstance(error, Unreachable) or error.status in PASSING or error.code == "closed"
        raise
    finally:
        if not leaves_it:
            portal.send(api.terminate(sessions=[found.id]))
        elif is_ours:
            tell(f"{found.name} stays: `bai rm {found.name}` ends it.")


def _launch_for_run(state: State, file: Path | None, options: dict[str, Any]) -> Session:
    usual: Document = {} if options.get("preset") else {"resources": dict(_SIMPLE)}
    document = apply_options({"image": "python", "type": "interactive", **usual}, options, state.profile)
    return state.portal.send(api.launch(**document))


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("script", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("-t", "--time", metavar="TIME", help="Time limit, as 30m or 8h.")
@click.option("-a", "--array", metavar="NUMBERS", help="Run it for each number: 100, 0-99%4, 1,3,5.")
@click.option("--after", multiple=True, metavar="SESSION", help="Start when this session has succeeded.")
@click.option("--strict", is_flag=True, help="Refuse lines that mean nothing here.")
@click.option("--dry-run", is_flag=True, help="Only say when it would start.")
@click.option("--wait", "waits", is_flag=True, help="Wait for the end; the exit code is its own.")
@click.option("--follow", is_flag=True, help="Show the output as well.")
@launch_options
@pass_state
def submit(
    state: State,
    /,
    script: Path,
    arguments: tuple[str, ...],
    strict: bool,
    dry_run: bool,
    waits: bool,
    follow: bool,
    **options: Any,
) -> int:
    """Submit a script as a batch session or array.

    Prints its ID. Lines `#BAI key: value` are keys of the launch document (image, cpu, mem, gpu, time, folder,
    resources.SLOT, env.NAME, …); without them #SBATCH lines count. Options come before
    the script, its arguments behind it.
    """
    text = click.open_file(str(script), encoding="utf-8").read()
    document, is_run = _document_of(
        text, script.name if script.name != "-" else "job.sh", arguments, options, state, strict
    )
    if dry_run:
        return _preview(state, document)
    if is_run:
        name = document.pop("name")
        started: Session | Run = state.portal.send(api.start_run(name=name, document=document))
    else:
        started = state.portal.send(api.launch(**document))
    click.echo(started.id)
    if follow and isinstance(started, Session):
        _when_it_runs(state, started)
        follow_log(state.portal, started.id, {}, tail=None)
    return until_ended(state.portal, started) if waits or follow else 0


def _document_of(
    text: str, name: str, arguments: tuple[str, ...], options: dict[str, Any], state: State, strict: bool
) -> tuple[Document, bool]:
    """Return the launch document of a script, and whether it is an array."""
    read = read_script(text, datetime.now(timezone.utc))
    for warning in read.warnings:
        tell(f"{name}, {warning}")
    if strict and read.warnings:
        raise click.ClickException("Nothing was submitted, as --strict was given.")
    is_new = read.document.get("version") is None
    usual: Document = {"image": "python", "name": name_of(name)} if is_new else {}
    document = {**usual, "type": "batch", **read.document}
    document.setdefault("startup_command", command_of(name, text, arguments, is_slurm=read.is_slurm))
    document["files"] = [*document.get("files", []), {"path": name, "content": text}]
    document = apply_options(document, options, state.profile)
    if "preset" not in document:
        document["resources"] = {**_SIMPLE, **document.get("resources", {})}
    is_run = "array" in document
    if is_run and document["type"] == "batch":
        del document["type"]
    return document, is_run


def _preview(state: State, document: Document) -> int:
    single = {key: value for key, value in document.items() if key not in ("array", "at_once")}
    answer = state.portal.send(api.preview(**{"type": "batch", **single}))
    for line in why_lines(answer):
        click.echo(line)
    return 1 if answer["verdict"] == "never" else 0


def _when_it_runs(state: State, session: Session) -> None:
    """Wait until there is output."""
    try:
        until_running(state.portal, session)
    except Problem:  # a short one has run already: its output is kept
        if not state.portal.send(api.session(session.id)).has_ended:
            raise


@click.command()
@noun_argument("session")
@click.option("-f", "--follow", is_flag=True, help="Go on until the program ends.")
@click.option("--tail", type=int, metavar="LINES", help="The last lines only.")
@click.option("--kernel", metavar="NAME", help="Another kernel than the main one, as sub1.")
@click.option("--app", metavar="NAME", help="What this app has written.")
@pass_state
def logs(state: State, session: str, follow: bool, tail: int | None, kernel: str | None, app: str | None) -> None:
    """Write the output of a session."""
    found = find_session(state.portal, session)
    query: dict[str, Any] = {"app": app} if app else {}
    if kernel:
        kernels = state.portal.send(api.session(found.id)).kernels
        match = [one["id"] for one in kernels if kernel in (one["hostname"], one["id"])]
        if not match:
            names = ", ".join(one["hostname"] for one in kernels)
            raise Problem(404, {"code": "no-kernel", "detail": f"{found.name} has no kernel {kernel}: it has {names}."})
        query["kernel"] = match[0]
    if follow and not app:
        _when_it_runs(state, found)
        follow_log(state.portal, found.id, query, tail=tail)
    else:
        sys.stdout.buffer.write(state.portal.send(api.log(found.id, tail=tail, **query)))


COMMANDS = [run, submit, logs]

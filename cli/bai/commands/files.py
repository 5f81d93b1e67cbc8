"""Files: copies to and from sessions and folders, and the folders themselves."""

from __future__ import annotations

import os
from pathlib import Path

import click

from bai.names import completing, find, find_own, find_session, noun_argument
from bai.output import columns, listing, show, show_one, size
from bai.sdk import api
from bai.sdk.call import Problem
from bai.sdk.client import Client
from bai.sdk.nouns import Folder, Session
from bai.state import State, pass_state
from bai.transfer import FolderFiles, SessionFiles

_FOLDERS = columns(
    "*id name rights used limit status owner *host *created_at",
    used=lambda one: size(one.used_bytes),
    limit=lambda one: size(one.limit_bytes) or "∞",
    owner=lambda one: one.owner or (one.data.get("project") or {}).get("name"),
)
_ENTRIES = columns(
    "name size",
    name=lambda one: one["name"] + ("/" if one["kind"] == "directory" else ""),
    size=lambda one: "" if one["kind"] == "directory" else size(one["size"]),
)


@click.group()
def folder() -> None:
    """Folders, which outlive sessions."""


@folder.command("ls")
@click.argument("place", required=False, metavar="[FOLDER[:PATH]]", shell_complete=completing("folder"))
@listing
@pass_state
def folder_ls(state: State, place: str | None, output: str, quiet: bool) -> None:
    """List folders, or what is in one."""
    if place is None:
        show(state.portal.each(api.folders(offered=True)), _FOLDERS, output=output, quiet=quiet)
        return
    name, _, path = place.partition(":")
    found, entries, told = find(state.portal, "folder", name), [], {"path": path.strip("/"), "limit": 1000}
    while told:
        page = state.portal.send(api.folder_entries(found.id, **told))
        entries += page["entries"]
        told = {**told, "after": page["next"]} if page.get("next") else {}
    show(entries, _ENTRIES, output=output, quiet=quiet)


@folder.command("create")
@click.argument("name")
@click.option("--limit", metavar="SIZE", help="The most it may hold, as 100g.")
@click.option("--project", metavar="ID", help="Create it for a project that you manage.")
@click.option("--host", help="The storage host.")
@listing
@pass_state
def folder_create(
    state: State, name: str, limit: str | None, project: str | None, host: str | None, output: str, quiet: bool
) -> None:
    """Create a folder."""
    told = {"limit_bytes": bytes_of(limit) if limit else None, "project": project, "host": host}
    made = state.portal.send(api.create_folder(name=name, **{key: one for key, one in told.items() if one is not None}))
    show_one(made, _FOLDERS, output=output, quiet=quiet)


@folder.command("rm")
@noun_argument("folder", "folders", nargs=-1, required=True)
@pass_state
def folder_rm(state: State, folders: tuple[str, ...]) -> None:
    """Move folders into the trash."""
    for one in [find_own(state.portal, "folder", name) for name in folders]:
        state.portal.send(api.delete_folder(one.id))


@folder.command("share")
@noun_argument("folder")
@click.argument("email")
@click.option("--rights", type=click.Choice(["view", "edit", "manage"]), default="view", show_default=True)
@pass_state
def folder_share(state: State, folder: str, email: str, rights: str) -> None:
    """Share a folder with a person."""
    found = find_own(state.portal, "folder", folder)
    state.portal.send(api.share_folder(found.id, email=email, rights=rights))


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("-r", "--recursive", is_flag=True, help="Directories with all that is in them.")
@click.option("--overwrite", is_flag=True, help="Replace files that exist in a folder.")
@pass_state
def cp(state: State, source: str, target: str, recursive: bool, overwrite: bool) -> None:
    """Copy a file from or to a session or folder: one side is NAME:PATH.

    `session:NAME:PATH` and `folder:NAME:PATH` say which of both is meant. Paths of sessions begin at the home folder.
    """
    remote_source, remote_target = _place_of(state.portal, source), _place_of(state.portal, target)
    if (remote_source is None) == (remote_target is None):
        raise click.UsageError("One side is a file here, the other NAME:PATH of a session or folder.")
    if remote_source is not None:
        files, path = remote_source
        local = Path(target)
        local = local / (Path(path).name or "files") if local.is_dir() and not recursive else local
        (files.download_all if recursive else files.download)(path, local)
        return
    assert remote_target is not None
    files, path = remote_target
    here = Path(source)
    if here.is_dir() and not recursive:
        raise click.UsageError(f"{source} is a directory: add -r.")
    if path.endswith("/") or not path:
        path += here.name
    if recursive and here.is_dir():
        files.upload_all(here, path, overwrite=overwrite)
    else:
        files.upload(here, path, overwrite=overwrite)


def _place_of(portal: Client, text: str) -> tuple[SessionFiles | FolderFiles, str] | None:
    """Return the files of a session or folder with the path; None for a path here."""
    kind, _, rest = text.partition(":")
    kind, text = (kind, rest) if kind in ("session", "folder") and ":" in rest else ("", text)
    name, colon, path = text.partition(":")
    if not colon or os.sep in name or Path(text).exists():
        return None
    found: Session | Folder
    try:
        found = find(portal, "folder", name) if kind == "folder" else find_session(portal, name, ended=False)
    except Problem as problem:
        if kind or problem.status != 404:
            raise
        found = find(portal, "folder", name)
    path = path.lstrip("/")
    return (SessionFiles(portal, found) if isinstance(found, Session) else FolderFiles(portal, found)), path


def bytes_of(text: str) -> int:
    """Return 512m or 100g as a number of bytes. Raises BadParameter."""
    number, unit = text[:-1], text[-1:].lower()
    if unit not in "kmgt" or not number.replace(".", "", 1).isdecimal():
        raise click.BadParameter(f"{text!r} is no size: write 512m or 100g.")
    return int(float(number) * 1024 ** ("kmgt".index(unit) + 1))


COMMANDS = [cp, folder]

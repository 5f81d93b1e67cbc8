"""Validates and stores text files of a launch, and returns them for the home folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from backendai.base.core.errors import UserError
from backendai.base.core.messages import Message
from backendai.base.core.slots import format_size
from backendai.base.db.bulk import among
from backendai.base.paths.home_paths import clash, is_reserved, path_problem
from backendai.base.wire.messages import HomeFile
from backendai.domain.accounts.models import User
from backendai.domain.compute.models import SessionFile
from backendai.domain.compute.spec import LaunchFile

MOST_FILES = 10
MOST_FILE_BYTES = 256 * 2**10
_FIELD = "files"
_PROGRAM = "#!"


def check_files(files: Sequence[LaunchFile]) -> None:
    """Raise UserError for too many or too large files, invalid paths, and content that is not text."""
    if len(files) > MOST_FILES:
        text = Message(
            "{number} files given; a session takes at most {most_files}.", number=len(files), most_files=MOST_FILES
        )
        raise UserError(text, field=_FIELD, code="too-many-files", limit=MOST_FILES)
    for number, file in enumerate(files):
        if problem := path_problem(file.path):
            raise UserError(
                "{path}: {problem}", path=repr(file.path[:64]), problem=problem, field=_FIELD, code="invalid-path"
            )
        if is_reserved(file.path):
            text = Message("{path} is written by the platform: choose another name.", path=file.path)
            raise UserError(text, field=_FIELD, code="reserved-path")
        if any(clash(file.path, other.path) for other in files[:number]):
            raise UserError("{path} is listed twice.", path=file.path, field=_FIELD, code="path-taken")
        if "\0" in file.content:
            raise UserError("{path} is not a text file.", path=file.path, field=_FIELD, code="not-text")
    check_total(sum(file.size for file in files))


def check_total(size: int) -> None:
    """Raise UserError if the total size of the files (bytes) exceeds the limit."""
    if size > MOST_FILE_BYTES:
        text = Message(
            "The files have {size}; a session takes at most {most_file_bytes}.",
            size=format_size(size),
            most_file_bytes=format_size(MOST_FILE_BYTES),
        )
        raise UserError(text, field=_FIELD, code="files-too-large", limit=MOST_FILE_BYTES)


def write_files(session_id: UUID, files: Iterable[LaunchFile]) -> None:
    """Insert a database row for each text file of a new session, in one statement."""
    SessionFile.objects.bulk_create(
        SessionFile(session_id=session_id, path=file.path, content=file.content) for file in files
    )


def launch_files_of(session_id: UUID | str, person: User) -> list[LaunchFile]:
    """Return the session's files sorted by path; empty unless ``person`` owns or launched the session."""
    rows = SessionFile.objects.filter(session=UUID(str(session_id)))
    own = rows.filter(session__owner=person) | rows.filter(session__launched_by=person)
    return [LaunchFile(path, content) for path, content in own.order_by("path").values_list("path", "content")]


def files_of_sessions(session_ids: Collection[UUID]) -> Mapping[UUID, list[HomeFile]]:
    """Return the files to write into the homes of these sessions, by session id. One query; none for no sessions."""
    found: dict[UUID, list[HomeFile]] = defaultdict(list)
    if session_ids:
        rows = SessionFile.objects.filter(session__in=among(list(session_ids))).order_by("path")
        for session_id, path, content in rows.values_list("session_id", "path", "content"):
            mode = 0o755 if content.startswith(_PROGRAM) else 0o644
            found[session_id].append(HomeFile(path=path, mode=mode, content=content))
    return found


def delete_files_of(owner: User) -> None:
    """Delete the files of all sessions of this user."""
    SessionFile.objects.filter(session__owner=owner).delete()


def with_dotfiles(own: Sequence[HomeFile], usual: Iterable[HomeFile]) -> list[HomeFile]:
    """Return the files to write: ``own``, and before them the dotfiles ``usual`` whose paths do not clash with
    ``own``."""
    return [*(file for file in usual if not any(clash(file.path, one.path) for one in own)), *own]

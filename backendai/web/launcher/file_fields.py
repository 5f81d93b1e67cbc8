"""Fields of the files that a batch session brings along: rows of a name and its text, or files that are sent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.utils.datastructures import MultiValueDict

from backendai.compute.services.session_files import MOST_FILE_BYTES, MOST_FILES, check_files, check_total
from backendai.compute.spec import LaunchFile
from backendai.core.errors import UserError
from backendai.core.session_kinds import KINDS
from backendai.core.slots import format_size
from backendai.texts.translation import gettext as _
from backendai.texts.translation import gettext_lazy
from backendai.web.launcher.checks import ignore_errors

UPLOAD = "upload"
PARTS = {"path": "path", "bytes": "length", "content": "content"}  # as they are sent, and of a row
_LONGEST_NAME = 64
_COMMANDS = {"py": "python {}", "sh": "bash {}", "bash": "bash {}", "r": "Rscript {}", "jl": "julia {}"}


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file as the form sends it. ``length`` are its bytes as text; without it and without content only its name is
    known, because a page's address keeps no contents."""

    path: str
    length: str = ""
    content: str = ""

    @property
    def size(self) -> int:
        """Its bytes: of its text, or as the page says where it left the text out."""
        said = int(self.length) if self.length.isascii() and self.length.isdigit() and len(self.length) < 10 else 0
        return len(self.content.encode()) or said

    @property
    def is_there(self) -> bool:
        """Whether more than its name is known."""
        return bool(self.length or self.content)


class FileRows(forms.Widget):
    """Reads ``<name>.path``, ``<name>.bytes`` and ``<name>.content``, each sent once per row; the last may be left out
    of all rows."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[FileRow]:
        """Return the rows that have a name or a text."""
        columns = [data.getlist(f"{name}.{part}") for part in PARTS]
        rows = [FileRow(path.strip(), size, unix(text)) for path, size, text in zip_longest(*columns, fillvalue="")]
        return [row for row in rows if row.path or row.content]

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """Return whether the form had no such rows at all."""
        return f"{name}.path" not in data


class FilesField(forms.Field):
    """Becomes the files of a ``SessionSpec``."""

    widget = FileRows

    def clean(self, value: list[FileRow]) -> list[LaunchFile]:
        """Return the files; refuses what the services refuse, and one of which only the name is known."""
        if missing := [row.path for row in value if not row.is_there]:
            text = _("Files are not kept in the address: choose %(names)s again.")
            raise ValidationError(text % {"names": ", ".join(missing)}, code="missing-file")
        files = [LaunchFile(row.path, row.content) for row in value]
        try:
            check_files(files)
            check_total(sum(row.size for row in value))
        except UserError as error:
            raise ValidationError(error.message, code=error.code) from error
        return files


class FileFields(forms.Form):
    """The files, at most so many with at most so many bytes."""

    files: Any = FilesField(required=False, label=gettext_lazy("Files"))
    faults_of_uploads: Sequence[str] = ()

    def take_uploads(self, sent: MultiValueDict[str, str], uploads: Iterable[Any]) -> None:
        """Make rows of files that came with the form, and suggest the command that runs the first if there is none."""
        faults = []
        for upload in uploads:
            try:
                row = _read(upload)
            except ValidationError as error:
                faults.append(error.messages[0])
                continue
            for part, name in PARTS.items():
                sent.appendlist(f"files.{part}", getattr(row, name))
            if not sent.get("startup_command", "").strip():
                sent["startup_command"] = suggested_command(row.path)
        self.faults_of_uploads = faults

    def clean(self) -> dict[str, Any] | None:
        """Refuse what came and is no text; an interactive session brings no files."""
        data = super().clean()
        for text in self.faults_of_uploads:
            self.add_error("files", text)
        if (kind := KINDS.get(self.cleaned_data.get("session_type", ""))) and not kind.runs_program:
            ignore_errors(self, "files")
        return data

    def brought_files(self) -> Sequence[LaunchFile]:
        """Return the files of a valid form."""
        return cast(Sequence[LaunchFile], self.cleaned_data["files"] or ())

    def file_rows(self) -> list[FileRow]:
        """Return the files so far, right or wrong."""
        return [row for row in self["files"].value() or () if row.path or row.content]

    def file_rules(self) -> dict[str, Any]:
        """Return what the page and its script have to know of files."""
        return {
            "most": MOST_FILES,
            "bytes": MOST_FILE_BYTES,
            "size": format_size(MOST_FILE_BYTES),
            "commands": json.dumps(_COMMANDS),
            "longest": _LONGEST_NAME,
        }


def rows_of_files(files: Iterable[LaunchFile]) -> list[FileRow]:
    """Return files that are known as the form shows them."""
    return [FileRow(file.path, str(file.size), file.content) for file in files]


def suggested_command(path: str) -> str:
    """Return the command that runs such a file; empty when its name does not tell."""
    return _COMMANDS.get(path.rpartition(".")[2].lower(), "").format(path)


def safe_name(name: str) -> str:
    """Return the name of a file as a shell reads it without quotes; the script of the page does the same."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name.replace("\\", "/").rpartition("/")[2]).lstrip(".-")
    return plain[-_LONGEST_NAME:].lstrip(".-") or "file.txt"


def unix(text: str) -> str:
    """Return lines that end as a shell reads them: browsers send others."""
    return text.replace("\r\n", "\n")


def _read(upload: Any) -> FileRow:
    name = safe_name(upload.name or "")
    if upload.size > MOST_FILE_BYTES:
        values = {"name": name, "size": format_size(upload.size), "most": format_size(MOST_FILE_BYTES)}
        raise ValidationError(_("%(name)s has %(size)s; a session takes at most %(most)s.") % values)
    try:
        content = unix(upload.read().decode("utf-8-sig"))
    except UnicodeDecodeError:
        content = "\0"
    if "\0" in content:
        raise ValidationError(_("%(name)s is not a text file in UTF-8.") % {"name": name})
    return FileRow(name, str(len(content.encode())), content)

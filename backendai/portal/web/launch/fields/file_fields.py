"""Fields of the launch files of a batch session: rows with a name and a text, or uploads."""

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

from backendai.base.core.errors import UserError
from backendai.base.core.session_kinds import KINDS
from backendai.base.core.slots import format_size
from backendai.base.texts.translation import gettext as _
from backendai.base.texts.translation import gettext_lazy
from backendai.domain.compute.services.requests.session_files import (
    MOST_FILE_BYTES,
    MOST_FILES,
    check_files,
    check_total,
)
from backendai.domain.compute.spec import LaunchFile
from backendai.portal.web.launch.steps import ignore_errors

UPLOAD = "upload"
PARTS = {"path": "path", "bytes": "length", "content": "content"}  # as they are sent, and of a row
_LONGEST_NAME = 64
# Of the home folder: a command may start in a mounted one.
_COMMANDS = {"py": "python ~/{}", "sh": "bash ~/{}", "bash": "bash ~/{}", "r": "Rscript ~/{}", "jl": "julia ~/{}"}


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file as the form sends it.

    ``length`` is its number of bytes as text. Without length and content only its name is known, as a page's address
    holds no contents.
    """

    path: str
    length: str = ""
    content: str = ""

    @property
    def size(self) -> int:
        """The size in bytes: of the content, or else ``length``."""
        said = int(self.length) if self.length.isascii() and self.length.isdigit() and len(self.length) < 10 else 0
        return len(self.content.encode()) or said

    @property
    def is_there(self) -> bool:
        """Whether the file's content or length is known."""
        return bool(self.length or self.content)


class FileRows(forms.Widget):
    """Reads ``<name>.path``, ``<name>.bytes`` and ``<name>.content``, each sent once per row.

    The last may be missing in all rows.
    """

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[FileRow]:
        """Return the rows with a name or a content."""
        columns = [data.getlist(f"{name}.{part}") for part in PARTS]
        rows = [FileRow(path.strip(), size, unix(text)) for path, size, text in zip_longest(*columns, fillvalue="")]
        return [row for row in rows if row.path or row.content]

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        """Return whether the form data has no such rows."""
        return f"{name}.path" not in data


class FilesField(forms.Field):
    """A field whose value is the files of a ``SessionSpec``."""

    widget = FileRows

    def clean(self, value: list[FileRow]) -> list[LaunchFile]:
        """Return the files. Raises ValidationError for invalid files, and for files without content."""
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
    """The launch files, limited in number and size."""

    files: Any = FilesField(required=False, label=gettext_lazy("Files"))
    faults_of_uploads: Sequence[str] = ()

    def take_uploads(self, sent: MultiValueDict[str, str], uploads: Iterable[Any]) -> None:
        """Add uploaded files to the form data as rows.

        Suggests the command that runs the first, if there is no command.
        """
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
        """Add errors for uploads that are no text. Ignores errors of files for kinds that bring no files."""
        data = super().clean()
        for text in self.faults_of_uploads:
            self.add_error("files", text)
        if (kind := KINDS.get(self.cleaned_data.get("session_type", ""))) and not kind.runs_program:
            ignore_errors(self, "files")
        return data

    def brought_files(self) -> Sequence[LaunchFile]:
        """Return the launch files entered in a valid form; empty if there are none."""
        return cast(Sequence[LaunchFile], self.cleaned_data["files"] or ())

    def file_rows(self) -> list[FileRow]:
        """Return the entered files, valid or not."""
        return [row for row in self["files"].value() or () if row.path or row.content]

    def file_rules(self) -> dict[str, Any]:
        """Return the limits and commands for files, for the page and its script."""
        return {
            "most": MOST_FILES,
            "bytes": MOST_FILE_BYTES,
            "size": format_size(MOST_FILE_BYTES),
            "commands": json.dumps(_COMMANDS),
            "longest": _LONGEST_NAME,
        }


def rows_of_files(files: Iterable[LaunchFile]) -> list[FileRow]:
    """Return rows of the form for these files."""
    return [FileRow(file.path, str(file.size), file.content) for file in files]


def suggested_command(path: str) -> str:
    """Return the command that runs such a file; empty for an unknown extension."""
    return _COMMANDS.get(path.rpartition(".")[2].lower(), "").format(path)


def safe_name(name: str) -> str:
    """Return the file name without characters that a shell would need quoted. The page's script does the same."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name.replace("\\", "/").rpartition("/")[2]).lstrip(".-")
    return plain[-_LONGEST_NAME:].lstrip(".-") or "file.txt"


def unix(text: str) -> str:
    """Return the text with Unix line ends, as browsers send Windows ones."""
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

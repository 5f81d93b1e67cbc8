"""Lists and changes the entries of a folder for a person. The contents of files never pass the portal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from backendai.domain.accounts.models import User
from backendai.domain.storage.file_server import FileServerClient
from backendai.domain.storage.models import Folder
from backendai.domain.storage.services.tickets import ready_folder
from backendai.domain.storage.status import Rights

Answer = dict[str, Any]


def open_folder(user: User, folder: Folder, *, to_edit: bool = False) -> FolderFiles:
    """Return the files of a ready folder. Raises NotFound, NotAllowed or Conflict if the user may not view them, or
    with ``to_edit`` change them. One query."""
    rights: Literal["view", "edit"] = "edit" if to_edit else "view"
    return FolderFiles(ready_folder(user, folder, Rights(rights)), rights, user.email)


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """The entries of one folder. Every method is one request to the file server and returns its answer.

    Raises FileServerError for a refusal, StorageSilent without an answer in time. A path is relative to the folder, ''
    its root.
    """

    folder: Folder
    rights: Literal["view", "edit"]
    account: str

    def entries(self, query: Mapping[str, Any]) -> Answer:
        """Return one page of a directory: ``path`` or ``raw_path``, ``limit``, ``after``, ``sort``, ``order``."""
        return self._ask("GET", "/entries", query=query)

    def entry(self, query: Mapping[str, Any]) -> Answer:
        """Return one file or directory: ``path`` or ``raw_path``."""
        return self._ask("GET", "/entry", query=query)

    def make_directory(self, path: str) -> Answer:
        """Make a directory and return it."""
        return self._ask("POST", "/directories", body={"path": path})

    def move(self, source: str, target: str, *, overwrite: bool = False, keep_both: bool = False) -> Answer:
        """Move a file or directory to another path; returns the path, which with ``keep_both`` may have a number."""
        body = {"source": source, "target": target, "overwrite": overwrite, "keep_both": keep_both}
        return self._ask("POST", "/moves", body=body)

    def copy(self, source: str, target: str, *, overwrite: bool = False, keep_both: bool = False) -> Answer:
        """Copy a file or directory; see ``move``. The answer to a long copy contains its ``operation``."""
        body = {"source": source, "target": target, "overwrite": overwrite, "keep_both": keep_both}
        return self._ask("POST", "/copies", body=body)

    def delete(self, paths: Sequence[str]) -> Answer:
        """Put files and directories into the trash of the folder; the answer is an ``operation`` if it takes long."""
        return self._ask("POST", "/deletions", body={"paths": list(paths)})

    def operation(self, operation: str) -> Answer:
        """Return the progress of an operation, and its result or error when it has ended. Waits up to 2 s for its
        end."""
        return self._ask("GET", f"/operations/{quote(operation, safe='')}")

    def stop(self, operation: str) -> Answer:
        """Stop an operation and return its progress."""
        return self._ask("DELETE", f"/operations/{quote(operation, safe='')}")

    def trash(self, after: str | None = None) -> Answer:
        """Return one page of the folder's own trash."""
        return self._ask("GET", "/trash", query={"after": after})

    def restore(self, item: str, *, overwrite: bool = False, keep_both: bool = False) -> Answer:
        """Restore an item of the trash to its earlier path; see ``move``."""
        body = {"overwrite": overwrite, "keep_both": keep_both}
        return self._ask("POST", f"/trash/{quote(item, safe='')}/restore", body=body)

    def forget(self, item: str) -> None:
        """Delete an item of the trash for good."""
        self._ask("DELETE", f"/trash/{quote(item, safe='')}")

    def empty_trash(self) -> None:
        """Delete everything in the trash for good."""
        self._ask("DELETE", "/trash")

    def _ask(
        self, method: str, path: str, *, query: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None
    ) -> Answer:
        folder = self.folder
        return FileServerClient(folder.host).call(
            method,
            f"/v1/folders/{folder.pk}{path}",
            folder_id=folder.pk,
            version=folder.version,
            rights=self.rights,
            account=self.account,
            query=query,
            body=body,
        )

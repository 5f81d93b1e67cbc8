"""Joins the scripts and styles that pages load together: a page asks for a few files instead of fifty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.files.base import ContentFile
from whitenoise.storage import CompressedManifestStaticFilesStorage

# The files of each bundle in the order of loading, with their folder unless it is ``css`` or ``js``.
STYLES: Mapping[str, str] = {
    "page": "vendor/tabler.min theme layout pieces meters tables forms bell cards",
    "session": "session session-panel usage log history apps",
    "console": "log console",
    "sessions": "sessions runs choosing",
    "launch": "launch launch-steps environment recent review allocation launch-files",
}
SCRIPTS: Mapping[str, str] = {
    "page": "page times",
    "signed-in": "events bell cards announcements search",
    "session": "steady-socket screen log-lines log-find log session-boxes session-live plots",
    "xterm": "vendor/xterm vendor/xterm-fit vendor/xterm-webgl vendor/xterm-search vendor/xterm-web-links"
    " vendor/xterm-unicode11",
    "terminal": "recording terminal session",
    "sessions": "choosing columns sessions session-drawer log-box",
    "launch": "allocation environment launch-address batch matrix roles ports launch-files launch-folders"
    " launch-editor launch-faults launch launch-open recent",
    "console": "log-lines steady-socket console-output console-notebook console-cells console-completion"
    " console-orders console",
}


def addresses_of(bundles: Mapping[str, str], name: str, kind: str) -> list[str]:
    """Return the addresses to load: of the bundle, or of each file where none were joined. ``kind``: css or js."""
    joined = isinstance(staticfiles_storage, BundledStorage)
    names = [f"{kind}/bundle-{name}.{kind}"] if joined else _parts(bundles[name], kind)
    return [staticfiles_storage.url(each) for each in names]


def _parts(bundle: str, kind: str) -> list[str]:
    return [f"{part}.{kind}" if "/" in part else f"{kind}/{part}.{kind}" for part in bundle.split()]


class BundledStorage(CompressedManifestStaticFilesStorage):
    """Assets under names with their digest, compressed, with a file ``css/bundle-NAME.css`` or ``js/…`` per bundle."""

    def post_process(self, paths: dict[str, Any], dry_run: bool = False, **options: Any) -> Iterator[Any]:
        """Write the bundles, then the copies of all files under their names with digests."""
        for bundles, kind in () if dry_run else ((STYLES, "css"), (SCRIPTS, "js")):
            for bundle, parts in bundles.items():
                name = f"{kind}/bundle-{bundle}.{kind}"
                self.delete(name)
                texts = [Path(self.path(part)).read_text() for part in _parts(parts, kind)]
                self.save(name, ContentFile("\n".join(texts)))
                paths[name] = (self, name)
        yield from super().post_process(paths, dry_run, **options)

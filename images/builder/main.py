"""The command: decide what is missing, get a root image, build, and say all along what is going on."""

from __future__ import annotations

import argparse
import errno
import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from images.builder import debootstrap, recipes, site_config
from images.builder.command import clean_up_on_sigterm, open_log
from images.builder.engine import find_engine, run_command
from images.builder.outcome import explain_failure, read_step
from images.builder.progress import Failure, Progress
from images.builder.recipes import BASE, IMAGES, Recipe

REGISTRY_ROOT = "debian:bookworm-slim"
REGISTRY_DISTRO = site_config.Distribution("debian", "12", "bookworm")
NEEDED_BYTES = 3 * 1024**3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = _parse(arguments)
    clean_up_on_sigterm()
    progress = Progress(sys.stdout, machine=options.progress)
    try:
        with open_log(options.log) as log, _one_at_a_time(progress):
            Build(options, progress, log).run()
    except Failure as failure:
        progress.failed(failure)
    except KeyboardInterrupt:
        progress.failed(Failure("stopped", "The build was stopped.", "Retry the build: finished steps are kept."))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        progress.failed(
            Failure("disk-full", f"No space is left: {error}", "Free space on that disk, then retry the build.")
        )
    else:
        return 0
    return 1


class Build:
    """One run of the command."""

    def __init__(self, options: argparse.Namespace, progress: Progress, log: TextIO) -> None:
        self.options, self.progress, self.log = options, progress, log
        self.engine = find_engine(log)
        self.distribution = site_config.read_distribution()
        self.sources = site_config.read_apt_sources(self.distribution.suite)

    def run(self) -> None:
        """Build what is missing or out of date."""
        wanted = self._choose()
        if not wanted:
            self.progress.done("The images are up to date.")
            return
        self._check_space()
        self.progress.plan([*([recipes.ROOT] if BASE in wanted else []), *(recipe.phase for recipe in wanted)])
        before = [(self.engine.image_id(recipe.reference), recipe.reference) for recipe in wanted]
        with tempfile.TemporaryDirectory(prefix="backendai-build-") as folder:
            for recipe in wanted:
                self._build(recipe, Path(folder))
        for image_id, reference in reversed(before):  # children first
            if image_id:
                self.engine.remove_replaced(image_id, reference)
        self.progress.done(f"Built {' and '.join(recipe.reference for recipe in wanted)}.")

    def _choose(self) -> list[Recipe]:
        """Return the images to build, parents first: none is built on a parent that is out of date."""
        only, force = self.options.only, self.options.force
        chosen: list[Recipe] = []
        usual = [recipe for recipe in recipes.RECIPES.values() if recipe.is_usual]
        for recipe in recipes.RECIPES[only].line() if only else usual:
            is_forced = force and only in (None, recipe.name)
            if is_forced or recipe.parent in chosen or self._is_stale(recipe):
                chosen.append(recipe)
        return chosen

    def _is_stale(self, recipe: Recipe) -> bool:
        return not recipes.is_current(recipe, self.engine.labels(recipe.reference), self.options.base)

    def _check_space(self) -> None:
        space = self.engine.free_space()
        if space and space[1] < NEEDED_BYTES:
            free, need = (f"{amount / 1024**3:.1f} GB" for amount in (space[1], NEEDED_BYTES))
            sentence = f"{space[0]} has {free} free; the build needs {need}."
            raise Failure("disk-full", sentence, "Free space there (docker system df shows what Docker holds).")

    def _build(self, recipe: Recipe, folder: Path) -> None:
        arguments = {"BASE": recipe.parent.reference} if recipe.parent else self._get_root()
        labels = {recipes.SOURCE_LABEL: recipe.source()}
        if recipe.parent is None:
            labels[recipes.ROOT_LABEL] = "registry" if arguments["ROOT"] == REGISTRY_ROOT else "debootstrap"
        rooted = (self.engine.labels(recipe.parent.reference) or {}) if recipe.parent else labels
        secrets = site_config.write_secrets(folder, self._sources_for(rooted), os.environ)
        self.progress.begin(recipe.name, "starting")
        status, tail = self.engine.build(
            recipe.folder, recipe.reference, arguments, labels, secrets, self._follow, fresh=self.options.force
        )
        if status != 0:
            raise explain_failure(f"{recipe.name}: the build failed", tail, self.options.log)

    def _sources_for(self, labels: dict[str, str]) -> list[site_config.AptSource]:
        """Return the machine's package sources if they suit the root image: its own distribution and release."""
        foreign = labels.get(recipes.ROOT_LABEL) == "registry" and self.distribution.suite != REGISTRY_DISTRO.suite
        return [] if foreign else self.sources

    def _get_root(self) -> dict[str, str]:
        """Have a root image on the engine; return the arguments of the base image that name it."""
        self.progress.begin("root", f"asking for {REGISTRY_ROOT}")
        if self.options.base != "debootstrap":
            known = self.engine.labels(REGISTRY_ROOT) is not None and not self.options.force
            if known or self.engine.pull(REGISTRY_ROOT, self._follow):
                return {"ROOT": REGISTRY_ROOT, "DISTRO": REGISTRY_DISTRO.id + REGISTRY_DISTRO.version}
            if self.options.base == "registry":
                fix = "Give Docker a registry mirror (registry-mirrors in its daemon.json), or use --base debootstrap."
                raise Failure("no-network", f"No registry gave {REGISTRY_ROOT}.", fix)
        return self._make_root()

    def _make_root(self) -> dict[str, str]:
        distribution = self.distribution
        tag = f"local/backendai-{distribution.id or 'debian'}:{distribution.suite or 'none'}"
        if self.options.force or self.engine.labels(tag) is None:
            self._debootstrap(tag)
        return {"ROOT": tag, "DISTRO": distribution.id + distribution.version}

    def _debootstrap(self, tag: str) -> None:
        reason = f"No registry gives {REGISTRY_ROOT}, and a root image cannot be made here"
        mirror = debootstrap.find_mirror(reason, self.distribution, self.sources)
        keyring = debootstrap.keyring_of(mirror, self.distribution)
        proxy = site_config.apt_proxy()
        environ = self.engine.environ | ({"http_proxy": proxy} if proxy else {})
        self.progress.say("root: no registry answers, making a root image from packages")
        # /var/tmp: what is fetched is run from there, and /tmp is often mounted noexec.
        with tempfile.TemporaryDirectory(prefix="backendai-debootstrap-", dir="/var/tmp") as name:
            found = debootstrap.provide_debootstrap(reason, Path(name), mirror, environ, self.log, self._follow)
            command = [str(IMAGES / "debian" / "build"), tag, self.distribution.suite, mirror.uris[0]]
            command += [",".join(mirror.components), keyring]
            status, tail = run_command(command, found, self.log, self._follow)
        if status != 0:
            raise explain_failure("Making the root image failed", tail, self.options.log)

    def _follow(self, line: str) -> None:
        step = read_step(line)
        if step:
            self.progress.step(*step)
        self.progress.count_line()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    usual = [each.reference for each in recipes.RECIPES.values() if each.is_usual]
    parser = argparse.ArgumentParser(
        prog="build-images",
        description=f"Build {', '.join(usual)}, unless up to date.",
    )
    parser.add_argument("--only", choices=sorted(recipes.RECIPES), help="this image (and its parent, if out of date)")
    parser.add_argument(
        "--base",
        choices=("auto", "registry", "debootstrap"),
        default="auto",
        help=f"where the root image comes from: {REGISTRY_ROOT} from a registry, or this machine's package mirror "
        "(auto: the mirror when no registry answers)",
    )
    parser.add_argument("--progress", action="store_true", help="write lines for programs (see docs/images.md)")
    parser.add_argument("--force", action="store_true", help="build also what is up to date")
    parser.add_argument("--log", metavar="FILE", help="append the full output to FILE instead of standard error")
    return parser.parse_args(arguments)


@contextmanager
def _one_at_a_time(progress: Progress) -> Iterator[None]:
    """Hold the lock of this folder of images; the kernel lets go of it when the process ends, however it ends."""
    folder = os.open(IMAGES, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say("waiting for another build to end")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)

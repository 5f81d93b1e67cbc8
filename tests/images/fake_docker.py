#!/usr/bin/env python3
"""A docker command that builds nothing: it keeps labels in a file, notes its calls, and fails when told to."""

import json
import os
import sys
from pathlib import Path

HOME = Path(os.environ["FAKE_DOCKER"])
IMAGES = HOME / "images.json"
BUILD_OUTPUT = """#4 [stage-0 1/3] FROM docker.io/local/root
#5 [stage-0 2/3] RUN apt-get update
#5 0.2 Get:1 something
#6 [stage-0 3/3] COPY tmux.conf /etc/tmux.conf
#7 exporting to image
"""


def main(arguments: list[str]) -> int:
    with (HOME / "calls").open("a") as calls:
        calls.write(json.dumps(arguments) + "\n")
    images = json.loads(IMAGES.read_text()) if IMAGES.exists() else {}
    match arguments:
        case ["version", *_]:
            return 0
        case ["build", "--help"]:
            sys.stdout.write("" if (HOME / "no-buildkit").exists() else "  --secret stringArray\n")
            return 0
        case ["image", "inspect", "--format", form, name]:
            sys.stdout.write(json.dumps(images.get(name)) if "Labels" in form else "sha256:1")
            return 0 if name in images else 1
        case ["pull", name] if (HOME / "registry").exists():
            images[name] = {}
        case ["build", *options]:
            return build(options, images)
        case ["info", *_] | ["image", "rm", _]:
            return 0
        case _:
            return 1
    IMAGES.write_text(json.dumps(images))
    return 0


def build(options: list[str], images: dict[str, dict[str, str]]) -> int:
    sys.stdout.write(BUILD_OUTPUT)
    failure = HOME / "build-fails"
    if failure.exists():
        sys.stdout.write(failure.read_text())
        return 1
    labels = [options[at + 1] for at, option in enumerate(options) if option == "--label"]
    images[options[options.index("--tag") + 1]] = dict(label.split("=", 1) for label in labels)
    IMAGES.write_text(json.dumps(images))
    return 0


sys.exit(main(sys.argv[1:]))

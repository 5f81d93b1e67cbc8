"""The options of ``bin/up``, and their help. Needs no package, so that the help comes before anything is installed."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from backendai.agent.settings.marks import BACKENDS
from backendai.base.paths.installation import IS_CLONE, data_folder

LAST_PORT = 65535
NAME = "bin/up" if IS_CLONE else "backendai up"
PORT, HOST, BACKEND = 8080, "127.0.0.1", "auto"


def option_parser() -> argparse.ArgumentParser:
    """Return the parser, with the defaults of an environment that says nothing."""
    parser = argparse.ArgumentParser(prog=NAME, description="Start the whole platform on this machine.")
    parser.add_argument("--port", type=int, default=PORT, help="port of the portal (8080)")
    parser.add_argument("--apps-port", type=int, default=0, help="port of the app proxy (the portal's port + 1)")
    parser.add_argument("--ssh-port", type=int, default=0, help="port of the SSH gate (2200, or the next free port)")
    parser.add_argument("--verbose", action="store_true", help="show all output of the processes, not only warnings")
    parser.add_argument("--host", default=HOST, help="address to listen on (127.0.0.1: this machine only)")
    parser.add_argument("--data", type=Path, default=data_folder(os.environ), help="folder for all data (%(default)s)")
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default=BACKEND,
        help="how agents run kernels (docker if an engine answers or containers have run here, otherwise process)",
    )
    parser.add_argument(
        "--demo", action="store_true", help="show an invented lab at work, in a data folder of its own (DIR-demo)"
    )
    agents = parser.add_mutually_exclusive_group()
    agents.add_argument("--agents", type=int, default=1, metavar="N", help="number of agents to run (1)")
    agents.add_argument("--no-agent", dest="agents", action="store_const", const=0, help="run no agent")
    return parser


if __name__ == "__main__":
    option_parser().parse_args(sys.argv[1:])

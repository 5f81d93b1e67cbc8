"""What the page of a long run costs: the page, its look every few seconds, and a look after nothing has changed.

bin/bench run_page [--json] [--database sqlite|postgres] [--rounds N]

One pipeline of 500 steps in layers of ten, and one array of 10,000 elements. Requests go through the whole of Django in
one process. A page that has a board tells its parts, and gets those that have changed: here the first sessions have
been launched meanwhile. Beside each time stands the size of the answer.
"""

from __future__ import annotations

import argparse
import json

from bench._in_process import run_in_process
from bench._portal import say

_ROUNDS = 20
_START = "import django; django.setup(); from bench._run_page import main; main()"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="bin/bench run_page", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object of figures")
    parser.add_argument("--database", choices=("postgres", "sqlite"), default="sqlite")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, metavar="N", help="requests of each kind (20)")
    options = parser.parse_args()
    say(f"the page of a run on {options.database} ...")
    figures = run_in_process(_START, options.database, [options.rounds])
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:36} {value}")


if __name__ == "__main__":
    main()

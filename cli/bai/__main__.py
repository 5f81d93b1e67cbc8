"""The command ``bai``: what goes wrong becomes a sentence and an exit code."""

from __future__ import annotations

import sys

import click

from bai.commands.root import cli
from bai.sdk.call import PASSING, Problem, Unreachable
from bai.state import tell

REFUSED, USAGE, NOT_FOUND, SIGN_IN, AWAY, INTERRUPTED = 1, 2, 3, 4, 5, 130


def exit_code_of(problem: Problem) -> int:
    """Return the exit code for what the portal refused."""
    if problem.status in PASSING:
        return AWAY
    return {401: SIGN_IN, 404: NOT_FOUND}.get(problem.status, REFUSED)


def main() -> None:
    """Run the command line and end the process."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; returns its exit code."""
    is_verbose = arguments[:1] in (["-v"], ["--verbose"])
    try:
        code = cli.main(arguments, prog_name="bai", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except Problem as problem:
        for line in _sentences(problem, is_verbose):
            tell(line)
        if problem.status == 401:
            tell("Sign in with `bai login URL`.")
        return exit_code_of(problem)
    except Unreachable as error:
        tell(str(error))
        return AWAY
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except ValueError as error:  # of a value in the configuration or in an argument
        tell(f"Error: {error}")
        return USAGE
    except OSError as error:
        tell(f"Error: {error.filename}: {error.strerror}" if error.filename else f"Error: {error}")
        return REFUSED
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED


def _sentences(problem: Problem, is_verbose: bool) -> list[str]:
    """Return what is wrong at each field; with -v also code, values and status."""
    many = [f"{one.get('field', '')}: {one.get('detail', '')}" for one in problem.errors]
    lines = many if len(many) > 1 else [problem.detail]
    if is_verbose:
        lines += [f"code {problem.code}, status {problem.status}" + (f", {problem.data}" if problem.data else "")]
    return lines


if __name__ == "__main__":
    main()

"""How many files and connections a process may have open."""

from __future__ import annotations

import resource

_ENOUGH = 65536


def raise_open_files() -> int:
    """Raise the process's limit of open files as far as its hard limit allows; return it. The usual 1,024 are used up
    by as many idle connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(_ENOUGH, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft if soft != resource.RLIM_INFINITY else _ENOUGH

"""The process's limit of open files and connections."""

from __future__ import annotations

import resource

_ENOUGH = 65536


def raise_open_files() -> int:
    """Raise this process's limit of open files to 65,536, or to a lower hard limit; returns the limit. The default of
    1,024 is too low for many idle connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(_ENOUGH, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft if soft != resource.RLIM_INFINITY else _ENOUGH

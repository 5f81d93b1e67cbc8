"""Hides Django's common options from the ``--help`` of ``manage.py`` commands."""

DJANGOS_OWN = {
    "--version",
    "--verbosity",
    "--traceback",
    "--settings",
    "--pythonpath",
    "--no-color",
    "--force-color",
    "--skip-checks",
}

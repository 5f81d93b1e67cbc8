"""What the commands of ``manage.py`` leave out of their ``--help``: the options that Django gives to every command."""

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

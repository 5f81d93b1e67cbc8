"""Lists Django's own options, which the ``--help`` of ``manage.py`` commands leaves out."""

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

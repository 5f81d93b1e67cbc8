"""What pytest prints at its end beside its own lines: unsteady tests, and where the time went."""

from __future__ import annotations

from collections import Counter

import pytest

# By the first mark that a test has; the others are tests of single functions, pages and the database.
_PARTS = ("style", "browser", "kubernetes", "qemu", "system", "docker")
_LINES = 40  # of a first try


class Naming:
    """Names the tests that fail while others still run."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or str(report.outcome) == "rerun":
            word = "FAILED" if report.failed else "TRIED AGAIN"
            self._reporter.write(f"\n{word} {report.nodeid}\n", red=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Name failures at once in the process that collects the reports."""
    if not hasattr(session.config, "workerinput"):
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        assert reporter is not None
        session.config.pluginmanager.register(Naming(reporter))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Sum up the seconds of each part, and say why tests were tried again."""
    seconds, tests = Counter[str](), Counter[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                part = next((mark for mark in _PARTS if mark in report.keywords), "others")
                seconds[part] += report.duration
                tests[part] += report.when == "call"
    if not tests.total():
        return
    terminalreporter.section("seconds by part")
    for part, took in seconds.most_common():
        terminalreporter.write_line(f"{part:<12} {took:7.0f} s   {tests[part]:5} tests")
    passed = {report.nodeid for report in terminalreporter.stats.get("passed", []) if report.when == "call"}
    for report in terminalreporter.stats.get("rerun", []):
        word = "UNSTEADY" if report.nodeid in passed else "FAILED AGAIN"
        terminalreporter.write_line(f"{word} {report.nodeid}, which was tried again after:", yellow=True)
        for line in report.longreprtext.splitlines()[-_LINES:]:
            terminalreporter.write_line(f"  {line}")

"""What pytest prints at its end beside its own lines: unsteady tests, and where the time went."""

from __future__ import annotations

from collections import Counter

import pytest

# By the first mark that a test has; the others are tests of single functions, pages and the database.
_PARTS = ("style", "browser", "kubernetes", "qemu", "system", "docker")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that passed in their second try, and sum up the seconds of each part."""
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
        if report.nodeid in passed:
            terminalreporter.write_line(
                f"UNSTEADY {report.nodeid} (the lines of its first try stand above)", yellow=True
            )

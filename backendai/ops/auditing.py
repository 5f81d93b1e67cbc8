"""Where the commands and the tests find the invariants; the pages of the portal look at them as well."""

from backendai.compute.auditing import CHECKS, Check, Sighted, World, run_checks

__all__ = ["CHECKS", "Check", "Sighted", "World", "run_checks"]

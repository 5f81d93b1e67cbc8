"""Checks every prerequisite of the platform, and reports problems with their remedies."""

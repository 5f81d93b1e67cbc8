"""The session launcher: one form in five steps."""

"""Looks at every prerequisite of the platform and says what is wrong and how to repair it."""

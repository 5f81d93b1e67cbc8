"""Verbs of templates."""

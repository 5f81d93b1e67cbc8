"""Thousands of simulated agents in one process, and the address of the portal that takes what they say in one call."""

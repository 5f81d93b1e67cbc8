"""The kinds of jobs that an agent can do: each module has one class ``Handler``."""

"""The kinds of jobs that an agent can do; each module has a class ``Handler``."""

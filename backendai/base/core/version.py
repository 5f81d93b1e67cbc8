"""The platform's version, reported by portal and agents."""

VERSION = "1.0.0"

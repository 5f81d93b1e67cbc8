"""The list of sessions: what its address says, its columns and filters, its pages, its file."""

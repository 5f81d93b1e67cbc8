"""The list of sessions: its address, columns, filters, pages and export."""

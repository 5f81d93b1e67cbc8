"""Who visits the portal in these tests, with names that must come out as text."""

from __future__ import annotations

ADMIN = "admin@example.com"
ALICE, BOB, CHARLIE = "alice@example.com", "bob@example.com", "charlie@example.com"
PASSWORD = "correct horse battery"

SCRIPT = "<script>document.title='owned'</script>"
RIGHT_TO_LEFT = "\N{RIGHT-TO-LEFT OVERRIDE}שלום gnp.exe"
EMOJI = "\N{TEST TUBE}" * 64

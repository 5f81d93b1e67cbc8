"""The contents of a session's panel: facts, ends, actions, start phases and explanations."""

"""What the panel of one session says, worked out of its rows: facts, ends, actions, phases, explanations."""

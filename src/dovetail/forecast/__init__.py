"""How long jobs are, as far as a scheduler can know."""

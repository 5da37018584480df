"""How fast jobs run, what a switch costs, what fits into memory."""

"""Questions put to the simulator: one run, a comparison, a bound."""

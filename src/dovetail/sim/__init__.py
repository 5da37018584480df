"""The simulated world: events, the true length of jobs, capacity that changes."""

"""The workers of each job: what is wanted, what is, and the orders that bring both together."""

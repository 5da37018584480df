"""The live world: it asks the policy, applies the plan, and keeps jobs and workers in line."""

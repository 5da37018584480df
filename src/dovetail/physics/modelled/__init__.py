"""The five parts of the physics of jobs whose models have profiles, over one table of jobs."""

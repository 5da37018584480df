"""The live world: the policy asked, the plan carried out, jobs led through their lives."""

"""The model zoo: profiles with the provenance of every number."""

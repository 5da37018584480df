"""Pipeline-parallel jobs: blocks, stages, and their speed where their ranks are (A-SRPT)."""

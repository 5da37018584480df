"""How fast training goes, and what is reported of it."""

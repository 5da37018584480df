"""One loop for every world: observe, decide, check, apply, record."""

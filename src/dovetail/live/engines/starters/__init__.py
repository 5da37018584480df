"""Who starts the agents of other machines, one module for each way."""

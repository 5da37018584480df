"""What travels between client, controller, agents and workers: frozen messages as JSON lines."""

"""Files, locks and sockets of this machine, private to one user."""

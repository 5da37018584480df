"""Files of jobs that travel between nodes and the controller where they share no folder."""

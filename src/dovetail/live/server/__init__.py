"""Where users come in: the server, the verbs it answers, and what it may tell."""

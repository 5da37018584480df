"""The vocabulary: jobs, clusters, plans, views, policies and messages. No I/O, clock or chance."""

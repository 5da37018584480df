"""The durable store of a live cluster: one SQLite file, its writers and its readers."""

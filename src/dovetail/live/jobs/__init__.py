"""A live job as the controller records it: its states, its record, its row in the tables."""

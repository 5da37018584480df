"""The shapes of a live job: its states, its record, what is stored, what readers see."""

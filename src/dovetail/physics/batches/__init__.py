"""Training under another batch: goodput and statistical efficiency (Pollux)."""

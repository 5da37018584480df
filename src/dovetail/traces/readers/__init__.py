"""One small file for each log format: raw table to canonical columns, and what was refused."""

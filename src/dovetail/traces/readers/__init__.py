"""Readers, one module per log format: raw table to canonical columns, with rejected rows."""

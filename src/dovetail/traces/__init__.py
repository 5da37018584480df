"""Traces in and out: readers, the canonical file, generators, slices and descriptions."""

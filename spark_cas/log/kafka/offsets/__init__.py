"""Offsets of a topic: end offsets, consistent bounds, and reads."""

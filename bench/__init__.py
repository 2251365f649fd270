"""Measurements: every one is a `parkade bench` command that prints a table and can write JSON."""

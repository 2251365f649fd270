"""Sums and gathers across the ranks of one group."""

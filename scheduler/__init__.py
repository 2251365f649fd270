"""Who runs in the next step, and who is parked. Pure Python; imports `kv` and the standard library only."""

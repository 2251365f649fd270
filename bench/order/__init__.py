"""The order in which the parked come back, compared on a virtual clock over the real admission and the real engine."""

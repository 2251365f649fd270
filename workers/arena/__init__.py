"""A rank's host memory for parked pages: named, bounded, checked, and given back."""

"""Which page holds which tokens. Pure Python; imports the standard library only."""

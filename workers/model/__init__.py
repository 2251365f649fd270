"""One rank's model: its config, its share of heads and columns, and its forward pass."""

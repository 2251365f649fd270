"""Processes on machines: the Ray actors, their placement, and the sockets between them."""

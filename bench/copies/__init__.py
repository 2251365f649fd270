"""How fast pages go to host RAM and back, and what the other streams notice of it."""

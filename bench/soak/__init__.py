"""Two thousand requests that are cancelled, parked, left and reordered at random, and a server that is as before."""

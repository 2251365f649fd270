"""CPU kernels in numba: plain functions over numpy arrays, bit-exact per row whatever the batch."""

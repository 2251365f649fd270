"""Tensors and kernels of one tensor-parallel rank. Never sees Ray or HTTP."""

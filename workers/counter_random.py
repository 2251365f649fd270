"""Uniform numbers from a counter: a pure function of (seed, position), so that a sampler has no state.

splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014): the seed is mixed
once, the position is the number of golden-ratio steps taken from there, and the result is mixed again.
"""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def uniform(seed: int, position: int) -> float:
    """In [0, 1), a multiple of 2 ** -53. Any integers; both are taken modulo 2 ** 64."""
    state = _mix((seed + _GOLDEN) & _MASK)
    return (_mix((state + (position + 1) * _GOLDEN) & _MASK) >> 11) * 2.0**-53


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)

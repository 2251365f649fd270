"""Errors of the page floor.

KVError
└── KVCorruption   the books do not add up: a fault of ours, never of a client
"""


class KVError(Exception):
    """Root of this floor's errors."""


class KVCorruption(KVError):
    """An integrity check failed; the message names what was counted."""

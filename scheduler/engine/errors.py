"""Errors of the engine.

EngineError
├── BadEngineConfig   sizes that can't work together; also a ValueError
└── PlanMismatch      an answer that fits no plan in flight: a fault of ours or of the ranks
"""


class EngineError(Exception):
    """Root of the engine's errors."""


class BadEngineConfig(EngineError, ValueError):
    """The message names the value, the bound and the way out."""


class PlanMismatch(EngineError):
    """The ranks answered something other than the oldest plan in flight."""

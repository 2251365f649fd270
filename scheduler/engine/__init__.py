"""One group's engine: plans steps, moves sequences out and back, hands out tokens. `core` decides, `loop` waits."""

from scheduler.engine.config import EngineConfig
from scheduler.engine.core import EngineCore
from scheduler.engine.errors import BadEngineConfig, EngineError, PlanMismatch

__all__ = ["BadEngineConfig", "EngineConfig", "EngineCore", "EngineError", "PlanMismatch"]

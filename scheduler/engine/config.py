"""The sizes an engine works within. Resolved by whoever starts the group; the engine changes none of them."""

from dataclasses import dataclass

from scheduler.engine.errors import BadEngineConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """One group's bounds.

    `max_running` seats: sequences that may hold pages at once. `max_step_tokens` positions computed in one step.
    `lookahead_steps`: how far ahead the engine asks for room. `park=False`: a sequence that finds no page fails.
    `recompute`: what finds no room in the arena, or can't be copied, is dropped and computed again; with it
    `arena_pages` may be 0. `max_inflight` plans sent and not yet answered.
    """

    group_id: str
    num_pages: int
    arena_pages: int
    page_size: int
    max_running: int
    max_step_tokens: int
    max_model_len: int
    lookahead_steps: int = 8
    park: bool = True
    recompute: bool = True
    max_inflight: int = 2

    def __post_init__(self) -> None:
        least = {
            "num_pages": 1,
            "arena_pages": 0,
            "page_size": 1,
            "max_running": 1,
            "max_step_tokens": 1,
            "max_model_len": 2,
            "lookahead_steps": 1,
            "max_inflight": 1,
        }
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise BadEngineConfig(f"{name} is {getattr(self, name)}; it must be at least {bound}")
        if self.max_step_tokens < self.max_running:
            # Every decoding sequence computes one position a step; no rotation among them exists or is wanted.
            raise BadEngineConfig(
                f"max_step_tokens is {self.max_step_tokens}; it must be at least max_running, {self.max_running}: "
                "raise the one or lower the other"
            )

    @property
    def pool_tokens(self) -> int:
        return self.num_pages * self.page_size

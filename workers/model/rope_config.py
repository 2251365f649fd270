"""Settings of the rotary position embedding. Plain data: reading a config must not cost the import of torch."""

from dataclasses import dataclass

ROPE_KINDS = ("default", "linear", "dynamic", "llama3", "yarn")


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """`original_positions` is the length the model was trained for; fields a kind does not use keep their defaults."""

    kind: str
    theta: float
    original_positions: int
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

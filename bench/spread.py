"""A measured quantity as a median with its spread, and ratios of pairs taken in the same round.

The machine drifts; the two halves of a pair drift together. So a ratio is the median of the rounds' own ratios, never
the ratio of two medians.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median of `samples` with the lowest and the highest."""

    median: float
    low: float
    high: float
    samples: tuple[float, ...]

    def __str__(self) -> str:
        return f"{show(self.median)} ({show(self.low)} - {show(self.high)})"


def show(value: float) -> str:
    """Three significant digits, no exponent."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(samples: Sequence[float]) -> Spread:
    if not samples:
        raise ValueError("a spread needs at least one sample")
    return Spread(median=median(samples), low=min(samples), high=max(samples), samples=tuple(samples))


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """The spread of numerators[i] / denominators[i], one pair a round."""
    return spread([above / below for above, below in zip(numerators, denominators, strict=True)])

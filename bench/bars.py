"""The bars that `--check` holds: what is asked of the two-core reference machine, all in one place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.spread import show

# Tokens a second over HTTP at TP2, as a multiple of llama-server's on the same weights in BF16, by number of streams.
PEER_DECODE_RATIO: Mapping[int, float] = {1: 1.3, 4: 2.0, 8: 1.7, 16: 1.7}
PEER_PREFILL_RATIO = 1.3
HTTP_OVER_ENGINE_RATIO = 0.9
READY_S = 30.0
RANK_EXTRA_MIB = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """`value` against `bound`: at least it, or at most it where `at_most`."""

    name: str
    value: float
    bound: float
    at_most: bool = False

    @property
    def held(self) -> bool:
        return self.value <= self.bound if self.at_most else self.value >= self.bound

    def __str__(self) -> str:
        side = "at most" if self.at_most else "at least"
        return f"{self.name}: {show(self.value)}, {side} {show(self.bound)} asked"


def peer_bars(decode_ratios: Mapping[int, float], prefill_ratio: float | None) -> list[Bar]:
    """Medians of paired ratios, HTTP at TP2 over the peer; only streams that have a bar give one."""
    bars = [
        Bar(name=f"decode, {num_streams} streams, against the peer", value=ratio, bound=PEER_DECODE_RATIO[num_streams])
        for num_streams, ratio in sorted(decode_ratios.items())
        if num_streams in PEER_DECODE_RATIO
    ]
    if prefill_ratio is not None:
        bars.append(Bar(name="prefill against the peer", value=prefill_ratio, bound=PEER_PREFILL_RATIO))
    return bars


def overhead_bar(ratio: float, num_streams: int) -> Bar:
    name = f"HTTP over engine-only, {num_streams} streams"
    return Bar(name=name, value=ratio, bound=HTTP_OVER_ENGINE_RATIO)


def ready_bar(ready_s: float) -> Bar:
    return Bar(name="warm time to ready, s", value=ready_s, bound=READY_S, at_most=True)


def memory_bar(rank: str, resident_mib: float, accounted_mib: float) -> Bar:
    """`accounted_mib` is weights + pool + arena in use of this rank."""
    name = f"{rank}: resident memory, MiB"
    return Bar(name=name, value=resident_mib, bound=accounted_mib + RANK_EXTRA_MIB, at_most=True)


def all_held(bars: Sequence[Bar]) -> bool:
    return all(bar.held for bar in bars)

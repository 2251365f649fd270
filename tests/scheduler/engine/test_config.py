"""Sizes that can't work together are refused with the way out."""

import pytest

from scheduler.engine import BadEngineConfig, EngineConfig

GOOD = {
    "group_id": "group",
    "num_pages": 8,
    "arena_pages": 8,
    "page_size": 16,
    "max_running": 4,
    "max_step_tokens": 32,
    "max_model_len": 100,
}


def test_the_pool_is_counted_in_tokens() -> None:
    assert EngineConfig(**GOOD).pool_tokens == 128  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("num_pages", 0, "num_pages is 0; it must be at least 1"),
        ("arena_pages", -1, "arena_pages is -1; it must be at least 0"),
        ("max_model_len", 1, "max_model_len is 1; it must be at least 2"),
        ("max_inflight", 0, "max_inflight is 0; it must be at least 1"),
        ("max_step_tokens", 3, "max_step_tokens is 3; it must be at least max_running, 4"),
    ],
)
def test_a_bad_size_is_named_with_its_bound(name: str, value: int, complaint: str) -> None:
    with pytest.raises(BadEngineConfig, match=complaint):
        EngineConfig(**{**GOOD, name: value})  # type: ignore[arg-type]

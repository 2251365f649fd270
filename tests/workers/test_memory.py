"""Sizes computed from the config alone are those a rank really has."""

from pathlib import Path

import pytest

from tests.tiny_models import TinyModel, write_tiny_model
from tests.workers.rank_group import make_spec, running
from tests.workers.test_partition import SMOLLM2
from workers.errors import DoesNotFit
from workers.model.config import read_model_config
from workers.model.memory import rank_bytes


def test_smollm2_on_two_ranks_in_numbers() -> None:
    sizes = rank_bytes(SMOLLM2, 2, page_size=16, dtype="bfloat16", kv_dtype="float32")
    # 30 layers, K and V, 2 and 1 KV heads of 64, 16 slots, 4 bytes: 46,080 bytes a token over both.
    assert [size.page for size in sizes] == [491520, 245760]
    assert sum(size.page for size in sizes) == 16 * 46080
    # 134.5 M weights of 2 bytes, and the embedding a second time in the head's layout.
    assert sum(size.weights for size in sizes) == pytest.approx(2 * (134_515_008 + 49152 * 576), rel=0.01)
    assert sizes[0].total(10, 5) == sizes[0].weights + 15 * 491520


@pytest.mark.parametrize("kv_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("backend", ["numba", "sdpa"])
def test_page_bytes_are_those_of_the_pool(tmp_path: Path, backend: str, kv_dtype: str) -> None:
    folder = write_tiny_model(tmp_path, TinyModel(num_heads=15, num_kv_heads=5))
    sizes = rank_bytes(read_model_config(folder), 2, page_size=32, dtype="bfloat16", kv_dtype=kv_dtype)
    with running(make_spec(folder, world_size=2, backend=backend, kv_dtype=kv_dtype, page_size=32)) as group:
        assert [rank.page_bytes for rank in group.ranks] == [size.page for size in sizes]


def test_a_pool_beyond_the_address_space_is_refused_with_its_size(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path)
    for backend in ("numba", "sdpa"):
        with (
            pytest.raises(DoesNotFit, match="a KV pool of 1099511627776 pages cannot be allocated"),
            running(make_spec(folder, backend=backend, num_pages=1 << 40)),
        ):
            pass

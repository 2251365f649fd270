"""From a config and a model folder to settled numbers, what they cost, and what is said of them."""

import json
from pathlib import Path

import pytest

from deploy.config import ServeConfig
from deploy.serve.banner import curl_line, loading_line, ready_lines, url_of
from deploy.serve.errors import CannotServe
from deploy.serve.memory import available_memory, check_memory
from deploy.serve.plan import ServerPlan, Sizes, make_plan

# 2 (K and V) x 2 layers x 16 slots x 16 wide x 4 bytes, for each KV head
PAGE_BYTES_A_HEAD = 4096
GIB = 1 << 30


def plan_of(model_dir: Path, **values: object) -> tuple[ServerPlan, Sizes]:
    return make_plan(ServeConfig.model_validate({"model": str(model_dir), **values}), model_dir)


def test_pages_and_arena_are_counted_over_all_ranks(model_dir: Path) -> None:
    plan, sizes = plan_of(model_dir, kv_pool_tokens=1000, host_ram="1MiB")
    assert (plan.num_pages, plan.pool_tokens) == (62, 992)
    assert [rank.page for rank in sizes.ranks] == [2 * PAGE_BYTES_A_HEAD, PAGE_BYTES_A_HEAD]
    assert plan.arena_pages == (1 << 20) // (3 * PAGE_BYTES_A_HEAD) == 85
    assert sizes.arena_bytes == 85 * 3 * PAGE_BYTES_A_HEAD
    assert plan.model_id == "tiny-llama"


def test_the_kv_dtype_halves_a_page(model_dir: Path) -> None:
    _, sizes = plan_of(model_dir, kv_dtype="bfloat16")
    assert sizes.page_bytes == 3 * PAGE_BYTES_A_HEAD // 2


def test_without_parking_there_is_no_arena(model_dir: Path) -> None:
    plan, sizes = plan_of(model_dir, park=False)
    assert (plan.park, plan.arena_pages, sizes.arena_bytes) == (False, 0, 0)
    assert any("off: a request that overflows the pool fails" in line for line in ready_lines(plan, sizes, 1.0))


def test_host_ram_of_less_than_a_page_is_no_parking(model_dir: Path) -> None:
    plan, _ = plan_of(model_dir, host_ram=100)
    assert (plan.park, plan.arena_pages) == (False, 0)


def test_the_length_is_the_models_unless_less_is_asked_for(model_dir: Path) -> None:
    assert plan_of(model_dir)[0].max_model_len == 128
    assert plan_of(model_dir, max_model_len=64)[0].max_model_len == 64
    with pytest.raises(CannotServe, match=r"max_model_len 129 is more than the 128 positions"):
        plan_of(model_dir, max_model_len=129)


@pytest.mark.parametrize(
    ("ranks", "asked", "kind"), [(1, "auto", "single"), (1, "gloo", "single"), (2, "auto", "shm"), (3, "gloo", "gloo")]
)
def test_the_collective_follows_from_the_ranks(model_dir: Path, ranks: int, asked: str, kind: str) -> None:
    assert plan_of(model_dir, tensor_parallel_size=ranks, collective=asked)[0].collective == kind


def test_more_ranks_than_heads_are_refused(model_dir: Path) -> None:
    with pytest.raises(CannotServe, match=r"tensor parallel size 4 is not between 1 and 3"):
        plan_of(model_dir, tensor_parallel_size=4)


def test_an_unknown_architecture_is_refused_with_those_known(model_dir: Path) -> None:
    config = json.loads((model_dir / "config.json").read_text()) | {"architectures": ["MambaForCausalLM"]}
    (model_dir / "config.json").write_text(json.dumps(config))
    with pytest.raises(CannotServe, match=r"MambaForCausalLM.*Llama.*, Qwen2.*, Qwen3"):
        plan_of(model_dir)


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotServe, match=r"config.json: no such file"):
        plan_of(tmp_path)


def test_what_fits_is_started(model_dir: Path) -> None:
    check_memory(*plan_of(model_dir), available_bytes=8 * GIB)


def test_a_pool_that_does_not_fit_is_told_the_one_that_would(model_dir: Path) -> None:
    plan, sizes = plan_of(model_dir, kv_pool_tokens=1 << 24, host_ram="1GiB")
    with pytest.raises(CannotServe, match=r"not enough memory: weights .* pool of 16,777,216 tokens 12 GiB") as caught:
        check_memory(plan, sizes, available_bytes=8 * GIB)
    fitting = int(str(caught.value).split("--kv-pool-tokens ")[1].split()[0])
    check_memory(*plan_of(model_dir, kv_pool_tokens=fitting, host_ram="1GiB"), available_bytes=8 * GIB)
    with pytest.raises(CannotServe):
        check_memory(*plan_of(model_dir, kv_pool_tokens=fitting + 16, host_ram="1GiB"), available_bytes=8 * GIB)


def test_an_arena_that_does_not_fit_is_told_both_that_would(model_dir: Path) -> None:
    plan, sizes = plan_of(model_dir, host_ram="64GiB")
    with pytest.raises(CannotServe, match=r"--kv-pool-tokens .* with --host-ram .*MiB would fit") as caught:
        check_memory(plan, sizes, available_bytes=4 * GIB)
    words = str(caught.value).split()
    pool, ram = words[words.index("--kv-pool-tokens") + 1], words[words.index("--host-ram") + 1]
    check_memory(*plan_of(model_dir, kv_pool_tokens=int(pool), host_ram=ram), available_bytes=4 * GIB)


def test_nothing_fits_into_nothing(model_dir: Path) -> None:
    with pytest.raises(CannotServe, match="not even the weights fit into 0 bytes"):
        check_memory(*plan_of(model_dir), available_bytes=0)


def test_a_control_group_bounds_the_memory(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 100 kB\nMemAvailable:   2048 kB\n")
    assert available_memory(tmp_path) == 2 << 20
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.current").write_text("1000\n")
    (group / "memory.max").write_text("max\n")
    assert available_memory(tmp_path) == 2 << 20
    (group / "memory.max").write_text("5000\n")
    assert available_memory(tmp_path) == 4000


def test_the_banner_says_what_was_started(model_dir: Path) -> None:
    plan, sizes = plan_of(model_dir, kv_pool_tokens=1024, host_ram="1MiB", num_threads=1)
    assert loading_line(plan, sizes).startswith("Loading tiny-llama on 2 ranks: ")
    lines = ready_lines(plan, sizes, 12.34)
    assert lines[0] == "Ready after 12.3 s: http://127.0.0.1:8000"
    assert "1,024 tokens in 64 pages of 16" in lines[1]
    assert "8.00 requests of 128 tokens at once" in lines[1]
    assert "1,020 KiB of host RAM for 1,360 parked tokens" in lines[2]
    assert "rank 0: 2 query and 2 KV heads; rank 1: 1 query and 1 KV heads; sums over shm, 1 thread a rank" in lines[3]
    assert lines[-1].strip() == curl_line(plan)


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("0.0.0.0", "127.0.0.1"), ("localhost", "localhost")],
)
def test_the_url_can_be_pasted(model_dir: Path, host: str, url: str) -> None:
    assert url_of(plan_of(model_dir, host=host, port=81)[0]) == f"http://{url}:81"

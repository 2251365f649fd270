"""From a config and a model folder to settled numbers, what they cost, and what is said of them."""

import json
from pathlib import Path

import pytest

from deploy.config import ServeConfig
from deploy.serve.banner import curl_line, loading_line, reachable, ready_lines, url_of
from deploy.serve.errors import CannotServe
from deploy.serve.memory import available_memory, check_memory
from deploy.serve.plan import AdminPlan, ServerPlan, Sizes, make_plan
from deploy.serve.reports import Ready

# 2 (K and V) x 2 layers x 16 slots x 16 wide x 4 bytes, for each KV head
PAGE_BYTES_A_HEAD = 4096
GIB = 1 << 30
READY = Ready(seconds=12.34, admin="127.0.0.1:8001", metrics_url="http://127.0.0.2:40001/metrics")


def plan_of(model_dir: Path, **values: object) -> tuple[ServerPlan, Sizes]:
    return make_plan(ServeConfig.model_validate({"model": str(model_dir), **values}), model_dir)


def test_pages_and_arena_are_counted_over_all_ranks(model_dir: Path) -> None:
    plan, sizes = plan_of(model_dir, kv_pool_tokens=1000, host_ram="1MiB")
    assert (plan.num_pages, plan.pool_tokens) == (62, 992)
    assert [rank.page for rank in sizes.ranks] == [2 * PAGE_BYTES_A_HEAD, PAGE_BYTES_A_HEAD]
    assert plan.arena_pages == (1 << 20) // (3 * PAGE_BYTES_A_HEAD) == 85
    assert (sizes.arena_bytes, plan.page_bytes) == (85 * 3 * PAGE_BYTES_A_HEAD, 3 * PAGE_BYTES_A_HEAD)
    assert plan.model_id == "tiny-llama"


def parking_line(plan: ServerPlan, sizes: Sizes) -> str:
    return ready_lines(plan, sizes, READY)[2].removeprefix("  parking   ")


def test_the_kv_dtype_halves_a_page(model_dir: Path) -> None:
    _, sizes = plan_of(model_dir, kv_dtype="bfloat16")
    assert sizes.page_bytes == 3 * PAGE_BYTES_A_HEAD // 2


def test_without_parking_there_is_no_arena(model_dir: Path) -> None:
    plan, sizes = plan_of(model_dir, park=False)
    assert (plan.park, plan.recompute, plan.arena_pages, sizes.arena_bytes) == (False, False, 0, 0)
    assert parking_line(plan, sizes) == "off: a request that overflows the pool fails"


@pytest.mark.parametrize("host_ram", [0, 100])
def test_without_host_ram_for_a_page_parking_goes_on_by_recomputing(model_dir: Path, host_ram: int) -> None:
    plan, sizes = plan_of(model_dir, host_ram=host_ram)
    assert (plan.park, plan.recompute, plan.arena_pages) == (True, True, 0)
    assert parking_line(plan, sizes) == "without host RAM: what is parked is dropped and computed again"


def test_neither_host_ram_nor_recompute_is_refused_with_the_ways_out(model_dir: Path) -> None:
    with pytest.raises(CannotServe, match=r"host_ram 0 holds no page of 12288 bytes, and recompute is off") as caught:
        plan_of(model_dir, host_ram=0, recompute=False)
    assert str(caught.value).endswith("give --host-ram 1MiB or more, or --recompute, or --no-park")
    assert plan_of(model_dir, host_ram="1MiB", recompute=False)[0].arena_pages == 85
    assert not plan_of(model_dir, host_ram=0, recompute=False, park=False)[0].park


def test_what_is_asked_of_doors_and_queues_is_in_the_plan(model_dir: Path, tmp_path: Path) -> None:
    plan, _ = plan_of(
        model_dir,
        port=9000,
        api_key_file=tmp_path / "keys",
        admin_host="::1",
        admin_token_file=tmp_path / "token",
        max_queued_tokens=77,
        metrics_port=9100,
    )
    assert (plan.api_key_file, plan.max_queued_tokens, plan.metrics_port) == (str(tmp_path / "keys"), 77, 9100)
    assert plan.admin == AdminPlan(
        host="::1", port=9001, token_file=str(tmp_path / "token"), tls_cert=None, tls_key=None
    )


def test_files_are_named_in_full(model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert plan_of(model_dir, admin_token_file="token")[0].admin.token_file == str(tmp_path / "token")


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
    lines = ready_lines(plan, sizes, READY)
    assert lines[0] == "Ready after 12.3 s: http://127.0.0.1:8000"
    assert "1,024 tokens in 64 pages of 16" in lines[1]
    assert "8.00 requests of 128 tokens at once" in lines[1]
    assert "1,020 KiB of host RAM for 1,360 parked tokens; what goes beyond is computed again" in lines[2]
    assert "rank 0: 2 query and 2 KV heads; rank 1: 1 query and 1 KV heads; sums over shm, 1 thread a rank" in lines[3]
    assert lines[4] == "  admin     127.0.0.1:8001, token in None"
    assert lines[5] == "  metrics   http://127.0.0.2:40001/metrics"
    assert lines[-1].strip() == curl_line(plan)


def test_the_banner_tells_of_keys_and_certificates(model_dir: Path) -> None:
    values = {"api_key_file": "/keys", "admin_token_file": "/t", "admin_tls_cert": "/c", "admin_tls_key": "/k"}
    plan, sizes = plan_of(model_dir, recompute=False, **values)
    lines = ready_lines(plan, sizes, Ready(seconds=1.0, admin="[::1]:1", metrics_url=""))
    assert lines[2].endswith("parked tokens; new requests get 429 when that is full")
    assert lines[4] == "  admin     [::1]:1 with TLS, token in /t"
    assert lines[5] == "  metrics   none: this Ray exports none"
    assert "-H 'Authorization: Bearer YOUR-KEY' " in curl_line(plan)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "[::1]"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "[::1]"),
        ("localhost", "localhost"),
    ],
)
def test_the_url_can_be_pasted(model_dir: Path, host: str, url: str) -> None:
    assert url_of(plan_of(model_dir, host=host, port=81)[0]) == f"http://{url}:81"


def test_the_admin_address_can_be_pasted() -> None:
    addresses = ("0.0.0.0:1", "[::]:2", "[::1]:3", "10.0.0.1:4")
    assert [reachable(address) for address in addresses] == ["127.0.0.1:1", "[::1]:2", "[::1]:3", "10.0.0.1:4"]

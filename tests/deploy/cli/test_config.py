"""Values for a server: bounds, units, and which source wins."""

from pathlib import Path

import pytest

from deploy.config import ConfigError, format_bytes, format_seconds, load_config, parse_bytes, read_environment


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("2GiB", 2 << 30), ("512 mib", 512 << 20), ("1.5GB", 1_500_000_000), ("4096", 4096), (7, 7), ("0", 0), ("8B", 8)],
)
def test_sizes_are_read_with_their_units(text: str | int, num_bytes: int) -> None:
    assert parse_bytes(text) == num_bytes


@pytest.mark.parametrize("text", ["", "GiB", "2 gigs", "-1GiB", "1e9", "2GiB3", "nan"])
def test_a_size_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="as in 2GiB"):
        parse_bytes(text)


def test_sizes_are_written_short() -> None:
    assert [format_bytes(n) for n in (0, 999, 1536, 5 << 20, 3 << 30, 5 << 40)] == [
        "0 bytes",
        "999 bytes",
        "1.5 KiB",
        "5 MiB",
        "3 GiB",
        "5,120 GiB",
    ]


def test_times_are_written_short() -> None:
    times = (0, 0.44, 9.94, 12.3, 59.4, 59.6, 185, 3599.7, 3600, 7801)
    assert [format_seconds(time) for time in times] == [
        "0.0 s",
        "0.4 s",
        "9.9 s",
        "12 s",
        "59 s",
        "1 min 0 s",
        "3 min 5 s",
        "1 h 0 min",
        "1 h 0 min",
        "2 h 10 min",
    ]


def test_a_model_is_all_that_must_be_given() -> None:
    config = load_config({"model": "smollm2-135m"})
    assert (config.host, config.port, config.tensor_parallel_size) == ("127.0.0.1", 8000, 2)
    assert (config.kv_pool_tokens, config.page_size, config.num_pages) == (16_384, 16, 1024)
    assert (config.host_ram, config.park, config.recompute) == (2 << 30, True, True)
    assert (config.admin_host, config.settled_admin_port) == ("127.0.0.1", 8001)
    assert (config.max_queued_requests, config.max_queued_tokens) == (1024, 4_194_304)
    assert (config.api_key_file, config.admin_token_file, config.admin_tls_cert, config.metrics_port) == (None,) * 4


def test_no_model_is_an_error_that_shows_how() -> None:
    with pytest.raises(ConfigError, match="parkade serve smollm2-135m"):
        load_config({})


def test_flags_stand_over_the_file_and_the_file_over_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("model: somewhere\nport: 9000\nhost-ram: 512MiB\nkv_pool_tokens: 2048\n")
    config = load_config({"port": 9001, "model": "elsewhere"}, file)
    assert (config.model, config.port, config.host_ram, config.num_pages) == ("elsewhere", 9001, 512 << 20, 128)


def test_an_unknown_setting_in_the_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("model: m\nkv_pool_token: 5\nprot: 1\n")
    with pytest.raises(ConfigError, match=r"unknown settings: kv_pool_token, prot; known are model, "):
        load_config({}, file)


@pytest.mark.parametrize(
    ("text", "complaint"), [("- a\n- b\n", "not a list"), ("a: [", "is no YAML"), ("just words", "not a str")]
)
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load_config({"model": "m"}, file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the config file .*gone.yaml: No such file"):
        load_config({"model": "m"}, tmp_path / "gone.yaml")


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("# nothing yet\n")
    assert load_config({"model": "m"}, file) == load_config({"model": "m"})


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        ("port", 0, "greater than or equal to 1"),
        ("port", 70_000, "less than or equal to 65535"),
        ("page_size", 24, "multiple of 16"),
        ("tensor_parallel_size", 0, "greater than or equal to 1"),
        ("kv_pool_tokens", -5, "greater than or equal to 16"),
        ("max_running", "many", "valid integer"),
        ("dtype", "int8", "'bfloat16' or 'float32'"),
        ("host_ram", "2 gigs", "as in 2GiB"),
        ("ray_address", "nowhere", "pattern"),
        ("model", " ", "must not be blank"),
        ("admin_host", "", "at least 1 character"),
        ("admin_port", -1, "greater than or equal to 0"),
        ("admin_port", 65_536, "less than or equal to 65535"),
        ("metrics_port", 0, "greater than or equal to 1"),
        ("max_queued_tokens", 0, "greater than or equal to 1"),
        ("recompute", "perhaps", "valid boolean"),
    ],
)
def test_a_value_out_of_bounds_is_named_with_its_bound(name: str, value: object, bound: str) -> None:
    with pytest.raises(ConfigError, match=bound) as caught:
        load_config({"model": "m"} | {name: value})
    assert str(caught.value).startswith(f"{name}: ")
    assert repr(value) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"admin_tls_cert": "c"}, "admin_tls_cert is given without admin_tls_key: give both, or neither"),
        ({"admin_tls_key": "k"}, "admin_tls_key is given without admin_tls_cert: give both, or neither"),
        ({"port": 65535}, "admin_port: its default, the port after 65535, does not exist; give one"),
        ({"port": 9000, "admin_port": 9000}, "admin_port and port are both 9000; give two"),
        ({"metrics_port": 8001}, "metrics_port 8001 is the port of HTTP or of the admin interface"),
        ({"metrics_port": 9100, "ray_address": "h:1"}, "metrics_port is a setting of the Ray that ray_address names"),
    ],
)
def test_settings_that_exclude_each_other_are_told(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({"model": "m"} | values)
    assert str(caught.value).startswith(complaint)


def test_any_free_admin_port_can_be_asked_for() -> None:
    assert load_config({"model": "m", "admin_port": 0}).settled_admin_port == 0
    assert load_config({"model": "m", "port": 65535, "admin_port": 1}).settled_admin_port == 1


def test_all_bad_values_are_told_at_once() -> None:
    with pytest.raises(ConfigError, match=r"port: .*; max_running: "):
        load_config({"model": "m", "port": 0, "max_running": 0})


def test_the_cache_follows_xdg(tmp_path: Path) -> None:
    assert read_environment({"XDG_CACHE_HOME": str(tmp_path)}).cache_dir == tmp_path / "parkade"
    assert read_environment({"XDG_CACHE_HOME": "relative"}).cache_dir == Path.home() / ".cache" / "parkade"
    assert read_environment({}).cache_dir == Path.home() / ".cache" / "parkade"


def test_an_own_ray_hears_nothing_of_another_one() -> None:
    outer = {"RAY_ADDRESS": "10.0.0.1:6379", "RAY_AUTH_TOKEN": "theirs", "RAY_AUTH_MODE": "disabled", "HOME": "/h"}
    inner = read_environment(outer).for_own_ray(Path("/run/token"), 8000)
    assert "RAY_ADDRESS" not in inner
    assert "RAY_AUTH_TOKEN" not in inner
    assert (inner["RAY_AUTH_MODE"], inner["RAY_AUTH_TOKEN_PATH"], inner["HOME"]) == ("token", "/run/token", "/h")


def test_a_gateway_that_died_is_replaced_on_the_one_port_without_a_quarantine() -> None:
    inner = read_environment({}).for_own_ray(Path("/run/token"), 8000)
    ports = [inner[f"RAY_SERVE_DIRECT_INGRESS_{bound}_HTTP_PORT"] for bound in ("MIN", "MAX")]
    assert (ports, inner["RAY_SERVE_PORT_QUARANTINE_S"]) == (["8000", "8001"], "0")


def test_a_running_ray_is_joined_with_the_users_own_proof() -> None:
    outer = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "mine"}
    inner = read_environment(outer).for_running_ray()
    assert (inner["RAY_AUTH_MODE"], inner["RAY_AUTH_TOKEN"]) == ("token", "mine")

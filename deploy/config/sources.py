"""Where values come from: the flags given, over the YAML file, over the defaults. Errors are one line each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from deploy.config.serve_config import ServeConfig


class ConfigError(ValueError):
    """What is wrong with which value, and what may stand there."""


def load_config(flags: Mapping[str, Any], file: Path | None = None) -> ServeConfig:
    """`flags` holds only what was given on the command line. Raises `ConfigError` that names every bad value."""
    values = (read_config_file(file) if file else {}) | dict(flags)
    if "model" not in values:
        raise ConfigError("no model given: name one (parkade serve smollm2-135m) or set `model:` in the config file")
    try:
        return ServeConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError("; ".join(_sentence(detail) for detail in error.errors())) from error


def read_config_file(file: Path) -> dict[str, Any]:
    """The mapping in `file`; names may be written with dashes as flags are. Unknown names are errors."""
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the config file {file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"the config file {file} is no YAML: {' '.join(str(error).split())}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"the config file {file} must hold `name: value` lines, not a {type(values).__name__}")
    named = {str(name).replace("-", "_"): value for name, value in values.items()}
    unknown = sorted(set(named) - set(ServeConfig.model_fields))
    if unknown:
        known = ", ".join(ServeConfig.model_fields)
        raise ConfigError(f"the config file {file} names unknown settings: {', '.join(unknown)}; known are {known}")
    return named


def _sentence(detail: Any) -> str:
    name = ".".join(str(part) for part in detail["loc"])
    message: str = detail["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if not name:  # a rule between settings names them itself
        return message
    return f"{name}: {message} (given: {detail['input']!r})"

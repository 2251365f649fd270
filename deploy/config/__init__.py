"""The street door: what a server is told, from flags, a YAML file and the environment, checked before any work."""

from deploy.config.environment import Environment, read_environment
from deploy.config.serve_config import ServeConfig
from deploy.config.sizes import format_bytes, format_seconds, parse_bytes
from deploy.config.sources import ConfigError, load_config

__all__ = [
    "ConfigError",
    "Environment",
    "ServeConfig",
    "format_bytes",
    "format_seconds",
    "load_config",
    "parse_bytes",
    "read_environment",
]

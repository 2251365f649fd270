"""All that `parkade serve` can be told. Names are those of the flags and of the YAML file."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from deploy.config.sizes import parse_bytes

Bytes = Annotated[int, BeforeValidator(parse_bytes)]


class ServeConfig(BaseModel):
    """Checked values with their bounds; what depends on the model or the machine is checked by `deploy.serve`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1)
    served_model_name: str | None = Field(default=None, min_length=1, max_length=256)
    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8000, ge=1, le=65535)
    api_key_file: Path | None = None

    admin_host: str = Field(default="127.0.0.1", min_length=1)
    admin_port: int | None = Field(default=None, ge=0, le=65535)
    admin_token_file: Path | None = None
    admin_tls_cert: Path | None = None
    admin_tls_key: Path | None = None
    metrics_port: int | None = Field(default=None, ge=1, le=65535)

    tensor_parallel_size: int = Field(default=2, ge=1, le=64)
    kv_pool_tokens: int = Field(default=16_384, ge=16, le=1 << 30)
    page_size: int = Field(default=16, ge=16, le=1024, multiple_of=16)
    host_ram: Bytes = Field(default=2 << 30, ge=0, le=1 << 44)
    park: bool = True
    recompute: bool = True

    max_running: int = Field(default=64, ge=1, le=4096)
    max_model_len: int | None = Field(default=None, ge=2, le=1 << 24)
    max_step_tokens: int = Field(default=512, ge=16, le=1 << 16)
    max_queued_requests: int = Field(default=1024, ge=1, le=1 << 20)
    max_queued_tokens: int = Field(default=4_194_304, ge=1, le=1 << 40)

    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    kv_dtype: Literal["bfloat16", "float32"] = "float32"
    backend: Literal["numba", "sdpa", "flash"] = "numba"
    collective: Literal["auto", "shm", "gloo", "nccl"] = "auto"
    num_threads: int | None = Field(default=None, ge=1, le=256)

    ray_address: str | None = Field(default=None, pattern=r"^[^\s:]+:\d+$")
    log_level: Literal["debug", "info", "warning", "error"] = "warning"

    @field_validator("model", "host", "admin_host")
    @classmethod
    def _not_blank(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be blank")
        return value

    @model_validator(mode="after")
    def _every_runner_gets_a_token(self) -> Self:
        if self.max_step_tokens < self.max_running:
            raise ValueError(
                f"max_step_tokens {self.max_step_tokens} must be at least max_running {self.max_running}: "
                "every running request computes one token a step"
            )
        return self

    @model_validator(mode="after")
    def _certificate_and_key_come_together(self) -> Self:
        if (self.admin_tls_cert is None) != (self.admin_tls_key is None):
            given, missing = ("cert", "key") if self.admin_tls_key is None else ("key", "cert")
            raise ValueError(f"admin_tls_{given} is given without admin_tls_{missing}: give both, or neither")
        return self

    @model_validator(mode="after")
    def _every_port_is_another(self) -> Self:
        if self.admin_port is None and self.port == 65535:
            raise ValueError("admin_port: its default, the port after 65535, does not exist; give one")
        if self.admin_port == self.port:
            raise ValueError(f"admin_port and port are both {self.port}; give two")
        if self.metrics_port is not None and self.metrics_port in (self.port, self.settled_admin_port):
            raise ValueError(f"metrics_port {self.metrics_port} is the port of HTTP or of the admin interface")
        if self.metrics_port is not None and self.ray_address is not None:
            raise ValueError(
                "metrics_port is a setting of the Ray that ray_address names: "
                "start that with `ray start --metrics-export-port`, and leave metrics_port out"
            )
        return self

    @property
    def settled_admin_port(self) -> int:
        """The port asked for, or the one after HTTP's; 0 is any that is free."""
        return self.port + 1 if self.admin_port is None else self.admin_port

    @property
    def num_pages(self) -> int:
        """Whole pages of the pool; a last part of a page is not used."""
        return self.kv_pool_tokens // self.page_size

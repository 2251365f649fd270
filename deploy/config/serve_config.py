"""All that `parkade serve` can be told. Names are those of the flags and of the YAML file."""

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

    tensor_parallel_size: int = Field(default=2, ge=1, le=64)
    kv_pool_tokens: int = Field(default=16_384, ge=16, le=1 << 30)
    page_size: int = Field(default=16, ge=16, le=1024, multiple_of=16)
    host_ram: Bytes = Field(default=2 << 30, ge=0, le=1 << 44)
    park: bool = True

    max_running: int = Field(default=64, ge=1, le=4096)
    max_model_len: int | None = Field(default=None, ge=2, le=1 << 24)
    max_step_tokens: int = Field(default=512, ge=16, le=1 << 16)
    max_queued_requests: int = Field(default=1024, ge=1, le=1 << 20)

    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    kv_dtype: Literal["bfloat16", "float32"] = "float32"
    backend: Literal["numba", "sdpa", "flash"] = "numba"
    collective: Literal["auto", "shm", "gloo", "nccl"] = "auto"
    num_threads: int | None = Field(default=None, ge=1, le=256)

    ray_address: str | None = Field(default=None, pattern=r"^[^\s:]+:\d+$")
    log_level: Literal["debug", "info", "warning", "error"] = "warning"

    @field_validator("model", "host")
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

    @property
    def num_pages(self) -> int:
        """Whole pages of the pool; a last part of a page is not used."""
        return self.kv_pool_tokens // self.page_size

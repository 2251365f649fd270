"""A model folder's chat template: a conversation in, prompt text out.

The template comes with the model and the conversation from a client, so it runs in Jinja's immutable sandbox, and
loops, calls and output are bounded: a conversation that makes it run away costs its own request only.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from deploy.text.errors import BadTemplate, TemplateFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderBudget:
    """Bounds of one rendering: seconds on the clock, characters of output."""

    max_s: float = 2.0
    max_chars: int = 16_000_000


class _OutOfTimeError(Exception):
    """Raised inside a rendering; never leaves this module."""


class _GenerationTag(Extension):
    """`{% generation %}`, with which templates mark the assistant's text for training: no effect here."""

    tags = {"generation"}  # noqa: RUF012  # the base class declares it as a plain set

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


class _BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Every loop and every call looks at the clock of the thread that renders."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols])
        self._now = now
        self._local = threading.local()
        self.filters["tojson"] = _to_json
        self.filters[_BOUNDED] = self._bounded
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def start_clock(self, max_s: float) -> None:
        self._local.deadline = self._now() + max_s

    def check_clock(self) -> None:
        if self._now() > self._local.deadline:
            raise _OutOfTimeError

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        self.check_clock()
        return super().call(context, obj, *args, **kwargs)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        for loop in list(template.find_all(nodes.For)):
            loop.iter = nodes.Filter(loop.iter, _BOUNDED, [], [], None, None, lineno=loop.lineno, environment=self)
        return template

    def _bounded(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.check_clock()
            yield item


_BOUNDED = "__bounded"


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(format_: str) -> str:
    return datetime.now().strftime(format_)  # templates print the reader's local date


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


class ChatTemplate:
    """Thread-safe. `special_tokens` (bos_token, eos_token, ...) are the names the template may use."""

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str] | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environment = _BoundedEnvironment(now)
        self._special_tokens = dict(special_tokens or {})
        try:
            self._template = self._environment.from_string(source)
        except TemplateSyntaxError as error:
            raise BadTemplate(f"the chat template is not valid Jinja: line {error.lineno}: {error.message}") from error

    @classmethod
    def from_dir(cls, model_dir: Path) -> "ChatTemplate | None":
        """From `chat_template.jinja`, else `tokenizer_config.json`; None without one. Raises `BadTemplate`."""
        config = _read_tokenizer_config(model_dir)
        path = model_dir / "chat_template.jinja"
        source = path.read_text(encoding="utf-8") if path.is_file() else _template_of(config)
        return None if source is None else cls(source, _special_tokens_of(config))

    def render(self, messages: Sequence[Mapping[str, Any]], budget: RenderBudget | None = None) -> str:
        """The prompt, ending with the header of the answer. Raises `TemplateFailed` with a message for the client."""
        bounds = budget or RenderBudget()
        self._environment.start_clock(bounds.max_s)
        variables = {
            **self._special_tokens,
            "messages": [dict(message) for message in messages],
            "tools": None,
            "documents": None,
            "add_generation_prompt": True,
        }
        try:
            return self._join(self._template.generate(variables), bounds)
        except _OutOfTimeError:
            raise TemplateFailed(
                f"the chat template ran for more than {bounds.max_s:g} s on this conversation; send a shorter one"
            ) from None
        except TemplateFailed:
            raise
        except TemplateError as error:
            raise TemplateFailed(f"the model's chat template refuses this conversation: {error.message}") from error
        except Exception as error:  # whatever a template does wrong with this input, it is a matter of this request
            raise TemplateFailed(
                f"the model's chat template fails on this conversation ({type(error).__name__}); "
                "check the roles and their order"
            ) from error

    def _join(self, pieces: Iterable[str], bounds: RenderBudget) -> str:
        parts: list[str] = []
        num_chars = 0
        for piece in pieces:
            self._environment.check_clock()
            num_chars += len(piece)
            if num_chars > bounds.max_chars:
                raise TemplateFailed(
                    f"the rendered conversation is longer than {bounds.max_chars} characters; send a shorter one"
                )
            parts.append(piece)
        return "".join(parts)


def _read_tokenizer_config(model_dir: Path) -> dict[str, Any]:
    path = model_dir / "tokenizer_config.json"
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadTemplate(f"{path} is not valid JSON: {error}") from error
    if not isinstance(config, dict):
        raise BadTemplate(f"{path} holds no JSON object")
    return config


def _template_of(config: Mapping[str, Any]) -> str | None:
    """Either one string, or a list of named templates of which "default" is meant."""
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _special_tokens_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Keys that end in `_token`; a value is the text itself or an added-token object with `content`."""
    tokens: dict[str, str] = {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            tokens[name] = text
    return tokens

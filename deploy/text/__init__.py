"""Text on one side, token ids on the other: tokenizer, chat template, detokenizer, stop strings. No HTTP here."""

from deploy.text.chat_template import ChatTemplate, RenderBudget
from deploy.text.detokenizer import Detokenizer
from deploy.text.errors import BadTemplate, BadTokenizer, TemplateFailed, TextError
from deploy.text.stop_strings import StopMatcher
from deploy.text.tokenizer import TextTokenizer

__all__ = [
    "BadTemplate",
    "BadTokenizer",
    "ChatTemplate",
    "Detokenizer",
    "RenderBudget",
    "StopMatcher",
    "TemplateFailed",
    "TextError",
    "TextTokenizer",
]

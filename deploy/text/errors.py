"""What can go wrong between text and tokens.

TextError
├── BadTokenizer     the model folder's tokenizer cannot be used: the server must not start
├── BadTemplate      the model folder's chat template cannot be used: the server must not start
└── TemplateFailed   this conversation cannot be rendered: the client's 400
"""


class TextError(Exception):
    """Root of this package's errors; the message may be shown to a user."""


class BadTokenizer(TextError):
    """The tokenizer file is missing, unreadable or of an unknown kind."""


class BadTemplate(TextError):
    """The chat template is unreadable or not valid Jinja."""


class TemplateFailed(TextError):
    """The template refused the conversation, or rendering passed its bound in time or size."""

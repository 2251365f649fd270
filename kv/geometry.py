"""How tokens fill pages. The only place where tokens are turned into pages."""


def pages_for(num_tokens: int, page_size: int) -> int:
    """Pages that hold `num_tokens` tokens; a page that is only begun counts whole."""
    return -(-num_tokens // page_size)

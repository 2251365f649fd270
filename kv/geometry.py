"""How tokens fill pages, and what choices of one prompt share. The only place where tokens are turned into pages.

`n` choices share the full pages of all prompt tokens but the last, which each of them computes for its own first draw.
Beyond those pages each has pages of its own.
"""


def pages_for(num_tokens: int, page_size: int) -> int:
    """Pages that hold `num_tokens` tokens; a page that is only begun counts whole."""
    return -(-num_tokens // page_size)


def shared_pages(num_prompt: int, n: int, page_size: int) -> int:
    """Pages that `n` choices of a prompt share; 0 for a choice alone."""
    return max(0, num_prompt - 1) // page_size if n > 1 else 0


def pages_together(each: int, shared: int, choices: int) -> int:
    """Pages of `choices` that hold `each`, `shared` of them counted once."""
    return shared + choices * (each - shared)


def most_pages_of_each(num_pages: int, shared: int, n: int) -> int:
    """Pages that each of `n` choices may hold of a pool: what is shared and an even part of the rest.

    So all of them always fit together, and no choice's length depends on another's.
    """
    return shared + (num_pages - shared) // n

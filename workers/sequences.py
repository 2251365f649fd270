"""A rank's mirror of the sequences it serves: their tokens, page tables and sampling, kept up to date by plans."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from scheduler.plan import NewSequence
from workers.errors import RankDisagreement
from workers.ops.batch import Int32
from workers.token_counts import TokenCounts


class SequenceMirror:
    """One sequence. `num_computed` positions have KV; `table` is its row in the page tables, of `num_pages` entries."""

    def __init__(self, new: NewSequence, table: int) -> None:
        self.seq_id = new.seq_id
        self.sampling = new.sampling
        self.table = table
        self.num_pages = 0
        self.num_computed = 0
        self.num_tokens = len(new.tokens)
        self._tokens = np.zeros(len(new.tokens) + 256, dtype=np.int32)
        self._tokens[: len(new.tokens)] = new.tokens
        prompt, output = new.tokens[: new.num_prompt_tokens], new.tokens[new.num_prompt_tokens :]
        self.counts = TokenCounts(prompt, output) if new.sampling.has_penalties else None

    def tokens(self, start: int, end: int) -> Int32:
        return self._tokens[start:end]

    def append(self, token: int) -> None:
        """Take the token drawn after the last."""
        if self.num_tokens == len(self._tokens):
            self._tokens = np.concatenate([self._tokens, np.zeros_like(self._tokens)])
        self._tokens[self.num_tokens] = token
        self.num_tokens += 1
        if self.counts is not None:
            self.counts.append(token)


class SequenceTable:
    """All sequences by id, and their page tables as one array [rows, pages] that kernels index by row.

    `max_len` tokens are the longest sequence's; its pages are taken from a pool of `num_pages`.
    """

    def __init__(self, max_len: int, page_size: int, num_pages: int, num_rows: int = 64) -> None:
        self._page_size = page_size
        self._num_pages = num_pages
        self.page_tables: Int32 = np.zeros((num_rows, -(-max_len // page_size)), dtype=np.int32)
        self._free_rows = list(range(num_rows - 1, -1, -1))
        self._sequences: dict[int, SequenceMirror] = {}

    def __len__(self) -> int:
        return len(self._sequences)

    def __contains__(self, seq_id: int) -> bool:
        return seq_id in self._sequences

    def get(self, seq_id: int) -> SequenceMirror:
        sequence = self._sequences.get(seq_id)
        if sequence is None:
            raise RankDisagreement(f"the plan names sequence {seq_id}, which this rank does not know")
        return sequence

    def add(self, new: NewSequence) -> None:
        if new.seq_id in self._sequences:
            raise RankDisagreement(f"the plan brings sequence {new.seq_id} as new, but this rank knows it already")
        if not self._free_rows:
            rows = len(self.page_tables)
            self.page_tables = np.concatenate([self.page_tables, np.zeros_like(self.page_tables)])
            self._free_rows = list(range(2 * rows - 1, rows - 1, -1))
        sequence = self._sequences[new.seq_id] = SequenceMirror(new, self._free_rows.pop())
        self._replace(sequence, new.page_ids, new.num_computed)

    def remove(self, seq_id: int) -> None:
        self._free_rows.append(self.get(seq_id).table)
        del self._sequences[seq_id]

    def grant(self, seq_id: int, page_ids: tuple[int, ...]) -> None:
        """Append pages, in logical order."""
        sequence = self.get(seq_id)
        self._put(sequence, sequence.num_pages, page_ids)

    def reset(self, seq_id: int, page_ids: tuple[int, ...], num_computed: int) -> None:
        """Make the pages the whole table, with KV for the first `num_computed` positions."""
        self._replace(self.get(seq_id), page_ids, num_computed)

    def _replace(self, sequence: SequenceMirror, page_ids: tuple[int, ...], num_computed: int) -> None:
        held = len(page_ids) * self._page_size
        if not 0 <= num_computed <= min(held, sequence.num_tokens):
            raise RankDisagreement(
                f"sequence {sequence.seq_id} has {sequence.num_tokens} tokens and pages for {held}; the plan counts "
                f"{num_computed} as computed"
            )
        self._put(sequence, 0, page_ids)
        sequence.num_computed = num_computed

    def _put(self, sequence: SequenceMirror, first: int, page_ids: tuple[int, ...]) -> None:
        end = first + len(page_ids)
        if end > self.page_tables.shape[1]:
            raise RankDisagreement(
                f"sequence {sequence.seq_id} would hold {end} pages; the longest holds {self.page_tables.shape[1]}"
            )
        check_pages(page_ids, self._num_pages, f"sequence {sequence.seq_id}")
        self.page_tables[sequence.table, first:end] = page_ids
        sequence.num_pages = end


def check_pages(page_ids: Iterable[int], bound: int, owner: str) -> npt.NDArray[np.int64]:
    """Page or slot ids as an array. Raises `RankDisagreement` when one is outside [0, bound)."""
    ids = np.fromiter(page_ids, dtype=np.int64)
    if len(ids) and (ids.min() < 0 or ids.max() >= bound):
        raise RankDisagreement(f"{owner} is given page or slot {ids.min()}..{ids.max()}, outside 0..{bound - 1}")
    return ids

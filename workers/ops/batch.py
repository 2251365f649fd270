"""The rows of one forward pass, and which sequence and page each belongs to.

Rows of one sequence are contiguous and ascend in position. A rank builds a batch of numpy arrays; a backend on another
array type places it (`Attention.place`).
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

A = TypeVar("A")

Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSpan:
    """Rows [first_row, first_row + num_rows) continue the sequence in row `table` of the page tables to `num_context`
    tokens.
    """

    first_row: int
    num_rows: int
    table: int
    num_context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(Generic[A]):
    """M rows. `page_ids[m]` is the page that holds position `positions[m]`.

    `row_tables[m]` is the row of `page_tables` [S, P] that lists the pages of m's sequence; `sampled_rows` [R] are the
    rows whose logits are wanted, ascending.
    """

    num_rows: int
    num_sampled: int
    tokens: A
    positions: A
    page_ids: A
    row_tables: A
    page_tables: A
    sampled_rows: A
    spans: tuple[RowSpan, ...]

"""The inside of paged attention: one tile of positions times the query heads of one KV head, span after span of slots.

A span is SPAN slots at a fixed logical place. For each: scores of all rows (the micro-kernel over D), one new maximum
and the weights of each row, then values (the micro-kernel over slots). A row that sees nothing of a span is left
exactly as it was, and a slot that a row does not see weighs exactly zero: a row's bits do not depend on its tile.
"""

import math
from typing import Any

import numpy as np

from workers.kernels.checks import MAX_HEAD_DIM
from workers.kernels.compile import native_lanes, part, tile_part
from workers.kernels.exponential import exp
from workers.kernels.simd import (
    address,
    keep_first,
    larger,
    largest_lane,
    load,
    load_f32,
    load_i64,
    splat,
    stack,
    store,
    store_f32,
    store_i64,
    sum_lanes,
)
from workers.kernels.tile import TileShape, make_tile

SPAN = 64
BLOCK = 16
BLOCKS = SPAN // BLOCK
MAX_ROWS = 48  # of a tile: positions times query heads
_SCORE_BLOCKS = 2 if native_lanes() == 16 else 1
_MINUS_INFINITY = np.float32(-math.inf)
# Of the stack, in bytes.
_TILE_BYTES, _SCORE_BYTES = MAX_ROWS * MAX_HEAD_DIM * 4, MAX_ROWS * SPAN * 4
_TOTALS_BYTES, _PEAKS_BYTES, _ADDRESSES_BYTES = MAX_ROWS * 64, MAX_ROWS * 4, BLOCKS * 8


@part
def _load_queries(q, tile, scale, queries):  # type: ignore[no-untyped-def]
    """Row p * heads + h becomes q[first_row + p, head + h] * scale."""
    first_row, count, head, heads, _kv_head = tile
    width, factor = heads * q.shape[2], splat(scale)
    for p in range(count):
        source = address(q) + ((first_row + p) * q.shape[1] + head) * q.shape[2] * 4
        for i in range(0, width, 16):
            store(queries + (p * width + i) * 4, load(source + i * 4) * factor)


@part
def _weigh(scores: int, num_visible: int, peak: int, total: int, sums: int, head_dim: int) -> None:  # noqa: PLR0917
    """Turn one row's scores of a span into weights; rescale what the row has summed so far to the new maximum.

    `num_visible` >= 1 slots of the span count; the weights of the others become zeros.
    """
    top = keep_first(load(scores), num_visible)
    for b in range(1, BLOCKS):
        top = larger(keep_first(load(scores + b * 64), num_visible - b * BLOCK), top)
    old = load_f32(peak)
    new = max(old, largest_lane(top))
    store_f32(peak, new)
    maximum = splat(new)
    shrink = exp(splat(old) - maximum)
    totals = load(total) * shrink
    for b in range(BLOCKS):
        weights = exp(keep_first(load(scores + b * 64), num_visible - b * BLOCK) - maximum)
        store(scores + b * 64, weights)
        totals = totals + weights
    store(total, totals)
    if new != old:
        for i in range(0, head_dim, 16):
            store(sums + i * 4, load(sums + i * 4) * shrink)


@part
def _write_rows(sums, totals, tile, head_dim, out):  # type: ignore[no-untyped-def]
    first_row, count, head, heads, _kv_head = tile
    for p in range(count):
        for h in range(heads):
            row = p * heads + h
            total = splat(sum_lanes(load(totals + row * 64)))
            target = address(out) + ((first_row + p) * out.shape[1] + (head + h) * head_dim) * 4
            for i in range(0, head_dim, 16):
                store(target + i * 4, load(sums + (row * head_dim + i) * 4) / total)


def _make_find_blocks(element_bytes: int) -> Any:
    @part
    def find_blocks(places, page_table, kv_head, start, last, keys, values):  # type: ignore[no-untyped-def]  # noqa: PLR0917
        """Addresses of K and V of the span's blocks from slot `start` on; `last` stands for the blocks beyond it."""
        layer_at, page_stride, num_kv_heads, head_dim, page_size = places
        head_bytes = head_dim * page_size * element_bytes
        for b in range(BLOCKS):
            slot = min(start + b * BLOCK, last)
            offset = slot % page_size
            base = layer_at + page_table[slot // page_size] * page_stride + kv_head * head_bytes
            store_i64(keys + b * 8, base + offset * element_bytes)
            store_i64(values + b * 8, base + num_kv_heads * head_bytes + offset * head_dim * element_bytes)

    return find_blocks


def _make_score(encoding: str, element_bytes: int) -> Any:
    shape = TileShape(_SCORE_BLOCKS, BLOCK // native_lanes(), encoding, native_lanes(), prefetch_next=True)
    score_tile, most = make_tile(shape), shape.max_rows

    @tile_part
    def score(rows, queries, places, keys, ahead, num_blocks, scores):  # type: ignore[no-untyped-def]  # noqa: PLR0917
        head_dim, row_bytes = places[3], places[4] * element_bytes
        for b in range(0, num_blocks, _SCORE_BLOCKS):
            start, left = 0, (rows + most - 1) // most
            while left:
                n = (rows - start) // left
                a, c = queries + start * head_dim * 4, scores + (start * SPAN + b * BLOCK) * 4
                score_tile(n, a, head_dim, keys + b * 8, head_dim, head_dim, c, SPAN, 0, row_bytes, ahead + b * 8)
                start += n
                left -= 1

    return score


def _make_add_columns(vectors: int, encoding: str, element_bytes: int) -> Any:
    shape = TileShape(1, vectors, encoding, native_lanes(), prefetch_next=True, row_limit=6)
    value_tile, most, num_columns = make_tile(shape), shape.max_rows, vectors * native_lanes()

    @tile_part
    def add_columns(rows, scores, num_slots, values, ahead, sums, head_dim):  # type: ignore[no-untyped-def]  # noqa: PLR0917
        """Add the weighted values of as many columns as one tile is wide, and move on to the next columns of V."""
        start, left = 0, (rows + most - 1) // most
        while left:
            n = (rows - start) // left
            a, c = scores + start * SPAN * 4, sums + start * head_dim * 4
            value_tile(n, a, SPAN, values, BLOCK, num_slots, c, head_dim, 1, head_dim * element_bytes, ahead)
            start += n
            left -= 1
        for b in range(BLOCKS):
            store_i64(values + b * 8, load_i64(values + b * 8) + num_columns * element_bytes)
            store_i64(ahead + b * 8, load_i64(ahead + b * 8) + num_columns * element_bytes)

    return add_columns


def make_attend_tile(encoding: str, element_bytes: int) -> Any:
    """`attend_tile(q, places, positions, page_table, tile, scale, out)` for a pool of this encoding.

    tile: first_row, count (of rows), head, heads (of q), kv_head. places: address of the layer in page 0, bytes from
    page to page, KV heads, head size, slots a page.
    """
    find_blocks, score = _make_find_blocks(element_bytes), _make_score(encoding, element_bytes)
    narrow_vectors = 16 // native_lanes()
    # Four AVX-512 registers of V a step serve six rows; AVX2 has registers for sixteen columns.
    wide_vectors = 4 if native_lanes() == 16 else narrow_vectors
    wide_columns = wide_vectors * native_lanes()
    add_wide = _make_add_columns(wide_vectors, encoding, element_bytes)
    add_narrow = _make_add_columns(narrow_vectors, encoding, element_bytes) if wide_columns > 16 else add_wide

    @tile_part
    def attend_tile(q, places, positions, page_table, tile, scale, out):  # type: ignore[no-untyped-def]  # noqa: PLR0917
        first_row, count, _head, heads, kv_head = tile
        head_dim, rows = places[3], count * heads
        queries, sums, scores = stack(_TILE_BYTES), stack(_TILE_BYTES), stack(_SCORE_BYTES)
        totals, peaks = stack(_TOTALS_BYTES), stack(_PEAKS_BYTES)
        keys, values = stack(_ADDRESSES_BYTES), stack(_ADDRESSES_BYTES)
        next_keys, next_values = stack(_ADDRESSES_BYTES), stack(_ADDRESSES_BYTES)
        zeros = splat(np.float32(0))
        _load_queries(q, tile, scale, queries)
        for i in range(0, rows * head_dim, 16):
            store(sums + i * 4, zeros)
        for row in range(rows):
            store(totals + row * 64, zeros)
            store_f32(peaks + row * 4, _MINUS_INFINITY)
        end = np.int64(positions[first_row + count - 1]) + 1
        for start in range(0, end, SPAN):
            num_slots = min(SPAN, int(end - start))
            num_blocks = (num_slots + BLOCK - 1) // BLOCK
            last = (end - 1) // BLOCK * BLOCK
            find_blocks(places, page_table, kv_head, start, last, keys, values)
            find_blocks(places, page_table, kv_head, start + SPAN, last, next_keys, next_values)
            score(rows, queries, places, keys, next_keys, num_blocks, scores)
            for row in range(rows):
                visible = positions[first_row + row // heads] + 1 - start
                at, row_sums = scores + row * SPAN * 4, sums + row * head_dim * 4
                if visible > 0:
                    _weigh(at, visible, peaks + row * 4, totals + row * 64, row_sums, head_dim)
                else:
                    for i in range(0, SPAN, 16):
                        store(at + i * 4, zeros)
            for column in range(0, head_dim - head_dim % wide_columns, wide_columns):
                add_wide(rows, scores, num_slots, values, next_values, sums + column * 4, head_dim)
            for column in range(head_dim - head_dim % wide_columns, head_dim, 16):
                add_narrow(rows, scores, num_slots, values, next_values, sums + column * 4, head_dim)
        _write_rows(sums, totals, tile, head_dim, out)

    return attend_tile

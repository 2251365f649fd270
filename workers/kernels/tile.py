"""The micro-kernel: a tile of outputs held in registers while the reduction runs, as explicit LLVM IR.

    c[r, j] (+)= sum over k of a[r, k] * b[k, j]        r < rows, j < columns

The sum over k is strictly sequential, one fused multiply-add a step, for every output element. So an output's bits
depend neither on how many rows share the tile nor on the vector width of the CPU: lanes are output columns, never parts
of a sum. The reduction may be cut anywhere (`resume` goes on from what is in c): the bits stay.

B lies in blocks of columns at explicit addresses (weight panels, or pages): `blocks` of them side by side, and the
reduction runs through `seg_len` steps in each set before it goes to the next set of addresses.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import Any

from llvmlite import ir
from numba.core import types

from workers.kernels.simd import emits

I32, I64, PTR = ir.IntType(32), ir.IntType(64), ir.PointerType()
F32, BYTE = ir.FloatType(), ir.IntType(8)
UNROLL = 4
# x86 adds one register times 1, 2, 4 or 8: two rows beyond a base pointer need no pointer of their own.
ROWS_PER_BASE = 3


@dataclass(frozen=True)
class TileShape:
    """One family of micro-kernels. `encoding` of B's elements: "f32"; "bf16"; or "pairs", where a 32-bit word holds the
    bf16 of column j in its low half and that of column j + lanes in its high half. `vectors` of `lanes` columns lie in
    each of `blocks` blocks. `row_bytes` is the distance between two k of a block, 0 if it is known only at run time.

    Memory is asked for in advance `prefetch_bytes` beyond each block's loads (0: not at all), or, with `prefetch_next`,
    at the place that the same k has in other blocks, those of the next call.
    """

    blocks: int
    vectors: int
    encoding: str
    lanes: int
    row_bytes: int = 0
    prefetch_bytes: int = 0
    prefetch_next: bool = False
    row_limit: int = 12

    @property
    def max_rows(self) -> int:
        """Rows whose accumulators, with one row of B and one broadcast, fit the registers."""
        num_registers = 32 if self.lanes >= 16 else 16
        rows = (num_registers - 1) // (self.blocks * self.vectors) - 1
        return max(1, min(self.row_limit, rows))

    @property
    def name(self) -> str:
        return "_".join(str(value) for value in astuple(self))


class _TileWriter:
    """Writes one function `(a, lda, b, seg_len, k, c, ldc, resume, row_bytes, ahead)`; see `make_tile` for the units.

    Loop variables and accumulators are stack slots here; LLVM keeps them in registers.
    """

    def __init__(self, function: ir.Function, rows: int, shape: TileShape) -> None:
        self.rows, self.shape, self.function = rows, shape, function
        self.vector, self.words = ir.VectorType(F32, shape.lanes), ir.VectorType(I32, shape.lanes)
        self.fma = _declare(function.module, f"llvm.fma.v{shape.lanes}f32", self.vector, [self.vector] * 3)
        builder = self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        self.a, self.lda, self.b, self.seg_len, self.k, self.c, self.ldc, self.resume, row_bytes, ahead = function.args
        self.row_bytes = ir.Constant(I64, shape.row_bytes) if shape.row_bytes else row_bytes
        columns = shape.blocks * shape.vectors
        self.acc = [[builder.alloca(self.vector) for _ in range(columns)] for _ in range(rows)]
        self.a_bases = [builder.alloca(PTR) for _ in range(-(-rows // ROWS_PER_BASE))]
        self.b_now = [builder.alloca(PTR) for _ in range(shape.blocks)]
        self.ahead_now = [builder.alloca(PTR) for _ in range(shape.blocks if shape.prefetch_next else 0)]
        self.left, self.steps_left = builder.alloca(I64), builder.alloca(I64)
        self.lists = builder.alloca(PTR), builder.alloca(PTR)
        for value, slot in zip((self.b, ahead), self.lists, strict=True):
            builder.store(value, slot)

    def write(self) -> None:
        builder = self.builder
        for i, base in enumerate(self.a_bases):
            offset = builder.mul(self.lda, ir.Constant(I64, ROWS_PER_BASE * i))
            builder.store(builder.gep(self.a, [offset], source_etype=F32), base)
        self._start_accumulators()
        builder.store(self.k, self.left)
        with self._while_positive(self.left):
            remaining = builder.load(self.left, typ=I64)
            steps = builder.select(builder.icmp_signed("<", remaining, self.seg_len), remaining, self.seg_len)
            builder.store(builder.sub(remaining, steps), self.left)
            self._next_blocks(self.lists[0], self.b_now)
            self._next_blocks(self.lists[1], self.ahead_now)
            whole = builder.udiv(steps, ir.Constant(I64, UNROLL))
            self._steps(whole, UNROLL)
            self._steps(builder.sub(steps, builder.mul(whole, ir.Constant(I64, UNROLL))), 1)
        for r, row in enumerate(self.acc):
            for column, slot in enumerate(row):
                builder.store(builder.load(slot, typ=self.vector), self._c_address(r, column), align=4)
        builder.ret_void()

    @contextmanager
    def _while_positive(self, counter: ir.Value) -> Iterator[None]:
        head, body, done = (self.function.append_basic_block(name) for name in ("head", "body", "done"))
        self.builder.branch(head)
        self.builder.position_at_end(head)
        more = self.builder.icmp_signed(">", self.builder.load(counter, typ=I64), ir.Constant(I64, 0))
        self.builder.cbranch(more, body, done)
        self.builder.position_at_end(body)
        yield
        self.builder.branch(head)
        self.builder.position_at_end(done)

    def _next_blocks(self, segment: ir.Value, slots: list[ir.Value]) -> None:
        """Take one address for each slot from the list, and leave the list behind them."""
        builder = self.builder
        addresses = builder.load(segment, typ=PTR)
        for block, slot in enumerate(slots):
            where = builder.gep(addresses, [ir.Constant(I64, block)], source_etype=I64)
            builder.store(builder.inttoptr(builder.load(where, typ=I64), PTR), slot)
        builder.store(builder.gep(addresses, [ir.Constant(I64, len(slots))], source_etype=I64), segment)

    def _c_address(self, row: int, column: int) -> ir.Value:
        offset = self.builder.mul(self.ldc, ir.Constant(I64, row))
        offset = self.builder.add(offset, ir.Constant(I64, column * self.shape.lanes))
        return self.builder.gep(self.c, [offset], source_etype=F32)

    def _start_accumulators(self) -> None:
        builder = self.builder
        fresh, going_on, ready = (self.function.append_basic_block(name) for name in ("fresh", "going_on", "ready"))
        builder.cbranch(builder.icmp_signed("!=", self.resume, ir.Constant(I64, 0)), going_on, fresh)
        builder.position_at_end(fresh)
        for row in self.acc:
            for slot in row:
                builder.store(ir.Constant(self.vector, [0.0] * self.shape.lanes), slot)
        builder.branch(ready)
        builder.position_at_end(going_on)
        for r, row in enumerate(self.acc):
            for column, slot in enumerate(row):
                builder.store(builder.load(self._c_address(r, column), align=4, typ=self.vector), slot)
        builder.branch(ready)
        builder.position_at_end(ready)

    def _steps(self, count: ir.Value, unroll: int) -> None:
        builder = self.builder
        builder.store(count, self.steps_left)
        with self._while_positive(self.steps_left):
            a_bases = [builder.load(slot, typ=PTR) for slot in self.a_bases]
            for step in range(unroll):
                self._step(a_bases, step)
            for slot, base in zip(self.a_bases, a_bases, strict=True):
                builder.store(builder.gep(base, [ir.Constant(I64, unroll)], source_etype=F32), slot)
            left = builder.sub(builder.load(self.steps_left, typ=I64), ir.Constant(I64, 1))
            builder.store(left, self.steps_left)

    def _step(self, a_bases: list[ir.Value], step: int) -> None:
        """One k: load the row of B, broadcast each row's a, multiply and add; move B's addresses on."""
        builder = self.builder
        b_row = [vector for slot in self.b_now for vector in self._load_b(builder.load(slot, typ=PTR))]
        for slot in self.ahead_now:
            element_bytes = 4 if self.shape.encoding == "f32" else 2
            self._prefetch(builder.load(slot, typ=PTR), self.shape.vectors * self.shape.lanes * element_bytes, 2)
        for r in range(self.rows):
            offset = builder.mul(self.lda, ir.Constant(I64, r % ROWS_PER_BASE))
            row = builder.gep(a_bases[r // ROWS_PER_BASE], [offset], source_etype=F32)
            a = builder.load(builder.gep(row, [ir.Constant(I64, step)], source_etype=F32), align=4, typ=F32)
            a = self._splat(a)
            for slot, b in zip(self.acc[r], b_row, strict=True):
                builder.store(builder.call(self.fma, [a, b, builder.load(slot, typ=self.vector)]), slot)
        for slot in self.b_now + self.ahead_now:
            builder.store(builder.gep(builder.load(slot, typ=PTR), [self.row_bytes], source_etype=BYTE), slot)

    def _splat(self, scalar: ir.Value) -> ir.Value:
        undefined = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
        return self.builder.shuffle_vector(first, undefined, ir.Constant(self.words, [0] * self.shape.lanes))

    def _load_b(self, pointer: ir.Value) -> list[ir.Value]:
        """One k of one block as `vectors` float vectors. bf16 is the high half of a float: widening is a shift."""
        builder, shape = self.builder, self.shape
        if shape.prefetch_bytes:
            ahead = builder.gep(pointer, [ir.Constant(I64, shape.prefetch_bytes)], source_etype=BYTE)
            self._prefetch(ahead, shape.row_bytes, 3)
        shift = ir.Constant(self.words, [16] * shape.lanes)
        vectors = []
        if shape.encoding == "pairs":
            high_half = ir.Constant(self.words, [0xFFFF0000] * shape.lanes)
            for i in range(shape.vectors // 2):
                where = builder.gep(pointer, [ir.Constant(I64, i)], source_etype=self.words)
                words = builder.load(where, align=4, typ=self.words)
                vectors += [builder.shl(words, shift), builder.and_(words, high_half)]
            return [builder.bitcast(words, self.vector) for words in vectors]
        for i in range(shape.vectors):
            if shape.encoding == "bf16":
                halves = ir.VectorType(ir.IntType(16), shape.lanes)
                where = builder.gep(pointer, [ir.Constant(I64, i)], source_etype=halves)
                words = builder.zext(builder.load(where, align=2, typ=halves), self.words)
                vectors.append(builder.bitcast(builder.shl(words, shift), self.vector))
            else:
                where = builder.gep(pointer, [ir.Constant(I64, i)], source_etype=self.vector)
                vectors.append(builder.load(where, align=4, typ=self.vector))
        return vectors

    def _prefetch(self, start: ir.Value, num_bytes: int, level: int) -> None:
        """Ask for the cache lines of [start, start + num_bytes); level 3 is the first cache, 2 the second."""
        prefetch = _declare(self.function.module, "llvm.prefetch.p0", ir.VoidType(), [PTR, I32, I32, I32])
        for offset in range(0, num_bytes, 64):
            line = self.builder.gep(start, [ir.Constant(I64, offset)], source_etype=BYTE)
            self.builder.call(prefetch, [line, *(ir.Constant(I32, flag) for flag in (0, level, 1))])


def _declare(module: ir.Module, name: str, result: ir.Type, arguments: list[ir.Type]) -> ir.Function:
    known = module.globals.get(name)
    return known if known is not None else ir.Function(module, ir.FunctionType(result, arguments), name)


def _tile_function(module: ir.Module, rows: int, shape: TileShape) -> ir.Function:
    name = f"parkade_tile_{rows}_{shape.name}"
    function = module.globals.get(name)
    if function is None:
        arguments = [PTR, I64, PTR, I64, I64, PTR, I64, I64, I64, PTR]
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        for pointer in (0, 2, 5, 9):
            function.args[pointer].add_attribute("noalias")
        _TileWriter(function, rows, shape).write()
    return function


def make_tile(shape: TileShape) -> Any:
    """An intrinsic `tile(rows, a, lda, b, seg_len, k, c, ldc, resume, row_bytes, ahead)`, 1 <= rows <= shape.max_rows.

    a, b, c: addresses; a and c of float32, lda and ldc in floats between rows; b of int64 block addresses,
    `shape.blocks` for every `seg_len` steps of k. resume: 0 starts the sums at zero, else they go on from c. row_bytes:
    bytes between two k of a block, unused where the shape knows it. ahead: a list like b of blocks to prefetch, unused
    without `prefetch_next`.
    """

    def tile(builder: ir.IRBuilder, *values: ir.Value) -> None:
        rows, a, lda, b, seg_len, k, c, ldc, resume, row_bytes, ahead = values
        a, b, c, ahead = (builder.inttoptr(where, PTR) for where in (a, b, c, ahead))
        impossible, end = builder.append_basic_block("impossible"), builder.append_basic_block("end")
        choice = builder.switch(rows, impossible)
        for count in range(1, shape.max_rows + 1):
            function = _tile_function(builder.module, count, shape)
            block = builder.append_basic_block(f"rows{count}")
            choice.add_case(ir.Constant(I64, count), block)
            builder.position_at_end(block)
            builder.call(function, [a, lda, b, seg_len, k, c, ldc, resume, row_bytes, ahead])
            builder.branch(end)
        builder.position_at_end(impossible)
        builder.unreachable()
        builder.position_at_end(end)

    tile.__name__ = f"tile_{shape.name}"  # the cache tells tiles apart by name
    return emits(types.void, *[types.int64] * 11)(tile)

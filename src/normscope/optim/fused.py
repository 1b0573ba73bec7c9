"""Steps of known angles of many matrices in a few launches, whatever their shapes, on a GPU.

A network has some twenty weight matrices of a dozen shapes. Most are so small that a kernel takes
longer to launch than to run. Here a pass over all of them is one kernel, which finds each matrix in
a table of addresses. Sums are float32 and come out the same each time.
"""

# A kernel's constants are numbers where it is called, and a part of a kernel returns what it says:
# the type checker does not know.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor

from normscope.optim.newton_schulz import ITERATIONS, A, B, C

_BLOCK = 4096  # entries of a matrix that a program passes over
_CHUNK = 1024  # sums that are added at a time
_SIDE = 16  # sides of matrices are multiples of it, which matrix units need
_SPARE = 3 * 10**8  # multiplications in a product by zeros: 10 us on an H200, in all products
_OPTIONS = {"num_warps": 8}

# the numbers of a line of the table, of one matrix
_G, _V, _W = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)  # addresses: gradient, momentum, w
_NORM = tl.constexpr(3)  # address of the norm to keep
_FIRST, _SIZE, _COLUMNS = tl.constexpr(4), tl.constexpr(5), tl.constexpr(6)  # block, entries
_PLACE, _DOWN, _ACROSS = tl.constexpr(7), tl.constexpr(8), tl.constexpr(9)  # in the batches
_FIELDS = tl.constexpr(10)


class Turns:
    """One step of many matrices; made, they have momentum and directions to orthogonalise.

    Args:
        w: weights, rows first and contiguous, as all that follows; in float32, on one device.
        v: their momentum, which moves.
        g: their gradients.
        norms: scalars.
        momentum: the old momentum's share of the new.
    """

    def __init__(
        self,
        w: Sequence[Tensor],
        v: Sequence[Tensor],
        g: Sequence[Tensor],
        norms: Sequence[Tensor],
        *,
        momentum: float,
    ) -> None:
        device = w[0].device
        sizes = [(len(p), p.numel() // len(p)) for p in w]
        batches = _batches(sizes)
        lines, first = [], 0
        places = _places(sizes, batches)
        for *each, (_, columns), place in zip(g, v, w, norms, sizes, places, strict=True):
            addresses = (x.data_ptr() for x in each)
            lines += [*addresses, first, each[2].numel(), columns, *place]
            first += triton.cdiv(each[2].numel(), _BLOCK)
        # numbers in a launch, unlike a copy of theirs, may be new in each step that is recorded
        self._table = torch.zeros(len(lines), dtype=torch.int64, device=device)
        torch._foreach_add_(list(self._table.unbind()), lines)  # pyright: ignore
        self._w, self._others = w, (v, g, norms)  # kept: kernels have their addresses alone
        self._k, self._blocks = len(w), first
        self._width = max(16, triton.next_power_of_2(self._k))
        self._parts = torch.empty(3, self._blocks, device=device)
        self._found = torch.empty(4, self._k, device=device)

        shapes = [(len(batch), m, n) for batch, m, n in batches]
        pieces = [k * m * n for k, m, n in shapes]
        dtype = torch.bfloat16 if w[0].is_cuda else torch.float32
        self._x = torch.empty(sum(pieces), dtype=dtype, device=device)
        self._x[sum(pieces[: _first_padded(sizes, batches)]) :].zero_()
        y = torch.empty_like(self._x)
        views = zip(self._x.split(pieces), y.split(pieces), shapes, strict=True)
        self._batches = [(x.view(shape), y.view(shape)) for x, y, shape in views]
        self._d = self._x if ITERATIONS % 2 == 0 else y

        size = (self._k, self._width, _BLOCK)
        _move[(self._blocks,)](self._table, self._parts, self._blocks, momentum, *size, **_OPTIONS)
        _lengths[(self._k,)](
            self._table, self._parts, self._found, self._blocks, self._k, _BLOCK, _CHUNK
        )
        _directions[(self._blocks,)](self._table, self._found, self._x, *size, **_OPTIONS)

    def orthogonalisations(self) -> list[Callable[[], None]]:
        """What to do before `finish_`, in any order or side by side; the largest first."""
        return [partial(_orthogonalise_, x, y) for x, y in self._batches]

    def finish_(self, cos: Tensor, sin: Tensor, plain: Tensor) -> None:
        """Turn the weights, once all batches are orthogonal.

        Args:
            cos: of the angle, a scalar, as all here.
            sin: of the angle.
            plain: rate of weights that were zero.
        """
        size = (self._k, self._width, _BLOCK)
        _products[(self._blocks,)](
            self._table, self._d, self._parts, self._blocks, *size, **_OPTIONS
        )
        _coefficients[(self._k,)](
            *(self._table, self._parts, self._found, cos, sin, plain),
            *(self._blocks, self._k, _BLOCK, _CHUNK),
        )
        _turn[(self._blocks,)](self._table, self._found, self._d, *size, **_OPTIONS)
        for p in self._w:  # as in-place operations do, for autograd to find what changed
            torch.autograd.graph.increment_version(p)


def _orthogonalise_(x: Tensor, spare: Tensor) -> None:
    """The iterations of `orthogonalised`, from x to `spare` if their number is odd, else to x.

    Args:
        x: matrices of norm one, (k, rows, columns), rows <= columns.
        spare: as large.
    """
    k, m, _ = x.shape
    square = x.new_empty(k, m, m)
    factor = torch.empty_like(square)
    tile = 64 if m <= 512 else 128
    tiles = triton.cdiv(m, tile)
    options = {"num_warps": 4 if tile == 64 else 8, "num_stages": 3}
    for _ in range(ITERATIONS):
        torch.bmm(x, x.mT, out=square)
        # with a x in the factor, no product adds to a copy of x
        _polynomial[(tiles, tiles, k)](square, factor, m, A, B, C, tile, 4096 // tile, **options)
        torch.bmm(factor, x, out=spare)
        x, spare = spare, x


Batch = tuple[list[int], int, int]  # matrices that are multiplied together; rows and columns


def _batches(sizes: Sequence[tuple[int, int]]) -> list[Batch]:
    """Matrices together that cost little to fill up with zeros to one shape; the largest first."""
    sides = [sorted(triton.cdiv(side, _SIDE) * _SIDE for side in size) for size in sizes]
    found: list[Batch] = []
    left = 0
    for i in sorted(range(len(sides)), key=lambda i: sides[i], reverse=True):
        m, n = sides[i]
        _, rows, columns = found[-1] if found else ([], 0, 0)
        spare = rows * rows * columns - m * m * n
        if n <= columns and spare <= left:
            found[-1][0].append(i)
            left -= spare
        else:
            found.append(([i], m, n))
            left = _SPARE
    return sorted(found, key=lambda batch: -len(batch[0]) * batch[1] ** 2 * batch[2])


def _places(
    sizes: Sequence[tuple[int, int]], batches: Sequence[Batch]
) -> list[tuple[int, int, int]]:
    """Of each matrix in the batches: its start, and the steps to the next row and column."""
    found = [(0, 0, 0)] * len(sizes)
    start = 0
    for batch, m, n in batches:
        for i in batch:
            rows, columns = sizes[i]
            found[i] = (start, 1, n) if rows > columns else (start, n, 1)  # tall ones lie down
            start += m * n
    return found


def _first_padded(sizes: Sequence[tuple[int, int]], batches: Sequence[Batch]) -> int:
    """The number of batches, the largest, that have no zeros added."""
    full = [all(sorted(sizes[i]) == [m, n] for i in batch) for batch, m, n in batches]
    return [*full, False].index(False)


@triton.jit
def _entries(table_at, k, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """A program's matrix, its line of the table, the program's entries, and which there are."""
    block = tl.program_id(0)
    each = tl.arange(0, WIDTH)
    first = tl.load(table_at + each * _FIELDS + _FIRST, mask=each < k, other=0)
    j = tl.sum(((first <= block) & (each < k)).to(tl.int32), 0) - 1
    line_at = table_at + j * _FIELDS
    within = (block - tl.load(line_at + _FIRST)).to(tl.int32)
    e = within * BLOCK + tl.arange(0, BLOCK)
    return j, line_at, e, e < tl.load(line_at + _SIZE).to(tl.int32)


@triton.jit
def _in_batches(line_at, e):
    """Where entries of a matrix are in the batches."""
    columns = tl.load(line_at + _COLUMNS).to(tl.int32)
    row, column = (e // columns).to(tl.int64), (e % columns).to(tl.int64)
    at = row * tl.load(line_at + _DOWN) + column * tl.load(line_at + _ACROSS)
    return tl.load(line_at + _PLACE) + at


@triton.jit
def _direction(line_at, d_at, e):
    """Entries of d: orthogonal, or of the momentum itself where there is no norm to keep."""
    norm = tl.load(tl.load(line_at + _NORM).to(tl.pointer_type(tl.float32)))
    v_at = tl.load(line_at + _V).to(tl.pointer_type(tl.float32))
    size = tl.load(line_at + _SIZE).to(tl.int32)
    turned = tl.where(norm > 0, size, 0)
    d = tl.load(d_at + _in_batches(line_at, e), mask=e < turned, other=0.0).to(tl.float32)
    return d + tl.load(v_at + e, mask=(e >= turned) & (e < size), other=0.0)


@triton.jit
def _total(parts_at, line_at, BLOCK: tl.constexpr, CHUNK: tl.constexpr):
    """The sum over a matrix of one row of parts."""
    first = tl.load(line_at + _FIRST)
    blocks = tl.cdiv(tl.load(line_at + _SIZE).to(tl.int32), BLOCK)
    sums = tl.zeros((CHUNK,), tl.float32)
    for start in range(0, blocks, CHUNK):
        block = start + tl.arange(0, CHUNK)
        sums += tl.load(parts_at + first + block, mask=block < blocks, other=0.0)
    return tl.sum(sums, 0)


@triton.jit
def _move(table_at, parts_at, blocks, momentum, k, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The momentum; parts of its square, and of the number of gradients that are not zero."""
    _, line_at, e, inside = _entries(table_at, k, WIDTH, BLOCK)
    g_at = tl.load(line_at + _G).to(tl.pointer_type(tl.float32))
    v_at = tl.load(line_at + _V).to(tl.pointer_type(tl.float32))
    g = tl.load(g_at + e, mask=inside, other=0.0)
    v = tl.load(v_at + e, mask=inside, other=0.0)
    v = momentum * v + (1 - momentum) * g
    tl.store(v_at + e, v, mask=inside)
    at = parts_at + tl.program_id(0)
    tl.store(at, tl.sum(v * v, 0))
    tl.store(at + blocks, tl.sum(tl.where(g == 0, 0.0, 1.0), 0))  # NaN is not zero


@triton.jit
def _lengths(table_at, parts_at, found_at, blocks, k, BLOCK: tl.constexpr, CHUNK: tl.constexpr):
    """The momentum's norm, and whether there is a gradient, of a matrix."""
    j = tl.program_id(0)
    line_at = table_at + j * _FIELDS
    tl.store(found_at + j, tl.sqrt(_total(parts_at, line_at, BLOCK, CHUNK)))
    tl.store(found_at + k + j, _total(parts_at + blocks, line_at, BLOCK, CHUNK))


@triton.jit
def _directions(table_at, found_at, x_at, k, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The momentum over its norm, into the batches."""
    j, line_at, e, inside = _entries(table_at, k, WIDTH, BLOCK)
    v_at = tl.load(line_at + _V).to(tl.pointer_type(tl.float32))
    length = tl.load(found_at + j)
    x = tl.load(v_at + e, mask=inside, other=0.0) / tl.where(length > 0, length, 1.0)
    tl.store(x_at + _in_batches(line_at, e), x.to(x_at.dtype.element_ty), mask=inside)


@triton.jit
def _polynomial(
    square_at,
    out_at,
    m,
    a,
    b,
    c,
    TILE: tl.constexpr,
    STEP: tl.constexpr,
):
    """The factor a I + b S + c S S of symmetric S, (k, m, m)."""
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    start = tl.program_id(2).to(tl.int64) * m * m
    square_at += start
    out_at += start
    product = tl.zeros((TILE, TILE), tl.float32)
    for first in range(0, m, STEP):
        down = first + tl.arange(0, STEP)[:, None]
        across = first + tl.arange(0, STEP)[None, :]
        left = tl.load(square_at + i * m + across, mask=(i < m) & (across < m), other=0.0)
        right = tl.load(square_at + down * m + j, mask=(down < m) & (j < m), other=0.0)
        product = tl.dot(left, right, product)
    inside = (i < m) & (j < m)
    s = tl.load(square_at + i * m + j, mask=inside, other=0.0).to(tl.float32)
    out = c * product + b * s + tl.where(i == j, a, 0.0)
    tl.store(out_at + i * m + j, out.to(out_at.dtype.element_ty), mask=inside)


@triton.jit
def _products(table_at, d_at, parts_at, blocks, k, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Parts of w.d, |w|^2 and |d|^2."""
    _, line_at, e, inside = _entries(table_at, k, WIDTH, BLOCK)
    w_at = tl.load(line_at + _W).to(tl.pointer_type(tl.float32))
    w = tl.load(w_at + e, mask=inside, other=0.0)
    d = _direction(line_at, d_at, e)
    at = parts_at + tl.program_id(0)
    tl.store(at, tl.sum(w * d, 0))
    tl.store(at + blocks, tl.sum(w * w, 0))
    tl.store(at + 2 * blocks, tl.sum(d * d, 0))


@triton.jit
def _coefficients(
    table_at,
    parts_at,
    found_at,
    cos_at,
    sin_at,
    plain_at,
    blocks,
    k,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """What a matrix and its direction are multiplied by: the formula of `alike.turned`."""
    j = tl.program_id(0)
    line_at = table_at + j * _FIELDS
    along = _total(parts_at, line_at, BLOCK, CHUNK)
    w_square = _total(parts_at + blocks, line_at, BLOCK, CHUNK)
    d_square = _total(parts_at + 2 * blocks, line_at, BLOCK, CHUNK)
    norm = tl.load(tl.load(line_at + _NORM).to(tl.pointer_type(tl.float32)))
    cos, sin = tl.load(cos_at).to(tl.float32), tl.load(sin_at).to(tl.float32)
    apart = d_square - along * along / w_square
    # a NaN is neither zero nor small, so that it shows in the weights
    turns = tl.where(apart <= 1e-6 * d_square, 0.0, tl.load(found_at + k + j)) > 0
    per_d = tl.where(turns, sin * norm / tl.sqrt(apart), 0.0)
    per_w = tl.where(turns, cos * norm / tl.sqrt(w_square) + per_d * along / w_square, 1.0)
    plain = tl.load(plain_at).to(tl.float32)
    tl.store(found_at + 2 * k + j, tl.where(norm > 0, per_w, 1.0))
    tl.store(found_at + 3 * k + j, tl.where(norm > 0, per_d, plain))


@triton.jit
def _turn(table_at, found_at, d_at, k, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The weights."""
    j, line_at, e, inside = _entries(table_at, k, WIDTH, BLOCK)
    w_at = tl.load(line_at + _W).to(tl.pointer_type(tl.float32))
    w = tl.load(w_at + e, mask=inside, other=0.0)
    d = _direction(line_at, d_at, e)
    w = tl.load(found_at + 2 * k + j) * w - tl.load(found_at + 3 * k + j) * d
    tl.store(w_at + e, w, mask=inside)

"""cross_info_nce against its sum as plain loops, and in two real processes.

Run as a script, this file is one of the two: test_cross.py RANK FOLDER
"""

import math
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from normscope.losses import cross_info_nce

WORLD, ROWS = 2, 3

taus = st.floats(-2, 1).map(lambda x: 10**x)  # .01 .. 10
seeds = st.integers(0, 2**31)


def random_tensors(seed: int, *shapes: tuple[int, int]) -> list[Tensor]:
    """Rows with norms from .1 to 10."""
    generator = torch.Generator().manual_seed(seed)
    drawn = []
    for shape in shapes:
        z = torch.randn(shape, generator=generator, dtype=torch.float64)
        exponent = 2 * torch.rand(shape[0], 1, generator=generator, dtype=torch.float64) - 1
        drawn.append((z / z.norm(dim=1, keepdim=True) * 10**exponent).requires_grad_())
    return drawn


def plain_loop(
    q: Tensor,
    k: Tensor,
    negatives: Tensor | None = None,
    *,
    temperature: float,
    decoupled: bool = False,
    rows: range | None = None,
) -> Tensor:
    """One query at a time, of these rows or all; its own key is counted once."""
    q, k = q / q.norm(dim=1, keepdim=True), k / k.norm(dim=1, keepdim=True)
    terms = []
    for i in rows or range(len(q)):
        if negatives is None:
            others = [q[i] @ k[j] for j in range(len(k)) if j != i]
        else:
            others = [q[i] @ m / m.norm() for m in negatives]
        compared = torch.stack(others if decoupled else [q[i] @ k[i], *others])
        # the largest is taken out, so that exp does not overflow
        largest = compared.max().detach()
        log_sum = ((compared - largest) / temperature).exp().sum().log() + largest / temperature
        terms.append(log_sum - q[i] @ k[i] / temperature)
    return torch.stack(terms).mean()


@settings(max_examples=40)
@given(st.integers(2, 5), st.integers(1, 6), st.integers(0, 5), taus, st.booleans(), seeds)
def test_cross_info_nce_and_its_gradients_equal_a_plain_loop(
    n: int, d: int, m: int, tau: float, decoupled: bool, seed: int
) -> None:
    given_tensors = random_tensors(seed, (n, d), (n, d), *[(m, d)] * (m > 0))
    value = cross_info_nce(*given_tensors, temperature=tau, decoupled=decoupled)
    expected = plain_loop(*given_tensors, temperature=tau, decoupled=decoupled)
    assert value.item() == pytest.approx(expected.item(), rel=1e-9, abs=1e-9)
    for got, reference in zip(
        torch.autograd.grad(value, given_tensors),
        torch.autograd.grad(expected, given_tensors),
        strict=True,
    ):
        torch.testing.assert_close(got, reference, rtol=1e-7, atol=1e-9 / tau)


def test_cross_info_nce_takes_mocos_temperature_and_the_own_key_unless_told() -> None:
    q, k = random_tensors(0, (4, 3), (4, 3))
    torch.testing.assert_close(cross_info_nce(q, k), plain_loop(q, k, temperature=0.2))


def test_cross_info_nce_decoupled_leaves_the_own_key_out_alone() -> None:
    q = k = torch.eye(3, dtype=torch.float64)
    # every other cosine is zero: log(e + 2) - 1 with the own key, log 2 - 1 without
    assert cross_info_nce(q, k, temperature=1.0).item() == pytest.approx(math.log(math.e + 2) - 1)
    value = cross_info_nce(q, k, temperature=1.0, decoupled=True).item()
    assert value == pytest.approx(math.log(2) - 1)


def test_cross_info_nce_with_a_queue_does_not_compare_with_the_other_keys() -> None:
    q, k, queue = random_tensors(0, (3, 4), (3, 4), (5, 4))
    each = [cross_info_nce(q[i : i + 1], k[i : i + 1], queue) for i in range(3)]
    torch.testing.assert_close(cross_info_nce(q, k, queue), torch.stack(each).mean())


def test_cross_info_nce_does_not_feel_norms() -> None:
    q, k, queue = random_tensors(0, (3, 4), (3, 4), (5, 4))
    for negatives in (None, queue):
        larger = None if negatives is None else 1e3 * negatives
        value = cross_info_nce(7 * q, 1e-3 * k, larger)
        torch.testing.assert_close(value, cross_info_nce(q, k, negatives))


@pytest.mark.parametrize("decoupled", [False, True])
def test_cross_info_nce_takes_zero_rows_as_orthogonal_and_gives_them_no_gradient(
    decoupled: bool,
) -> None:
    q, k = torch.eye(4, dtype=torch.float64)[:3], torch.eye(4, dtype=torch.float64)[:3]
    q[0], k[2] = 0, 0  # the second query meets its key, all else is orthogonal
    q, k = q.requires_grad_(), k.requires_grad_()
    queue = torch.zeros(2, 4, dtype=torch.float64, requires_grad=True)
    own = not decoupled
    expected = (2 * math.log(own + 2) + math.log(own * math.e + 2) - 1) / 3
    for negatives in (None, queue):
        loss = cross_info_nce(q, k, negatives, temperature=1.0, decoupled=decoupled)
        assert loss.item() == pytest.approx(expected)
        tensors = [q, k] if negatives is None else [q, k, negatives]
        for z, grad in zip(tensors, torch.autograd.grad(loss, tensors), strict=True):
            assert grad.isfinite().all()
            assert not grad[z.norm(dim=1) == 0].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("decoupled", [False, True])
def test_cross_info_nce_works_in_float32_on_half_inputs(
    dtype: torch.dtype, decoupled: bool
) -> None:
    q, k, queue = (t.detach().to(dtype) for t in random_tensors(0, (6, 8), (6, 8), (9, 8)))
    for halves in ([q, k], [q, k, queue]):
        value = cross_info_nce(*halves, decoupled=decoupled)
        exact = cross_info_nce(*(z.double() for z in halves), decoupled=decoupled)
        assert value.dtype == torch.float32
        assert value.item() == pytest.approx(exact.item(), rel=1e-5)
    mixed = cross_info_nce(q, k, queue.float(), decoupled=decoupled)
    torch.testing.assert_close(mixed, cross_info_nce(q, k, queue, decoupled=decoupled))


def test_cross_info_nce_takes_a_queue_narrower_than_the_queries() -> None:
    q, k, queue = (t.detach() for t in random_tensors(0, (6, 8), (6, 8), (9, 8)))
    value = cross_info_nce(q, k, queue.float())
    torch.testing.assert_close(value, cross_info_nce(q, k, queue), rtol=1e-5, atol=1e-5)


def test_cross_info_nce_stays_in_float32_under_autocast() -> None:
    q, k, queue = (t.detach().float() for t in random_tensors(0, (6, 8), (6, 8), (9, 8)))
    for negatives in (None, queue):
        plain = cross_info_nce(q, k, negatives)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(cross_info_nce(q, k, negatives), plain)


def test_cross_info_nce_refuses_wrong_arguments_in_one_line() -> None:
    z = torch.randn(4, 3)
    cases = [
        (lambda: cross_info_nce(z, z[:2]), "k must be like q, a float32 tensor of shape"),
        (lambda: cross_info_nce(z, z[:, :2]), "k must be like q"),
        (lambda: cross_info_nce(z, z.double()), "k must be like q"),
        (lambda: cross_info_nce(z[0], z[0]), "q must be a floating-point tensor"),
        (lambda: cross_info_nce(z[:0], z[:0]), "q must be at least one row"),
        (lambda: cross_info_nce(z, z, z[0]), "negatives must be a floating-point tensor"),
        (lambda: cross_info_nce(z, z, z.long()), "negatives must be a floating-point tensor"),
        (lambda: cross_info_nce(z[:1], z[:1]), "must be .* a negative"),
        (lambda: cross_info_nce(z[:1], z[:1], decoupled=True), "must be .* a negative"),
        (lambda: cross_info_nce(z, z, temperature=0), "temperature must be a positive finite"),
        (lambda: cross_info_nce(z, z, temperature=1e-3), "temperature must be at least 0.003"),
        (lambda: cross_info_nce(z, z, temperature=math.nan), "temperature must be a positive"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message) as error:
            call()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("decoupled", [False, True])
def test_cross_info_nce_refuses_an_empty_queue(decoupled: bool) -> None:
    z = torch.randn(4, 3)
    with pytest.raises(ValueError, match="must be"):
        cross_info_nce(z, z, z[:0], decoupled=decoupled)


def test_cross_info_nce_of_one_query_and_a_queue_of_one_is_a_choice_of_two() -> None:
    q, k = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    assert cross_info_nce(q, k, k).item() == pytest.approx(math.log(2))
    assert cross_info_nce(q, k, k, decoupled=True).item() == 0


def joined_batch() -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys of both processes in their order, and a queue that both share."""
    q, k, queue = random_tensors(1, (WORLD * ROWS, 4), (WORLD * ROWS, 4), (5, 4))
    return q.detach(), k.detach(), queue.detach()


def one_process(rank: int) -> dict[str, Tensor | str]:
    """What one process gets on its rows."""
    q, k, queue = joined_batch()
    rows = slice(rank * ROWS, (rank + 1) * ROWS)
    q, k = q[rows].requires_grad_(), k[rows]
    got: dict[str, Tensor | str] = {}
    for case, negatives, decoupled in (
        ("coupled", None, False),
        ("decoupled", None, True),
        ("queue", queue, False),
    ):
        loss = cross_info_nce(q, k, negatives, decoupled=decoupled)
        got[case] = loss.detach()
        (got[f"{case} gradient"],) = torch.autograd.grad(loss, q)
    # one row each: the other process's key is the only negative
    got["one row"] = cross_info_nce(q[:1], k[:1]).detach()
    try:
        cross_info_nce(q, k.clone().requires_grad_())
    except RuntimeError as error:
        got["error"] = str(error)
    return got


def main() -> None:
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD
    )
    torch.save(one_process(rank), folder / f"{rank}.pt")
    dist.barrier()  # neither leaves while the other still talks
    dist.destroy_process_group()
    os._exit(0)  # a thread of gloo's that still drops tensors would abort as Python ends


@pytest.fixture(scope="module")
def of_two_processes(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    folder = tmp_path_factory.mktemp("gloo")
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, __file__, str(rank), str(folder)], stderr=subprocess.PIPE
                )
            )
            for rank in range(WORLD)
        ]
        for process in processes:
            stack.callback(process.kill)  # a hung one must not outlive the test
        ends = [process.communicate(timeout=120)[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(WORLD)]


@pytest.mark.parametrize("case", ["coupled", "decoupled", "queue"])
def test_cross_info_nce_takes_the_keys_of_every_process_as_negatives_unless_given(
    of_two_processes: list[dict], case: str
) -> None:
    q, k, queue = joined_batch()
    q.requires_grad_()
    for rank, got in enumerate(of_two_processes):
        rows = range(rank * ROWS, (rank + 1) * ROWS)
        negatives = queue if case == "queue" else None
        expected = plain_loop(
            q, k, negatives, temperature=0.2, decoupled=case == "decoupled", rows=rows
        )
        torch.testing.assert_close(got[case], expected.detach(), rtol=1e-9, atol=1e-9)
        (gradient,) = torch.autograd.grad(expected, q)
        torch.testing.assert_close(got[f"{case} gradient"], gradient[rows.start : rows.stop])


def test_cross_info_nce_of_one_row_a_process_is_told_from_the_others_key(
    of_two_processes: list[dict],
) -> None:
    q, k, _ = joined_batch()
    q, k = q[::ROWS], k[::ROWS]
    for rank, got in enumerate(of_two_processes):
        expected = plain_loop(q, k, temperature=0.2, rows=range(rank, rank + 1))
        torch.testing.assert_close(got["one row"], expected, rtol=1e-9, atol=1e-9)


def test_cross_info_nce_refuses_keys_that_need_a_gradient_from_other_processes(
    of_two_processes: list[dict],
) -> None:
    for got in of_two_processes:
        assert got["error"].startswith("k must be detached where there is more than one process.")


if __name__ == "__main__":
    main()


def test_cross_info_nce_refuses_negatives_of_another_width_and_none() -> None:
    q = torch.randn(4, 3)
    for negatives in (torch.randn(5, 2), torch.randn(0, 3)):
        with pytest.raises(ValueError, match="negatives must be at least one row of 3 numbers"):
            cross_info_nce(q, q, negatives)

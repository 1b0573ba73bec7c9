"""Heads whose weights grow as the count of powers says."""

import itertools

import numpy as np
import pytest

from normscope_paper.harness import Claim, Results
from normscope_paper.own import grad_scale_rates
from normscope_paper.own.grad_scale_growth import growth_exponent
from normscope_paper.simulation import HeadCourse, train_head


@pytest.mark.parametrize(("depth", "power"), [(1, 0.0), (3, 0.0), (2, 1.0)])
def test_head_never_shrinks_because_gradients_lie_across_weights(depth: int, power: float) -> None:
    course = train_head(depth, power=power, lr=0.3, steps=50, seed=3)
    assert all(b > a for a, b in itertools.pairwise(course.squares))
    assert not course.broke


def test_head_grows_by_the_squared_learning_rate() -> None:
    slow, fast = (train_head(2, power=0.0, lr=lr, steps=2, seed=0) for lr in (1e-2, 1e-1))
    assert slow.norms[0] == fast.norms[0]
    grown = [course.squares[1] - course.squares[0] for course in (slow, fast)]
    assert grown[1] / grown[0] == pytest.approx(100, rel=0.05)


def test_head_of_three_layers_breaks_under_power_one_and_not_under_half() -> None:
    whole = train_head(3, power=1.0, lr=0.4, steps=200, seed=1)
    half = train_head(3, power=0.5, lr=0.4, steps=200, seed=1)
    assert (whole.broke, half.broke) == (True, False)
    assert len(whole.norms) < 200
    assert np.isfinite(whole.norms).all()


@pytest.mark.parametrize("k", [-1.0, 0.0, 1.0, 2.0])
def test_growth_exponent_is_that_of_the_law_that_made_the_course(k: float) -> None:
    squares = [10.0]
    while len(squares) < 3000 and squares[-1] < 1e6:
        squares.append(squares[-1] + 0.01 * 10 * (squares[-1] / 10) ** k)
    assert growth_exponent(HeadCourse([], squares, False)) == pytest.approx(k, abs=0.05)


def test_growth_rates_of_a_run_end_where_it_broke_and_leave_out_low_learning_rates() -> None:
    steps = np.arange(1, 9) * 10
    lrs = [0.1, 1.0, 1.0, 1.0, 0.9, 0.2, 0.2, 0.2]
    norms = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, None, None]
    record = {"steps": steps.tolist(), "lrs": lrs, "grown": norms}
    found, rates = grad_scale_rates.rates(record)
    assert found == pytest.approx(np.sqrt([2, 8, 32, 128, 512]))
    assert rates[1:3] == pytest.approx(np.log(2) / 10)
    assert rates[3] == pytest.approx(np.log(2) / 10 / 0.95**2)


def test_norms_that_grow_by_the_law_of_three_layers_give_its_power() -> None:
    norms, lr = [100.0], 0.02
    while norms[-1] < 2500:
        rate = lr**2 * norms[-1] ** grad_scale_rates.COUNTED
        norms.append(norms[-1] * np.exp(5 * rate))
    record = {"steps": [5 * i for i in range(len(norms))], "lrs": [lr] * len(norms), "grown": norms}
    assert grad_scale_rates._power(record, *grad_scale_rates.FAR) == pytest.approx(2 / 3, abs=0.05)
    assert grad_scale_rates._power({**record, "grown": [n / 1e4 for n in norms]}, 1, 2) is None
    assert grad_scale_rates._power({**record, "grown": [5.0] + [None] * 9}, 1, 2) is None


def lawful(power: float, *, start: float = 1.0, end: float = 5e3, lr: float = 0.02) -> dict:
    """A run that broke, whose norms grew from the start on at a rate like their power."""
    norms = [start]
    while norms[-1] < end:
        norms.append(norms[-1] * np.exp(min(5 * lr**2 * norms[-1] ** power, 0.3)))
    steps = [5 * i for i in range(len(norms) + 1)]
    return {"norm": None, "steps": steps, "lrs": [lr] * len(steps), "grown": [*norms, None]}


def judged(high: list[dict], low: dict) -> list[Claim]:
    place = {"column": "digits", "values": {"method": "simclr"}}
    cells = [{"row": "high", "runs": high, **place}, {"row": "low", "runs": [low] * 4, **place}]
    data = {"key": "knn", "cells": cells}
    return grad_scale_rates.check(Results("grad_scale_rates", "small", 4, 0, data))


def test_seeds_that_chose_the_threshold_do_not_judge_by_it() -> None:
    held = {"norm": 2.0, "steps": [0, 5], "lrs": [0.02, 0.02], "grown": [1.0, 1.1]}
    runs = [lawful(0.1), lawful(0.1), lawful(0.66), lawful(0.67)]
    claims = judged(runs, held)
    assert [claim.verdict for claim in claims[:3]] == ["reproduced"] * 3
    assert claims[3].value < claims[2].value
    claims = judged([lawful(1.0, start=2500.0, end=2e5, lr=5e-4) for _ in range(4)], held)
    assert claims[4].value == pytest.approx(1.0, abs=0.05)
    assert claims[4].verdict == "not reproduced"
    claims = judged(runs[::-1], held)
    assert claims[2].verdict == "not reproduced"

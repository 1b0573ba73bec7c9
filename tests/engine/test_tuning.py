"""What a run asks of a GPU is given back."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch

from normscope.engine.tuning import tuned


def asked() -> tuple[object, ...]:
    cudnn = torch.backends.cudnn
    ordered = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    products = torch.get_float32_matmul_precision()
    return products, cudnn.allow_tf32, cudnn.benchmark, ordered, warns, filled


@pytest.fixture
def own() -> Iterator[tuple[object, ...]]:
    """What somebody has asked of a GPU before a run."""
    cudnn = torch.backends.cudnn
    torch.set_float32_matmul_precision("medium")
    cudnn.benchmark = True
    yield asked()
    torch.set_float32_matmul_precision("highest")
    cudnn.benchmark = False


@pytest.mark.parametrize(("precision", "products"), [("auto", "high"), ("32", "highest")])
def test_on_a_gpu_sums_have_an_order_and_no_algorithm_wins_a_race(precision, products, own) -> None:
    with suppress(KeyError), tuned(torch.device("cuda"), precision):
        assert asked() == (products, precision == "auto", False, True, False, False)
        raise KeyError
    assert asked() == own


def test_what_is_asked_of_a_gpu_stays_as_it_is_on_a_cpu(own) -> None:
    with tuned(torch.device("cpu"), "32"):
        assert asked() == own

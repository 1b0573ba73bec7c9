"""What a run asks of a GPU is given back."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace

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
    """What somebody has asked of a GPU before a run: nothing as a run asks it."""
    cudnn = torch.backends.cudnn
    torch.set_float32_matmul_precision("medium")
    cudnn.benchmark, cudnn.allow_tf32 = True, False
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield asked()
    torch.set_float32_matmul_precision("highest")
    cudnn.benchmark, cudnn.allow_tf32 = False, True
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(("precision", "products"), [("auto", "high"), ("32", "highest")])
def test_on_a_gpu_sums_have_an_order_and_no_algorithm_wins_a_race(
    precision, products, own, monkeypatch
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with suppress(KeyError), tuned(torch.device("cuda"), precision):
        assert asked() == (products, precision == "auto", False, True, False, False)
        assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == ":4096:8"
        raise KeyError
    assert asked() == own


@pytest.fixture
def refusal(monkeypatch) -> Callable[[str], None]:
    """A GPU, though there is none, whose products all fail with a message."""

    def refuse(message: str) -> None:
        def mm(*_: object) -> None:
            raise RuntimeError(message)

        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch, "ones", lambda *_, **__: SimpleNamespace(mm=mm))

    return refuse


def test_pytorch_warns_where_it_would_refuse_every_product(own, refusal) -> None:
    refusal("to enable deterministic behavior, set CUBLAS_WORKSPACE_CONFIG=:4096:8")
    with tuned(torch.device("cuda"), "auto"):
        assert asked()[3:5] == (True, True)
    assert asked() == own


def test_a_gpu_that_fails_otherwise_is_told_and_leaves_nothing_changed(own, refusal) -> None:
    refusal("CUDA error: out of memory")
    with pytest.raises(RuntimeError, match="out of memory"), tuned(torch.device("cuda"), "auto"):
        pass
    assert asked() == own


def test_what_is_asked_of_a_gpu_stays_as_it_is_on_a_cpu(own) -> None:
    with tuned(torch.device("cpu"), "32"):
        assert asked() == own

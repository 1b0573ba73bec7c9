"""What a run asks of a GPU is given back."""

from contextlib import suppress

import pytest
import torch

from normscope.engine.tuning import tuned


@pytest.mark.parametrize(
    ("device", "precision", "inside"),
    [("cuda", "auto", "high"), ("cuda", "32", "highest"), ("cpu", "auto", "medium")],
)
def test_precision_is_a_runs_own(device: str, precision: str, inside: str) -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        with suppress(KeyError), tuned(torch.device(device), precision):
            assert torch.get_float32_matmul_precision() == inside
            assert torch.backends.cudnn.benchmark is (device == "cuda")
            assert torch.backends.cudnn.allow_tf32 is (precision != "32")
            raise KeyError
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.backends.cudnn.benchmark is False
        assert torch.backends.cudnn.allow_tf32 is True
    finally:
        torch.set_float32_matmul_precision("highest")

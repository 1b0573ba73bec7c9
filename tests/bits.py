"""Whether two runs are the same to the bit."""

from pathlib import Path

import torch

from normscope.engine import RunFolder


def contents(folder: Path) -> tuple[dict[str, torch.Tensor], bytes]:
    run = RunFolder(folder)
    state = torch.load(run.checkpoint, weights_only=True, map_location="cpu")
    flat = {f"method.{k}": v for k, v in state["method"].items()}
    flat |= {f"average.{k}": v for k, v in state["average"].items()}
    for index, values in state["optimizer"]["state"].items():
        flat |= {f"optimizer.{index}.{k}": v for k, v in values.items() if v is not None}
    return flat, run.metrics.read_bytes()


def assert_same(folder: Path, reference: Path) -> None:
    """All weights, what the optimizer remembers, and every number that was logged."""
    weights, metrics = contents(folder)
    expected_weights, expected_metrics = contents(reference)
    assert weights.keys() == expected_weights.keys()
    for name, value in expected_weights.items():
        assert torch.equal(weights[name], value), name
    assert metrics == expected_metrics

"""What a network is worth: kNN and norms while it trains, and the whole of it afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normscope import data
from normscope._checks import invalid
from normscope._files import whole_file
from normscope._sphere import safe_norm
from normscope.data import Resident, Streamed
from normscope.engine import checkpoint
from normscope.engine.compose import build
from normscope.engine.run_folder import RunFolder
from normscope.evaluation import extract, knn, linear_probe
from normscope.methods import Method

_BATCH = 1000  # images per forward pass


@torch.no_grad()
def features_of(method: Method, source: Resident | Streamed) -> dict[str, Tensor]:
    """Every layer's output for the images of a split as they are, on their device, float32."""
    was_training = method.training
    method.eval()
    device, dtype = source.labels.device, next(method.parameters()).dtype
    # eager: evaluation runs too seldom to pay for a compilation of its own
    with torch.compiler.set_stance("force_eager"):
        batches = source.evaluation_batches(_BATCH)
        out = extract(lambda x: method.layers(x.to(dtype)), batches, device=device)
    method.train(was_training)
    return out


def knn_and_norm(
    method: Method, train: Resident | Streamed, test: Resident | Streamed, *, k: int
) -> dict[str, float]:
    """The kNN accuracy of the backbone on the test split, and the mean norm of its embeddings."""
    bank, queries = features_of(method, train), features_of(method, test)
    z = list(queries.values())[-1]
    numbers = {"norm_test": float(safe_norm(z).mean()), "knn": float("nan")}
    if bank["backbone"].isfinite().all() and queries["backbone"].isfinite().all():
        found = knn(bank["backbone"], train.labels, queries["backbone"], k=k)
        numbers["knn"] = found.accuracy(test.labels)
    return numbers


def evaluate(
    folder: Path | str, *, device: torch.device | str = "cpu", data_root: Path | None = None
) -> dict[str, Any]:
    """Judge a run's network as its last checkpoint has it, and keep the verdict.

    Writes evaluation.json, and embeddings.npz: for each split the embeddings where the loss acts
    (float32), the backbone's features and the labels.

    Args:
        folder: of the run.
        device: where to compute.
        data_root: where datasets are.

    Returns:
        For each layer kNN accuracy (`knn`, `knn_top5`), linear probe accuracy (`probe`) and the
        mean and spread of the norms in either split; and the epoch that was judged.
    """
    run = RunFolder(Path(folder))
    spec = run.spec()
    if not run.checkpoint.exists():
        raise invalid("run", "one with a checkpoint", str(folder), "Train it first.")
    images = data.load(spec.data, data_root)
    state = checkpoint.load(run.checkpoint)
    method = build(spec, side=images.side)
    method.load_state_dict(state["method"])
    method.to(device)
    options = {"side": images.side, "crop_scale": (1.0, 1.0)}
    train = data.source(images.train, torch.device(device), **options)
    test = data.source(images.test, torch.device(device), **options)
    bank, queries = features_of(method, train), features_of(method, test)
    layers = {}
    for name in bank:
        found = knn(bank[name], train.labels, queries[name], k=spec.knn_k)
        probe = linear_probe(bank[name], train.labels, queries[name])
        layers[name] = {
            "knn": found.accuracy(test.labels),
            "knn_top5": found.accuracy(test.labels, top=5),
            "probe": probe.accuracy(test.labels),
            "train": _norms(bank[name]),
            "test": _norms(queries[name]),
        }
    result = {"epoch": state["progress"]["epoch"], "layers": layers}
    with whole_file(run.path / "evaluation.json") as partial:
        partial.write_text(json.dumps(result, indent=1) + "\n")
    _write_embeddings(run.path / "embeddings.npz", {"train": bank, "test": queries}, images)
    return result


def _norms(z: Tensor) -> dict[str, float]:
    norm = safe_norm(z)
    return {"norm_mean": float(norm.mean()), "norm_std": float(norm.std())}


def _write_embeddings(
    path: Path, features: dict[str, dict[str, Tensor]], images: data.ImageArrays
) -> None:
    arrays: dict[str, np.ndarray] = {}
    for split, labels in (("train", images.train.labels), ("test", images.test.labels)):
        every = features[split]
        arrays |= {
            f"{split}_embeddings": list(every.values())[-1].cpu().numpy(),
            f"{split}_features": every["backbone"].cpu().numpy(),
            f"{split}_labels": np.asarray(labels),
        }
    with whole_file(path) as partial, partial.open("wb") as f:
        np.savez(f, **arrays)  # pyright: ignore[reportArgumentType]

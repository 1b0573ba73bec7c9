"""Evaluation of a run: kNN and norms during training, everything else afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normscope import data
from normscope._checks import invalid
from normscope._environment import versions
from normscope._files import whole_file, without_nan
from normscope._sphere import safe_norm
from normscope.data import Resident, Streamed
from normscope.engine import checkpoint, evaluate_norms
from normscope.engine.compose import build
from normscope.engine.run_folder import RunFolder
from normscope.engine.tuning import tuned
from normscope.evaluation import extract, knn, linear_probe
from normscope.methods import Method

_BATCH = 1000  # images per forward pass


@torch.no_grad()
def features_of(method: Method, source: Resident | Streamed) -> dict[str, Tensor]:
    """Every layer's output for a split's images, not augmented; float32, on their device."""
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
    method: Method, train: Resident | Streamed, test: Resident | Streamed, *, k: int | None
) -> dict[str, float]:
    """The backbone's kNN accuracy on the test split, and the mean norm of the embeddings.

    Keys are `knn`, `knn_top5` and `norm_test`; a diverged network has no kNN.

    Args:
        method: the network.
        train: what neighbours are taken from.
        test: what is classified.
        k: neighbours; None where there are no classes.
    """
    queries = features_of(method, test)
    z = list(queries.values())[-1]
    nothing = float("nan")
    numbers = {"norm_test": float(safe_norm(z).mean()), "knn": nothing, "knn_top5": nothing}
    if k is None:
        return numbers
    bank = features_of(method, train)
    if bank["backbone"].isfinite().all() and queries["backbone"].isfinite().all():
        found = knn(bank["backbone"], train.labels, queries["backbone"], k=k)
        numbers["knn"] = found.accuracy(test.labels)
        numbers["knn_top5"] = found.accuracy(test.labels, top=min(5, len(found.classes)))
    return numbers


def evaluate(
    folder: Path | str, *, device: torch.device | str = "cpu", data_root: Path | None = None
) -> dict[str, Any]:
    """Evaluate the network of a run's last checkpoint, and store the result.

    Writes evaluation.json; embeddings.npz, with the embeddings where the loss acts (float32), the
    backbone's features and the labels of each split; and gallery.npz, the images of highest and
    lowest norm.

    Args:
        folder: the run's folder.
        device: where to compute.
        data_root: where datasets are.

    Returns:
        `layers`: kNN (`knn`, `knn_top5`) and linear probe (`probe`) accuracy, mean and spread of
        the norms, by layer. `splits`, `confidence`, `calibration`, `novelty`: statistics of the
        norms where the loss acts; see `normscope.engine.evaluate_norms`.
    """
    with tuned(torch.device(device), "32"):
        return _evaluated(RunFolder(Path(folder)), device, data_root)


def _evaluated(
    run: RunFolder, device: torch.device | str, data_root: Path | None
) -> dict[str, Any]:
    spec = run.spec()
    if not run.checkpoint.exists():
        raise invalid("run", "a run with a checkpoint", str(run.path), "Train it first.")
    images = data.load(spec.data, data_root, side=spec.side)
    run.check_data(images.checksum)
    state = checkpoint.load(run.checkpoint, spec, shorter=run.shorter_hashes())
    method = build(spec, side=images.side)
    checkpoint.load_weights_(state, method, "average" if spec.average else "method")
    method.to(device)

    def features(split: data.Split) -> dict[str, Tensor]:
        return features_of(method, data.source(split, torch.device(device), side=images.side))

    bank, queries = features(images.train), features(images.test)
    labels, truth = (torch.from_numpy(s.labels).to(device) for s in (images.train, images.test))
    k = spec.knn_k if images.labelled else None
    layers, right = _by_layer(bank, queries, labels, truth, k=k)
    outside = {
        name: features(data.Split(novel, np.zeros(len(novel), np.int64)))
        for name, novel in data.novel_to(images, data_root).items()
    }
    last = list(bank)[-1]
    named = {"train": bank, "test": queries, **outside}
    norms = {name: evaluate_norms.norms_of(found[last]) for name, found in named.items()}
    root = data_root or data.default_root()
    result: dict[str, Any] = {
        "made_with": made_with(spec.data, data_root),
        "epoch": state["progress"]["epoch"],
        "layer": last,
        "layers": layers,
        "splits": evaluate_norms.splits(norms),
        "confidence": _confidence(images, norms, right, root),
        "calibration": None
        if right is None
        else evaluate_norms.calibration(bank[last], queries[last], right),
        "novelty": evaluate_norms.novelty(bank, queries, outside, labels),
    }
    with whole_file(run.path / "gallery.npz") as partial, partial.open("wb") as f:
        np.savez(f, **evaluate_norms.gallery(images, norms["test"], right))  # pyright: ignore[reportArgumentType]
    _write_embeddings(run.path / "embeddings.npz", {"train": bank, "test": queries}, images)
    result = without_nan(result)
    with whole_file(run.path / "evaluation.json") as partial:
        partial.write_text(json.dumps(result, allow_nan=False) + "\n")
    return result


def made_with(dataset: str, data_root: Path | None = None) -> dict[str, Any]:
    """What an evaluation depends on besides the run; it is recomputed if that differs."""
    root = data_root or data.default_root()
    return {
        "normscope": versions()["normscope"],
        "human_labels": sorted(evaluate_norms.human_files(dataset, root)),
        "novel": data.datasets_new_to(dataset, root),
    }


def _by_layer(
    bank: dict[str, Tensor],
    queries: dict[str, Tensor],
    labels: Tensor,
    truth: Tensor,
    *,
    k: int | None,
) -> tuple[dict[str, Any], np.ndarray | None]:
    """Accuracy and norms by layer; and whether the backbone's kNN is right, (n,), 0 or 1.

    Where k is None, for want of classes, there are norms alone.
    """
    layers, right = {}, None
    for name in bank:
        norms = {"train": _norms(bank[name]), "test": _norms(queries[name])}
        if k is None:
            layers[name] = dict.fromkeys(("knn", "knn_top5", "probe")) | norms
            continue
        found = knn(bank[name], labels, queries[name], k=k)
        probe = linear_probe(bank[name], labels, queries[name])
        layers[name] = {
            "knn": found.accuracy(truth),
            "knn_top5": found.accuracy(truth, top=min(5, len(found.classes))),
            "probe": probe.accuracy(truth),
            **norms,
        }
        if name == "backbone":
            right = (found.predictions == truth).cpu().numpy().astype(float)
    return layers, right


def _confidence(
    images: data.ImageArrays,
    norms: dict[str, np.ndarray],
    right: np.ndarray | None,
    root: Path,
) -> dict[str, Any]:
    by_knn = {} if right is None else {"knn": evaluate_norms.against(norms["test"], right)}
    return by_knn | evaluate_norms.human(images, norms, root)


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

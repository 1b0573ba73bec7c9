"""What the norms of a trained network say: how sure it is, and how new an image is to it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normscope._files import without_nan
from normscope._sphere import safe_norm
from normscope.data import ImageArrays, cifar10h, cifar10n, cifar100n, vote_entropy
from normscope.evaluation import (
    Agreement,
    NormConfidence,
    agreement,
    novelty_scores,
    ood_intervals,
    ood_metrics,
    risk_coverage,
)
from normscope.evaluation.probability import reliability

Layers = Mapping[str, Tensor]
_QUANTILES = 201  # of each split's norms: enough to draw a violin from
_BANK = 10_000  # reference rows that novelty scores are computed against
_CURVE = 200  # points of the risk-coverage curve that are kept
_SHOWN = 10  # images at either end of each class in the gallery


def norms_of(z: Tensor) -> np.ndarray:
    """The norms of embeddings, (n,)."""
    return safe_norm(z).squeeze(-1).cpu().numpy()


def splits(norms: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Each split's norms divided by the training mean: their mean, and quantiles from 0 to 1.

    Paper: Figures "in_out_violin" and "in_out_distribution_norms".
    """
    scale = float(norms["train"].mean())
    shares = np.linspace(0, 1, _QUANTILES)
    return {
        name: {
            "mean": float(values.mean() / scale),
            "n": len(values),
            "quantiles": np.quantile(values / scale, shares).tolist(),
        }
        for name, values in norms.items()
    }


def against(norms: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """How a measure of confidence goes with the norm (Figure "norm_as_confidence")."""
    return _plain(agreement(norms, values))


def human(name: str, norms: Mapping[str, np.ndarray], root: Path) -> dict[str, Any]:
    """Norms against people's labels of the same images, where the data folder has them.

    `consensus`: whether CIFAR-10N's or CIFAR-100N's label of a training image is the true one.
    `entropy`: of CIFAR-10H's votes on a test image, in nats.
    """
    found: dict[str, Any] = {}
    readers = {"cifar10": (cifar10n, "aggre_label"), "cifar100": (cifar100n, "noisy_label")}
    if name in readers:  # an unbalanced set lacks some of the images
        read, key = readers[name]
        with suppress(ValueError):  # they are not there
            labels = read(root)
            agree = (labels[key] == labels["clean_label"]).astype(float)
            found["consensus"] = against(norms["train"], agree)
    if name.startswith("cifar10") and not name.startswith("cifar100"):
        with suppress(ValueError):
            found["entropy"] = against(norms["test"], vote_entropy(cifar10h(root)))
    return found


def novelty(bank: Layers, inside: Layers, outside: Mapping[str, Layers], labels: Tensor) -> Any:
    """Every novelty score at every layer against every set of new images, with intervals."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randperm(len(labels), generator=generator)[:_BANK].to(labels.device)
    found: dict[str, Any] = {name: {} for name in outside}
    for layer in bank:
        reference = bank[layer][rows]
        known = novelty_scores(reference, inside[layer], labels=labels[rows])
        for name, layers in outside.items():
            new = novelty_scores(reference, layers[layer], labels=labels[rows])
            found[name][layer] = {
                score: asdict(ood_metrics(known[score], new[score]))
                | {"intervals": _intervals(known[score], new[score])}
                for score in known
            }
    return found


def _intervals(inside: Tensor, outside: Tensor) -> dict[str, list[float]]:
    return {k: list(v) for k, v in ood_intervals(inside, outside).items()}


def calibration(bank: Tensor, z: Tensor, correct: np.ndarray) -> dict[str, Any]:
    """Confidence fitted on the training embeddings, calibrated on half of the test's, and judged
    on the other half.
    """
    confidence = NormConfidence.fit(bank)
    half = np.arange(len(z)) % 2 == 0
    fitted = confidence.calibrate(z[torch.from_numpy(half)], correct[half])
    held, right = z[torch.from_numpy(~half)], correct[~half]
    probability = confidence.probability(held)
    curve = risk_coverage(confidence.score(held), right)
    kept = np.unique(np.linspace(0, len(curve.risk) - 1, _CURVE).astype(int))
    ece, mean, accuracy, count = reliability(probability, right)
    return {
        "method": fitted.method,
        "ece": ece,
        "reliability": {
            "confidence": mean.tolist(),
            "accuracy": accuracy.tolist(),
            "count": count.tolist(),
        },
        "aurc": curve.aurc,
        "random_aurc": curve.random_aurc,
        "oracle_aurc": curve.oracle_aurc,
        "coverage": curve.coverage[kept].tolist(),
        "risk": curve.risk[kept].tolist(),
    }


def gallery(images: ImageArrays, norms: np.ndarray, correct: np.ndarray) -> dict[str, np.ndarray]:
    """The test images of highest and of lowest norm in each class (Figure "cifar_norms").

    Args:
        images: the dataset.
        norms: of the test images, (n,).
        correct: whether each is classified right, (n,).

    Returns:
        `highest` and `lowest`: pixels, (classes, 10, h, w, 3), the most extreme first; with
        `_rows` and `_correct` after either name, which images these are and whether they are
        classified right, (classes, 10). A class with fewer images repeats its own. And
        `classes`, their names.
    """
    labels = np.asarray(images.test.labels)
    found = {"classes": np.array(images.classes, dtype=str)}
    for name, sign in (("highest", -1), ("lowest", 1)):
        chosen = []
        for c in range(len(images.classes)):
            rows = np.flatnonzero(labels == c)
            chosen.append(np.resize(rows[np.argsort(sign * norms[rows], kind="stable")], _SHOWN))
        rows = np.stack(chosen)
        pixels = [np.asarray(images.test.images[int(i)]) for i in rows.flat]
        found[name] = (
            np.stack(pixels).transpose(0, 2, 3, 1).reshape(*rows.shape, *pixels[0].shape[1:], 3)
        )
        found[f"{name}_rows"], found[f"{name}_correct"] = rows, correct[rows]
    return found


def _plain(found: Agreement) -> dict[str, Any]:
    """The agreement as numbers and lists, for JSON."""
    values = asdict(found)
    values["buckets"] = {k: np.asarray(v).tolist() for k, v in values["buckets"].items()}
    return without_nan(values)

"""Norms of a trained network as measures of confidence and novelty."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normscope._checks import invalid
from normscope._files import without_nan
from normscope._sphere import safe_norm
from normscope.confidence import LEAST, NormConfidence, reliability
from normscope.data import ImageArrays, LazyImages, cifar10h, cifar10n, cifar100n, vote_entropy
from normscope.data.images import fitted
from normscope.evaluation import (
    Agreement,
    agreement,
    novelty_scores,
    ood_intervals,
    ood_metrics,
    risk_coverage,
)

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
    """Agreement of a measure of confidence with the norm (Figure "norm_as_confidence")."""
    return _plain(agreement(norms, values))


_CONSENSUS = {"cifar10": (cifar10n, "aggre_label"), "cifar100": (cifar100n, "noisy_label")}
_FILES = {
    "cifar10": {"consensus": "CIFAR-10_human.pt", "entropy": "cifar10h-counts.npy"},
    "cifar100": {"consensus": "CIFAR-100_human.pt"},
    # their test sets are complete
    "cifar10-unbalanced": {"entropy": "cifar10h-counts.npy"},
    "cifar10-unbalanced-as-coded": {"entropy": "cifar10h-counts.npy"},
}


def human_files(dataset: str, root: Path) -> set[str]:
    """The kinds of human labels that the data folder has for a dataset."""
    return {kind for kind, name in _FILES.get(dataset, {}).items() if (root / name).exists()}


def human(images: ImageArrays, norms: Mapping[str, np.ndarray], root: Path) -> dict[str, Any]:
    """Norms against people's labels of the same images, where the data folder has them.

    `consensus`: whether CIFAR-10N's or CIFAR-100N's label of a training image is the true one.
    `entropy`: of CIFAR-10H's votes on a test image, in nats.
    """
    found: dict[str, Any] = {}
    there = human_files(images.name, root)
    if "consensus" in there:
        read, key = _CONSENSUS[images.name]
        labels = read(root)
        if not np.array_equal(labels["clean_label"], images.train.labels):
            advice = "Fetch both again."
            raise invalid("human labels", "of these training images", "of others", advice)
        agree = (labels[key] == labels["clean_label"]).astype(float)
        found["consensus"] = against(norms["train"], agree)
    if "entropy" in there:
        found["entropy"] = against(norms["test"], vote_entropy(cifar10h(root)))
    return found


def novelty(bank: Layers, inside: Layers, outside: Mapping[str, Layers], labels: Tensor) -> Any:
    """Every novelty score at every layer against every set of new images, with intervals."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randperm(len(labels), generator=generator)[:_BANK].to(labels.device)
    found: dict[str, Any] = {name: {} for name in outside}
    for layer in bank if outside else ():
        sets = [inside[layer], *(layers[layer] for layers in outside.values())]
        # all at once: some scores are fitted to the reference first
        every = novelty_scores(bank[layer][rows], torch.cat(sets), labels=labels[rows])
        for score, values in every.items():
            known, *new = values.split([len(z) for z in sets])
            for name, theirs in zip(outside, new, strict=True):
                measured = asdict(ood_metrics(known, theirs))
                found[name].setdefault(layer, {})[score] = measured | {
                    "intervals": _intervals(known, theirs)
                }
    return found


def _intervals(inside: Tensor, outside: Tensor) -> dict[str, list[float]]:
    return {k: list(v) for k, v in ood_intervals(inside, outside).items()}


def calibration(bank: Tensor, z: Tensor, correct: np.ndarray) -> dict[str, Any] | None:
    """Confidence fitted on the training embeddings, calibrated on half of the test embeddings and
    evaluated on the other half; None if there are too few.
    """
    if len(z) < 2 * LEAST:
        return None
    try:
        confidence = NormConfidence.fit(bank)
    except ValueError:  # all norms are alike: the network collapsed or has hardly begun
        return None
    half = np.arange(len(z)) % 2 == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it is flat is among the results
        fitted = confidence.calibrate(z[torch.from_numpy(half)], correct[half])
    held, right = z[torch.from_numpy(~half)], correct[~half]
    probability = confidence.probability(held)
    curve = risk_coverage(confidence.score(held), right)
    kept = np.unique(np.linspace(0, len(curve.risk) - 1, _CURVE).astype(int))
    ece, mean, accuracy, count = reliability(probability, right)
    return {
        "method": fitted.method,
        "flat": fitted.flat,
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


def gallery(
    images: ImageArrays, norms: np.ndarray, correct: np.ndarray | None
) -> dict[str, np.ndarray]:
    """The test images of highest and of lowest norm in each class (Figure "cifar_norms").

    Args:
        images: the dataset.
        norms: of the test images, (n,).
        correct: whether each is classified right, (n,); None where there are no classes.

    Returns:
        `highest` and `lowest`: pixels, (classes, 10, h, w, 3), the most extreme first. The same
        names with `_rows` and `_correct`: the images' rows, and whether they are classified right,
        (classes, 10), NaN where that is unknown. `classes`: class names. A class with fewer images
        repeats its own; an empty class is left out.
    """
    labels = np.asarray(images.test.labels)
    present = np.unique(labels)
    found = {"classes": np.array(images.classes or ("all",), dtype=str)[present]}
    if correct is None:
        correct = np.full(len(norms), np.nan)
    for name, sign in (("highest", -1), ("lowest", 1)):
        chosen = []
        for c in present:
            rows = np.flatnonzero(labels == c)
            chosen.append(np.resize(rows[np.argsort(sign * norms[rows], kind="stable")], _SHOWN))
        rows = np.stack(chosen)
        pixels = np.stack([_shown(images, int(i)) for i in rows.flat])
        found[name] = pixels.reshape(*rows.shape, *pixels.shape[1:])
        found[f"{name}_rows"], found[f"{name}_correct"] = rows, correct[rows]
    return found


def _shown(images: ImageArrays, i: int) -> np.ndarray:
    """A test image as the network sees it, (h, w, 3)."""
    if not isinstance(images.test.images, LazyImages):
        return images.test.images[i].transpose(1, 2, 0)
    from PIL import Image

    return np.asarray(fitted(Image.fromarray(images.test.images[i]), images.side))


def _plain(found: Agreement) -> dict[str, Any]:
    """The agreement as numbers and lists, for JSON."""
    values = asdict(found)
    values["buckets"] = {k: np.asarray(v).tolist() for k, v in values["buckets"].items()}
    return without_nan(values)

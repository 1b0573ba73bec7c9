"""Figure "cifar_norms": the images of highest and of lowest norm in each class.

The ten held-out images of each class with the longest embeddings (left) and with the shortest
(right), after training SimCLR on CIFAR-10; at smoke scale on digits.

    normscope reproduce cifar_norms --scale small

Paper: 512 epochs, ResNet-50: "the high-norm class representatives are prototypical examples of the
class while the low-norm representatives are obscure". That is for the eye; beside it stand two
numbers that can come out wrong: who the kNN gets right, and whom people agree on (CIFAR-10H).
"""

from __future__ import annotations

import base64
import io
import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from normscope import data as datasets
from normscope.report import gallery
from normscope_paper.harness import (
    NOT_IN_PAPER,
    Claim,
    Results,
    Scale,
    Sweep,
    datasets_at,
    folder_of,
    spec_at,
)

TITLE = "Images of highest and lowest norm"
PLACE = "Figure 12"
KIND = "training"
COST = "a day on one GPU (three runs of 512 epochs, shared with in_out_violin)"
SEEDS: dict[Scale, int] = {"smoke": 2, "small": 3, "paper": 3}
DATASETS = ("cifar10",)
ENDS = ("highest", "lowest")


def run(scale: Scale, seed: int, seeds: int, sweep: Sweep) -> Results:
    """Train, and pick the ends of each class."""
    (dataset,) = datasets_at(scale, *DATASETS)
    found: dict[str, Any] = {"dataset": dataset}
    found |= {"correct": {e: [] for e in ENDS}, "entropy": {e: [] for e in ENDS}}
    votes = datasets.cifar10h(datasets.default_root()) if dataset == "cifar10" else None
    for s in range(seed, seed + seeds):
        spec = spec_at(scale, method="simclr", data=dataset, seed=s)
        sweep.evaluation(spec)
        with np.load(folder_of(spec) / "gallery.npz", allow_pickle=False) as ends:
            for end in ENDS:
                found["correct"][end].append(float(ends[f"{end}_correct"].mean()))
                if votes is not None:
                    entropy = datasets.vote_entropy(votes[ends[f"{end}_rows"].ravel()])
                    found["entropy"][end].append(float(entropy.mean()))
            if s == seed:
                found["sheets"] = {end: _packed(ends[end]) for end in ENDS}
                found["classes"] = ends["classes"].tolist()
    return Results("cifar_norms", scale, seeds, seed, found)


def _packed(images: np.ndarray) -> str:
    """Images (classes, 10, h, w, 3) side by side in one JPEG, a row a class, as text."""
    from PIL import Image

    rows, columns, h, w, _ = images.shape
    sheet = images.transpose(0, 2, 1, 3, 4).reshape(rows * h, columns * w, 3)
    buffer = io.BytesIO()
    Image.fromarray(sheet).save(buffer, "JPEG", quality=90, subsampling=0)
    return base64.b64encode(buffer.getvalue()).decode()


def _unpacked(text: str, rows: int) -> np.ndarray:
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(text)), formats=["JPEG"]) as image:
        sheet = np.asarray(image.convert("RGB"))
    side = sheet.shape[0] // rows
    return sheet.reshape(rows, side, -1, side, 3).transpose(0, 2, 1, 3, 4)


def check(results: Results) -> list[Claim]:
    """Long embeddings are classified right more often, and people agree on them more."""
    claims = []
    words = {
        "correct": "The kNN is right more often on the ten highest norms of each class than on the "
        "ten lowest (difference of the shares)",
        "entropy": "People agree more on the ten highest norms of each class than on the ten "
        "lowest (difference of the votes' entropy, nats)",
    }
    for key, sign in (("correct", 1), ("entropy", -1)):
        highest, lowest = (results.data[key][end] for end in ENDS)
        if highest:
            claims.append(
                Claim.over_seeds(
                    words[key],
                    [sign * (h - low) for h, low in zip(highest, lowest, strict=True)],
                    (0.0, math.inf),
                    paper=NOT_IN_PAPER,
                    recipe=f"text, simclr on {results.data['dataset']}",
                )
            )
    return claims


def plot(results: Results) -> Figure:
    """The first seed's images."""
    classes = results.data["classes"]
    highest, lowest = (_unpacked(results.data["sheets"][end], len(classes)) for end in ENDS)
    return gallery(highest, lowest, classes)

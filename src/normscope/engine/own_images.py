"""Settings that fit a user's own images: the network, sizes and neighbours, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from normscope import data
from normscope.data.folders import natural_side
from normscope.data.layouts import listing
from normscope.data.paths import expanded, path_errors
from normscope.engine.resolve import check_data
from normscope.engine.spec import RunSpec

_CPU_SIDE, _CPU_PASSES = 32, 12_000
_GPU_SIDE, _GPU_PASSES, _MANY = 128, 200_000, 5_000
_FEW_TESTED = 400  # below that, chance alone moves an accuracy by 5 points


@dataclass(frozen=True)
class OwnImages:
    """What settings depend on.

    Attributes:
        train: how many images there are to train on.
        test: and to evaluate on.
        classes: how many classes; 0 if there are none.
        side: that goes with most of the images, in pixels.
    """

    train: int
    test: int
    classes: int
    side: int

    @classmethod
    def of(cls, name: str) -> OwnImages:
        """Those of `folder:PATH`, without decoding them, or of `npz:PATH`."""
        kind, _, path = name.partition(":")
        if kind == "folder":
            with path_errors():
                found = listing(expanded(path))
                side = natural_side(expanded(path), found.train)
            return cls(len(found.train), len(found.test), len(found.classes), side)
        images = data.load(name)
        return cls(len(images.train), len(images.test), len(images.classes), images.side)


@dataclass(frozen=True)
class Fitted:
    """A spec that fits, and what to say of it.

    Attributes:
        spec: the given settings, and those that were chosen.
        reasons: what was chosen and why, line by line.
        warnings: what the images cannot show.
    """

    spec: RunSpec
    reasons: list[str]
    warnings: list[str]


def fitted(given: Mapping[str, Any], *, device: str) -> Fitted:
    """A spec whose missing settings fit its images, where these are the user's own.

    Chosen are the network and the side, unless a network is given; the recipe, unless it or a rate
    is given; the epochs, the batch and the kNN's neighbours. Other datasets, and the recipe
    `as_coded`, keep the defaults of `RunSpec`.

    Args:
        given: settings of a spec.
        device: where it will be trained, `"cpu"` or another.

    >>> fitted({"method": "simsiam"}, device="cpu").reasons
    []
    """
    name = given.get("data", "digits")
    check_data(name)
    if not name.startswith(("folder:", "npz:")) or given.get("recipe") == "as_coded":
        return Fitted(RunSpec(**given), [], [])
    images = OwnImages.of(name)
    chosen, why = _network(images, given, on_cpu=device == "cpu")
    if not given.keys() & {"recipe", "optimizer", "lr", "weight_decay"}:
        # so few steps at the text's rates hardly move the weights; see docs/your-images.md
        chosen["recipe"] = "fast"
    chosen |= _sizes(images, on_cpu=device == "cpu")
    chosen = {name: value for name, value in chosen.items() if name not in given}
    spec = RunSpec(**{**given, **chosen})
    warnings = _warnings(images)
    if not chosen:
        return Fitted(spec, [], warnings)
    shown = ", ".join(f"{name} {value}" for name, value in chosen.items())
    return Fitted(
        spec, [f"Chosen for {_counted(images)} on {_named(device)}: {shown}.{why}"], warnings
    )


def _network(
    images: OwnImages, given: Mapping[str, Any], *, on_cpu: bool
) -> tuple[dict[str, Any], str]:
    """Network and side, and why; nothing where a network is given."""
    if "net" in given:
        return {}, ""
    largest = _CPU_SIDE if on_cpu else _GPU_SIDE if images.train < _MANY else images.side
    side = {"side": min(images.side, largest)} if given["data"].startswith("folder:") else {}
    if on_cpu:
        why = " A larger --net or --side takes a CPU many times as long."
        return {"net": "resnet10_narrow", **side}, why
    if images.train < _MANY:
        return {"net": "resnet18", **side}, " So few images do not fill a larger network."
    return {"net": "resnet50", **side}, ""


def _sizes(images: OwnImages, *, on_cpu: bool) -> dict[str, Any]:
    """Epochs, batch and neighbours.

    Few images are passed over more often. A batch is a quarter of the images at most, and a power
    of two. Neighbours are a sixth of a class.
    """
    passes, fewest, most = (_CPU_PASSES, 10, 100) if on_cpu else (_GPU_PASSES, 100, 400)
    epochs = min(most, max(fewest, round(passes / images.train)))
    batch = 1 << max(1, int(math.log2(max(2, images.train / 4))))
    k = max(1, min(200, images.train // (6 * max(1, images.classes))))
    return {"epochs": epochs, "batch": min(batch, 32 if on_cpu else 256), "knn_k": k}


def _warnings(images: OwnImages) -> list[str]:
    if images.classes < 2:
        return [
            "There are no classes, so no kNN accuracy is measured: loss and norms are. "
            "Folders of classes would give one."
        ]
    if images.test < _FEW_TESTED:
        points = round(100 * float(np.sqrt(0.96 / images.test)))
        return [
            f"The kNN accuracy is of {images.test:,} test images alone: chance moves it by up to "
            f"{points} points. Compare runs only beyond that."
        ]
    return []


def _counted(images: OwnImages) -> str:
    classes = f" of {images.classes:,} classes" if images.classes > 1 else ""
    return f"{images.train:,} training and {images.test:,} test images{classes}"


def _named(device: str) -> str:
    return "a CPU" if device == "cpu" else "a GPU"

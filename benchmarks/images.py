"""Embeddings of a run on CIFAR-10: known images, and images unlike them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits

from normscope import data
from normscope.engine import checkpoint
from normscope.engine.compose import build
from normscope.engine.evaluate import features_of
from normscope.engine.run_folder import RunFolder

REFERENCE = 6000  # of the 10,000 test images; the others are known rows
NOVEL = 2000


def house_numbers(n: int, *, seed: int = 0) -> np.ndarray:
    """Digits on coloured grounds with parts of others beside them, as street numbers look.

    scikit-learn's handwritten digits, uint8, (n, 3, 32, 32).
    """
    drawn, digits = np.random.default_rng(seed), load_digits(return_X_y=True)[0]
    found = np.empty((n, 3, 32, 32), np.uint8)
    for i in range(n):
        mask = np.zeros((32, 32))
        side = int(drawn.integers(18, 29))
        top, left = (int(drawn.integers(0, 32 - side + 1)) for _ in range(2))
        for x in (left, left - side, left + side):
            pixels = (255 / 16 * digits[drawn.integers(len(digits))]).astype(np.uint8).reshape(8, 8)
            scaled = Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC)
            low, high = max(x, 0), min(x + side, 32)
            if high > low:
                part = np.asarray(scaled)[:, low - x : high - x]
                mask[top : top + side, low:high] = part / 255
        ground, ink = drawn.uniform(0, 255, (2, 3, 1, 1))
        start, end = drawn.uniform(0.7, 1.3, 2)
        shade = np.linspace(start, end, 32)[None, :]
        image = (mask * ink + (1 - mask) * ground) * shade + drawn.normal(0, 6, (3, 32, 32))
        found[i] = np.clip(image, 0, 255)
    return found


def smooth_noise(n: int, *, seed: int = 0) -> np.ndarray:
    """Colours without shapes: random 4 x 4 pixels made large, uint8, (n, 3, 32, 32)."""
    coarse = np.random.default_rng(seed).integers(0, 256, (n, 4, 4, 3), dtype=np.uint8)
    large = [Image.fromarray(x).resize((32, 32), Image.Resampling.BICUBIC) for x in coarse]
    return np.stack([np.asarray(image).transpose(2, 0, 1) for image in large])


def noise(n: int, *, seed: int = 0) -> np.ndarray:
    """Independent pixels, uint8, (n, 3, 32, 32)."""
    return np.random.default_rng(seed).integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)


def of_run(
    folder: Path, root: Path | None
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, str]:
    """Raw embeddings where the loss acted, by the run's last checkpoint.

    The reference is of test images too: a network knows its training images better than others.

    Returns:
        Embeddings by set: `reference`, `known`, then the new ones; labels of the reference and of
        the known rows; a sentence on the run.
    """
    run = RunFolder(folder)
    spec = run.spec()
    if spec.data != "cifar10":
        raise SystemExit(f"--run must be a run on cifar10, got one on {spec.data}.")
    arrays = data.load(spec.data, root)
    method = build(spec, side=arrays.side)
    state = checkpoint.load(run.checkpoint, spec)
    checkpoint.load_weights_(state, method)

    def embedded(images: np.ndarray) -> np.ndarray:
        split = data.Split(images, np.zeros(len(images), np.int64))
        source = data.source(split, torch.device("cpu"), side=arrays.side)
        return list(features_of(method, source).values())[-1].numpy()

    images, labels = np.asarray(arrays.test.images), np.asarray(arrays.test.labels)
    order = np.random.default_rng(0).permutation(len(labels))
    reference, known = order[:REFERENCE], order[REFERENCE:]
    sets = {"reference": images[reference], "known": images[known]}
    for name, novel in data.novel_to(arrays, root).items():
        sets[name] = novel[:NOVEL]
    sets |= {"house numbers": house_numbers(NOVEL), "smooth noise": smooth_noise(NOVEL)}
    sets |= {"noise": noise(NOVEL), "inverted": 255 - images[known[:NOVEL]]}
    epoch = state["progress"]["epoch"]
    told = (
        f"{spec.method} with {spec.net}, trained for {epoch} epochs; embeddings where the loss "
        "acts. Reference and known rows are test images. House numbers are scikit-learn's digits "
        "on coloured grounds."
    )
    rows = {name: embedded(x) for name, x in sets.items()}
    return rows, labels[reference], labels[known], told

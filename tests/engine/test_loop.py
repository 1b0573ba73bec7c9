"""`train` against the same training written out as plain loops, in double precision."""

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from normscope import data
from normscope.augment import PRESETS
from normscope.data import Split
from normscope.engine import RunFolder, RunSpec, train
from normscope.engine.compose import build
from normscope.engine.interrupts import Stopped
from normscope.engine.loop import Loop
from normscope.engine.randomness import seed_for, shuffled

# neither the batch nor the micro-batch divides it: 13 micro-batches of 4 and two images over
TRAIN, TEST, CLASSES = 54, 24, 3
SIZES = {"small": (10, 8), "large": (64, 64)}  # above 32 pixels BYOL's two views differ in kind
SMALL: dict[str, Any] = {"net": "resnet10_narrow", "batch": 16, "knn_k": 5, "log_every": 1}
# a rate and a decay that are felt in a few steps, and a warm-up that ends inside an epoch
FELT: dict[str, Any] = {"lr": 2.0, "weight_decay": 0.01, "warmup_epochs": 1.4, "epochs": 3}
SIMCLR, SIMSIAM = {"dimension": 8}, {"dimension": 16}
BYOL = {"dimension": 8, "hidden": 16, "momentum": 0.8}
ADAM = {"optimizer": "adamw", "lr": 0.05, "weight_decay": 0.5, "decay": "no_bias_norm"}
AS_CODED = {"recipe": "as_coded", "horizon_epochs": 5.0, "predictor_lr": 0.05}

CASES: dict[str, dict[str, Any]] = {
    "SimCLR": {"method": "simclr", "epochs": 5, "options": SIMCLR},
    "SimSiam": {"method": "simsiam", "accumulate": 1, "options": SIMSIAM},
    "SimCLR, mean of 4": {"method": "simclr", "accumulate": 4, "options": SIMCLR},
    "SimSiam, sum of 4": {
        "method": "simsiam",
        "accumulate": 4,
        "lr": 0.5,
        "options": SIMSIAM,
        **AS_CODED,
    },
    "BYOL, mean of 2": {"method": "byol", "accumulate": 2, "options": BYOL},
    "AdamW": {"method": "simclr", "epochs": 2, "options": SIMCLR, **ADAM},
    "large": {
        "method": "simclr",
        "net": "vit_micro",
        "epochs": 1,
        "augmentation": "byol",
        "options": SIMCLR,
    },
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Coloured noise, as names of datasets."""
    names = {}
    rng = np.random.default_rng(0)
    for name, size in SIZES.items():
        path = tmp_path_factory.mktemp("data") / f"{name}.npz"
        arrays: dict[str, np.ndarray] = {}
        for split, n in (("train", TRAIN), ("test", TEST)):
            arrays[f"{split}_images"] = rng.integers(256, size=(n, 3, *size), dtype=np.uint8)
            arrays[f"{split}_labels"] = np.arange(n) % CLASSES
        np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]
        names[name] = f"npz:{path}"
    return names


# ---------------------------------------------------------------- the loop, written plainly


class Reference(NamedTuple):
    weights: dict[str, Tensor]
    rates: list[float]  # of each step
    losses: list[float]  # of each epoch


def reference(spec: RunSpec) -> Reference:
    arrays = data.load(spec.data)
    x = torch.from_numpy(np.array(arrays.train.images))
    labels = torch.from_numpy(np.array(arrays.train.labels))
    network = build(spec, side=arrays.side).double().train()
    optimizer = plain_optimizer(network, spec)
    size = spec.batch // spec.accumulate
    steps = TRAIN // spec.batch  # in an epoch
    rates: list[float] = []
    losses: list[float] = []
    for epoch in range(spec.epochs):
        order = shuffled(spec.seed, epoch, TRAIN)
        # a mean needs all its parts: what does not fill a step is left out of the epoch
        micros = TRAIN // size if spec.accumulation == "sum" else steps * spec.accumulate
        of_epoch = []
        for micro in range(micros):
            rows = order[micro * size : (micro + 1) * size]
            loss = network(two_views(x[rows], spec, epoch, micro), labels[rows]).loss
            of_epoch.append(loss.item())
            (loss / spec.accumulate if spec.accumulation == "mean" else loss).backward()
            if (micro + 1) % spec.accumulate:
                continue
            rates.append(rate(spec, len(rates) / steps))
            for group in optimizer.param_groups:
                group["lr"] = group.get("own_lr", rates[-1])
            optimizer.step()
            optimizer.zero_grad()
            if spec.method == "byol":
                move_target(network, spec, len(rates) / (spec.epochs * steps))
        losses.append(sum(of_epoch) / len(of_epoch))
    return Reference(network.state_dict(), rates, losses)


def plain_optimizer(network: nn.Module, spec: RunSpec) -> torch.optim.Optimizer:
    """One group, or a second one of what has its own rate or does not decay."""
    named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
    if spec.optimizer == "adamw":
        groups: list[dict[str, Any]] = [
            {"params": [p for _, p in named if p.ndim > 1], "weight_decay": spec.weight_decay},
            {"params": [p for _, p in named if p.ndim == 1], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=1.0)
    groups = [{"params": [p for _, p in named]}]
    if spec.predictor_lr is not None:
        own = [p for name, p in named if name.startswith("predictor")]
        rest = [p for name, p in named if not name.startswith("predictor")]
        groups = [{"params": rest}, {"params": own, "own_lr": spec.predictor_lr}]
    decay, ahead = spec.weight_decay, spec.recipe == "as_coded"
    return torch.optim.SGD(groups, lr=1.0, momentum=0.9, weight_decay=decay, nesterov=ahead)


def two_views(x: Tensor, spec: RunSpec, epoch: int, micro: int) -> Tensor:
    height, width = x.shape[-2:]
    augment = PRESETS[spec.augmentation](width)
    generator = torch.Generator().manual_seed(seed_for(spec.seed, "views", epoch, micro))
    size = {"height": height, "width": width}
    first = augment(x, augment.draw(len(x), **size, generator=generator, view=0))
    second = augment(x, augment.draw(len(x), **size, generator=generator, view=1))
    assert not torch.equal(first, second)
    return torch.stack([first, second]).double()


def rate(spec: RunSpec, epoch: float) -> float:
    peak = spec.lr * spec.batch / 256
    if epoch < spec.warmup_epochs:
        return peak * epoch / spec.warmup_epochs
    start = 0.0 if spec.recipe == "as_coded" else spec.warmup_epochs
    end = spec.horizon_epochs if spec.recipe == "as_coded" else spec.epochs
    return peak * (1 + math.cos(math.pi * (epoch - start) / (end - start))) / 2


@torch.no_grad()
def move_target(network: Any, spec: RunSpec, done: float) -> None:
    m = 1 - (1 - spec.options["momentum"]) * (math.cos(math.pi * done) + 1) / 2
    online = [*network.backbone.parameters(), *network.projector.parameters()]
    for xi, theta in zip(network.momentum_encoder.parameters(), online, strict=True):
        xi.copy_(m * xi + (1 - m) * theta)


# ---------------------------------------------------------------- the tests


@pytest.mark.parametrize("case", CASES)
def test_train_equals_the_plain_loop(case: str, images: dict[str, str], tmp_path: Path) -> None:
    name = images["large" if case == "large" else "small"]
    spec = RunSpec(**(SMALL | FELT | {"data": name, "precision": "64"} | CASES[case]))
    result = train(spec, folder=tmp_path / "run", device="cpu", quiet=True)
    expected = reference(spec)
    weights = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["method"]
    torch.testing.assert_close(weights, expected.weights, rtol=1e-8, atol=1e-10)
    assert result.steps == len(expected.rates) == spec.epochs * (TRAIN // spec.batch)

    steps, epochs = result.metrics("step"), result.metrics("epoch")
    assert [r["step"] for r in steps] == list(range(1, result.steps + 1))
    assert [r["lr"] for r in steps] == pytest.approx(expected.rates, rel=1e-12)
    assert [r["loss"] for r in epochs] == pytest.approx(expected.losses, rel=1e-5)
    measured = [1, 2, 4, 5] if spec.epochs == 5 else [1, 2, 3][: spec.epochs]
    assert result.history("knn")[0] == result.history("norm_test")[0] == measured


def write_pictures(folder: Path, *sizes: tuple[int, int]) -> str:
    """Coloured noise of these sizes in turn, as the name of a dataset."""
    rng = np.random.default_rng(0)
    for kind, n in (("train", TRAIN), ("test", TEST)):
        for i in range(n):
            place = folder / kind / str(i % CLASSES) / f"{i}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            shape = (*sizes[i % len(sizes)], 3)
            Image.fromarray(rng.integers(256, size=shape, dtype=np.uint8)).save(place)
    return f"folder:{folder}"


def trained_in(
    folder: Path, name: str, *, workers: int = 0
) -> tuple[dict[str, Tensor], list[tuple]]:
    """The weights and the course of a short run."""
    values = SMALL | FELT | {"method": "simclr", "epochs": 4, "options": SIMCLR, "data": name}
    spec = RunSpec(**values, precision="64")
    result = train(spec, folder=folder, device="cpu", quiet=True, workers=workers)
    weights = torch.load(folder / "checkpoint.pt", weights_only=True)["method"]
    return weights, [(r["loss"], r.get("knn")) for r in result.metrics("epoch")]


def test_training_from_files_is_training_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = write_pictures(tmp_path / "own", (32, 32))
    memory, course = trained_in(tmp_path / "memory", name)
    monkeypatch.setattr("normscope.data.folders._MOST_BYTES", 0)
    assert isinstance(data.load(name).train.images, data.LazyImages)
    files, same = trained_in(tmp_path / "files", name, workers=1)
    torch.testing.assert_close(files, memory, rtol=1e-9, atol=1e-12)
    assert same == course


def test_training_does_not_see_the_canvas_beyond_the_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("normscope.data.folders._MOST_BYTES", 0)
    name = write_pictures(tmp_path / "own", (40, 36), (32, 50), (34, 33))
    small, course = trained_in(tmp_path / "small", name)
    monkeypatch.setattr(data.Streamed, "_canvas", 77)
    large, same = trained_in(tmp_path / "large", name)
    torch.testing.assert_close(large, small, rtol=1e-9, atol=1e-12)
    assert same == course


def test_a_run_that_stopped_after_an_epochs_last_step_goes_on_with_the_next(
    images: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = RunSpec(**(SMALL | FELT | CASES["SimCLR"] | {"data": images["small"]}))
    end, steps = 3, TRAIN // spec.batch  # of five epochs; 4 is the next to be judged

    def asked(loop: Loop, _: Any) -> bool:
        return loop.progress.step == end * steps

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_asked_to_stop", asked)
        with pytest.raises(Stopped):
            train(spec, folder=tmp_path / "stopped", device="cpu", quiet=True)
    train(spec, folder=tmp_path / "stopped", resume=True, device="cpu", quiet=True)
    train(spec, folder=tmp_path / "whole", device="cpu", quiet=True)
    stopped, whole = (
        torch.load(tmp_path / name / "checkpoint.pt", weights_only=True)["method"]
        for name in ("stopped", "whole")
    )
    torch.testing.assert_close(stopped, whole, rtol=0, atol=0)


def test_images_that_are_loaded_already_are_taken_as_they_are(
    images: dict[str, str], tmp_path: Path
) -> None:
    spec = RunSpec(**(SMALL | {"method": "simclr", "epochs": 1, "data": images["small"]}))
    loaded = data.load(spec.data)
    dark = Split(np.zeros_like(loaded.train.images), loaded.train.labels)
    as_it_is = train(spec, folder=tmp_path / "one", device="cpu", quiet=True)
    for given, same in ((loaded, True), (replace(loaded, train=dark), False)):
        folder = tmp_path / str(same)
        found = train(spec, folder=folder, device="cpu", quiet=True, images=given)
        assert (found.loss == as_it_is.loss) == same
    with pytest.raises(ValueError, match=r"images must be those of 'npz:.*', got 'digits'"):
        train(spec, folder=tmp_path / "three", images=data.load("digits"))


def test_every_epoch_has_an_order_of_its_own() -> None:
    orders = [shuffled(seed, epoch, 100) for seed in (0, 1) for epoch in range(3)]
    assert len({tuple(order.tolist()) for order in orders}) == 6
    assert all(torch.equal(order.sort().values, torch.arange(100)) for order in orders)
    assert torch.equal(shuffled(0, 2, 100), orders[2])


def test_every_purpose_epoch_and_micro_batch_has_a_seed_of_its_own() -> None:
    places = [(epoch, micro) for epoch in range(4) for micro in range(4)]
    purposes = ("order", "views")
    seeds = [seed_for(s, purpose, *p) for s in (0, 1) for purpose in purposes for p in places]
    assert len(set(seeds)) == 2 * 2 * 16
    assert all(0 <= seed < 2**63 for seed in seeds)


# ---------------------------------------------------------------- stopped with gradients held


SUM: dict[str, Any] = {"epochs": 3, "accumulate": 4, "accumulation": "sum", "lr": 0.5}


def start(images: str, folder: Path) -> subprocess.Popen[str]:
    options = SMALL | SUM
    words = [sys.executable, "-m", "normscope.cli", "train", "simsiam", "--data", images]
    for name in ("net", "batch", "log_every", "epochs", "accumulate", "lr"):
        words += [f"--{name.replace('_', '-')}", str(options[name])]
    words += ["--set", "accumulation=sum", "--set", "knn_k=5", "--set", "dimension=16"]
    words += ["--device", "cpu", "--quiet", "--out", str(folder), "--checkpoint-seconds", "0"]
    return subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def copy_with_gradients(process: subprocess.Popen[str], folder: Path, copy: Path) -> None:
    """A copy of the run at an epoch's end, as a kill there would leave it."""
    seen = None
    while process.poll() is None:
        file = folder / "checkpoint.pt"
        if file.exists() and (found := file.stat().st_mtime_ns) != seen:
            seen = found
            os.kill(process.pid, signal.SIGSTOP)
            try:
                shutil.copytree(folder, copy)
                if torch.load(copy / "checkpoint.pt", weights_only=True)["gradients"]:
                    return
                shutil.rmtree(copy)
            finally:
                os.kill(process.pid, signal.SIGCONT)
        time.sleep(0.001)
    pytest.fail(f"no checkpoint held gradients: {process.communicate()[1]}")


def test_a_run_of_sums_that_is_stopped_goes_on_bit_for_bit(
    images: dict[str, str], tmp_path: Path
) -> None:
    folder, copy, undisturbed = (tmp_path / name for name in ("stopped", "killed", "undisturbed"))
    process = start(images["small"], folder)
    try:
        copy_with_gradients(process, folder, copy)
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM, errors
    stood = torch.load(folder / "checkpoint.pt", weights_only=True)
    assert 3 < stood["progress"]["step"] < 9  # in the middle, after leftovers were counted
    assert not stood["gradients"]

    spec = RunSpec(method="simsiam", data=images["small"], options=SIMSIAM, **(SMALL | SUM))
    train(spec, folder=undisturbed, device="cpu", quiet=True)
    expected = torch.load(undisturbed / "checkpoint.pt", weights_only=True)
    assert expected["gradients"]
    for path in (folder, copy):
        train(spec, folder=path, resume=True, device="cpu", quiet=True)
        state = torch.load(path / "checkpoint.pt", weights_only=True)
        for part in ("method", "optimizer", "gradients"):
            torch.testing.assert_close(state[part], expected[part], rtol=0, atol=0)
        assert RunFolder(path).metrics.read_bytes() == RunFolder(undisturbed).metrics.read_bytes()

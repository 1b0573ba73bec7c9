"""Training on a GPU: compiled, in bf16, channels last."""

import math
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.bits import assert_same  # pyright: ignore[reportMissingImports]

from normscope.data import Batch, source
from normscope.data.folders import read_folder
from normscope.engine import RunSpec, evaluate, train
from normscope.engine.loop import Loop
from normscope.engine.step import RecordedStep, Step
from normscope.methods import METHODS

# the compiler warns of PyTorch's own code
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize("name", METHODS)
def test_method_trains_on_the_gpu_and_the_monitor_sees_its_gradient(name, tmp_path: Path) -> None:
    spec = RunSpec(method=name, epochs=2, log_every=1, batch=128, grad_scale=1.0)
    result = train(spec, folder=tmp_path / "run", device="cuda", quiet=True)
    assert math.isfinite(result.loss)
    records = result.metrics("step")
    assert all(math.isfinite(r["norm_mean"]) for r in records)
    assert all(r["growth_predicted"] >= 0 for r in records)


class FellError(Exception):
    """A run's end before its time."""


@pytest.mark.parametrize(
    "values",
    [
        *({"method": name, "batch": 128} for name in METHODS),
        {"method": "simclr", "net": "resnet18", "optimizer": "angular"},
        {"method": "simsiam", "batch": 128, "accumulate": 2, "optimizer": "angular"},
        {"method": "simclr", "net": "resnet18", "grad_scale": 1.0},
        {"method": "simsiam", "net": "resnet18", "recipe": "as_coded", "batch": 256},
    ],
    ids=lambda values: "-".join(map(str, values.values())),
)
def test_a_seed_gives_the_same_bits_twice_and_when_resumed(
    values, tmp_path: Path, monkeypatch
) -> None:
    spec = RunSpec(**values, epochs=3, log_every=1)
    for name in ("first", "second"):
        train(spec, folder=tmp_path / name, device="cuda", quiet=True)
    assert_same(tmp_path / "second", tmp_path / "first")
    save = Loop._save

    def save_and_fall(loop: Loop) -> None:
        save(loop)
        if loop.progress.step == 8:
            raise FellError

    monkeypatch.setattr(Loop, "_save", save_and_fall)
    options = {"folder": tmp_path / "cut", "device": "cuda", "quiet": True}
    with pytest.raises(FellError):
        train(spec, **options, checkpoint_seconds=0)
    monkeypatch.undo()
    train(spec, **options, resume=True)
    assert_same(tmp_path / "cut", tmp_path / "first")


@pytest.mark.parametrize("accumulate", [1, 2])
def test_recorded_steps_train_as_steps_one_by_one(accumulate, tmp_path: Path, monkeypatch) -> None:
    spec = RunSpec(epochs=3, batch=128, accumulate=accumulate, log_every=1, net="resnet18", lr=0.05)
    losses = {}
    for step in (RecordedStep, Step):
        monkeypatch.setattr("normscope.engine.loop.step_for", step)
        folder = tmp_path / step.__name__
        result = train(spec, folder=folder, device="cuda", quiet=True)
        losses[step] = [record["loss"] for record in result.metrics("step")]
    recorded, plain = (torch.tensor(losses[step]) for step in (RecordedStep, Step))
    assert recorded.min() < recorded[0] - 0.05
    # bf16 and the order of sums set them apart, a little more at each step
    torch.testing.assert_close(recorded, plain, rtol=0.03, atol=0)
    torch.testing.assert_close(recorded[:8], plain[:8], rtol=2e-3, atol=0)


def test_a_process_that_has_multiplied_before_still_trains(tmp_path: Path) -> None:
    code = f"""
import torch
x = torch.ones(8, 8, device="cuda")
x @ x
from normscope.engine import RunSpec, train
train(RunSpec(epochs=1), folder={str(tmp_path / "run")!r}, device="cuda", quiet=True)
"""
    free = {k: v for k, v in os.environ.items() if k != "CUBLAS_WORKSPACE_CONFIG"}
    done = subprocess.run([sys.executable, "-c", code], env=free, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"CUBLAS_WORKSPACE_CONFIG" in done.stderr  # PyTorch's warning


def write_pictures(folder: Path, *, train: int) -> None:
    """Noise of several sizes in two classes, and 20 pictures to test on."""
    rng = np.random.default_rng(0)
    for kind, n in (("train", train), ("test", 20)):
        for i in range(n):
            place = folder / kind / str(i % 2) / f"{i}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            shape = (*((40, 36), (32, 60), (45, 33))[i % 3], 3)
            Image.fromarray(rng.integers(256, size=shape, dtype=np.uint8)).save(place)


def test_images_from_files_arrive_on_the_gpu_as_they_are(tmp_path: Path) -> None:
    write_pictures(tmp_path, train=200)
    split = read_folder(tmp_path, "own", side=32, lazy=True).train
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    epochs = [order.split(70), order.flip(0).split(7), order.split(64)]  # more than slots hold
    expected = list(source(split, torch.device("cpu"), side=32, workers=0).batches(epochs))
    for workers in (0, 2):
        stream = source(split, torch.device("cuda"), side=32, workers=workers)
        for left_after in (3, len(expected)):  # a pass that is abandoned, and a whole one
            found = []
            for batch in islice(stream.batches(epochs), left_after):
                torch.cuda._sleep(10**7)  # cycles: the host runs ahead
                found.append(Batch(*(x + 0 for x in batch if x is not None)))
            for here, there in zip(expected[:left_after], found, strict=True):
                assert all(torch.equal(a, b.cpu()) for a, b in zip(here, there, strict=True))


def test_recorded_steps_on_images_of_several_sizes(tmp_path: Path, monkeypatch) -> None:
    write_pictures(tmp_path / "own", train=400)
    monkeypatch.setattr("normscope.data.folders._MOST_BYTES", 0)
    values = {"net": "resnet18", "epochs": 4, "batch": 128, "log_every": 1, "knn_k": 5, "lr": 0.05}
    spec = RunSpec(data=f"folder:{tmp_path / 'own'}", **values)
    losses = []
    for step in (RecordedStep, Step):
        monkeypatch.setattr("normscope.engine.loop.step_for", step)
        folder = tmp_path / step.__name__
        result = train(spec, folder=folder, device="cuda", quiet=True, workers=2)
        losses.append(torch.tensor([record["loss"] for record in result.metrics("step")]))
    assert len(losses[0]) == 12
    torch.testing.assert_close(losses[0], losses[1], rtol=5e-3, atol=0)


def test_gpu_runs_resume_and_are_evaluated(tmp_path: Path) -> None:
    spec = RunSpec(epochs=3, log_every=7)
    result = train(spec, folder=tmp_path / "run", device="cuda", quiet=True, checkpoint_seconds=0)
    again = train(spec, folder=tmp_path / "run", device="cuda", quiet=True, resume=True)
    assert again.knn == result.knn
    assert torch.get_float32_matmul_precision() == "highest"  # as it was
    (tmp_path / "run" / "result.json").unlink()
    assert train(spec, folder=tmp_path / "run", device="cuda", quiet=True, resume=True).steps == 63
    assert evaluate(tmp_path / "run", device="cuda")["layers"]["backbone"]["knn"] > 0.5

"""Resident and Streamed: which images come, in what order, whoever decodes them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from normscope.data import LazyImages, Resident, Split, Streamed, source
from normscope.data.folders import read_folder
from normscope.data.images import fitted
from normscope.data.streamed import crop_box

CPU = torch.device("cpu")


@pytest.fixture
def lazy(tmp_path: Path, write_images) -> Split:
    write_images(tmp_path, each=4, sizes=[(50, 40), (40, 60)])
    return read_folder(tmp_path, "own", side=32).train


def arrays() -> Split:
    images = np.arange(6 * 3 * 4 * 4, dtype=np.uint8).reshape(6, 3, 4, 4)
    return Split(images, np.array([5, 4, 3, 2, 1, 0]))


def test_resident_batches_follow_the_indices() -> None:
    split = arrays()
    resident = source(split, CPU, side=4, crop_scale=(0.2, 1.0))
    assert isinstance(resident, Resident)
    assert resident.needs_crop
    assert len(resident) == 6
    rows = [torch.tensor([4, 0, 4]), torch.tensor([2])]
    for (images, labels), chosen in zip(resident.batches(rows, seed=0), rows, strict=True):
        assert images.dtype == torch.uint8
        np.testing.assert_array_equal(images, np.asarray(split.images)[chosen.numpy()])
        np.testing.assert_array_equal(labels, split.labels[chosen.numpy()])
    parts = list(resident.evaluation_batches(4))
    assert [len(part) for part in parts] == [4, 2]
    np.testing.assert_array_equal(torch.cat(parts), split.images)


def test_resident_leaves_the_arrays_alone() -> None:
    split = arrays()
    resident = Resident(split, CPU)
    resident.images.zero_()
    assert np.asarray(split.images).any()


def streamed(split: Split, workers: int = 0, **changes) -> Streamed:
    options = {"side": 16, "crop_scale": (0.2, 1.0), **changes}
    made = source(split, CPU, workers=workers, **options)
    assert isinstance(made, Streamed)
    return made


def test_streamed_gives_two_views_in_the_order_of_the_indices(lazy: Split) -> None:
    stream = streamed(lazy)
    assert not stream.needs_crop
    rows = [torch.tensor([7, 0, 3]), torch.tensor([5])]
    batches = list(stream.batches(rows, seed=1))
    assert [tuple(views.shape) for views, _ in batches] == [(2, 3, 3, 16, 16), (2, 1, 3, 16, 16)]
    np.testing.assert_array_equal(batches[0][1], lazy.labels[rows[0].numpy()])
    views = batches[0][0]
    assert not torch.equal(views[0], views[1])
    [(alone, _)] = stream.batches([torch.tensor([0])], seed=1)
    assert torch.equal(alone[:, 0], views[:, 1])  # whatever its place in the batch
    [(other, _)] = stream.batches([torch.tensor([0])], seed=2)
    assert not torch.equal(other, alone)


def test_streamed_crops_each_image_in_its_own_way(tmp_path: Path, write_images) -> None:
    write_images(tmp_path, each=2, sizes=[(40, 40)])
    images = sorted((tmp_path / "train" / "a").iterdir())
    images[1].write_bytes(images[0].read_bytes())
    split = read_folder(tmp_path, "own", side=32).train
    [(views, _)] = streamed(split).batches([torch.tensor([0, 1])], seed=0)
    assert not torch.equal(views[:, 0], views[:, 1])


def test_streamed_whole_crop_is_the_resized_image(tmp_path: Path, write_images) -> None:
    write_images(tmp_path, each=1, sizes=[(32, 32)])
    split = read_folder(tmp_path, "own", side=32).train
    stream = streamed(split, crop_scale=(1.0, 1.0))
    assert isinstance(split.images, LazyImages)
    boxes = {crop_box((32, 32), (1.0, 1.0), np.random.default_rng(i)) for i in range(50)}
    assert boxes == {(0, 0, 32, 32)}  # no other aspect fits with the whole area
    [(views, _)] = stream.batches([torch.tensor([1])], seed=0)
    whole = Image.fromarray(split.images[1]).resize((16, 16), Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(views[0, 0], np.asarray(whole).transpose(2, 0, 1))


def test_streamed_is_the_same_with_and_without_workers_pass_after_pass(lazy: Split) -> None:
    rows = list(torch.arange(8).split(3))
    here, there = streamed(lazy), streamed(lazy, workers=2)
    state = torch.random.get_rng_state()
    for seed in (0, 1):
        for (a, x), (b, y) in zip(
            here.batches(rows, seed=seed), there.batches(rows, seed=seed), strict=True
        ):
            assert torch.equal(a, b)
            assert torch.equal(x, y)
        next(iter(there.batches(rows, seed=5)))  # a pass left half done does no harm
        for a, b in zip(here.evaluation_batches(3), there.evaluation_batches(3), strict=True):
            assert torch.equal(a, b)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_streamed_evaluates_on_centre_crops_in_order(lazy: Split) -> None:
    assert isinstance(lazy.images, LazyImages)
    parts = list(streamed(lazy).evaluation_batches(3))
    assert [tuple(part.shape) for part in parts] == [(3, 3, 16, 16), (3, 3, 16, 16), (2, 3, 16, 16)]
    for i, got in enumerate(torch.cat(parts)):
        expected = np.asarray(fitted(Image.fromarray(lazy.images[i]), 16))
        np.testing.assert_array_equal(got, expected.transpose(2, 0, 1))


def test_streamed_refuses_passes_that_overlap(lazy: Split) -> None:
    stream = streamed(lazy)
    first = stream.batches(list(torch.arange(8).split(2)), seed=0)
    next(first)
    next(stream.evaluation_batches(4))
    with pytest.raises(RuntimeError, match="These batches ended when others were asked for"):
        next(first)


def test_batches_refuse_wrong_arguments(lazy: Split) -> None:
    with pytest.raises(ValueError, match="split must be one whose images are an array"):
        Resident(lazy, CPU)
    with pytest.raises(ValueError, match="split must be one whose images are lazy"):
        Streamed(arrays(), CPU, side=4, crop_scale=(0.2, 1.0), workers=0)
    for scale in ((0.0, 1.0), (0.5, 0.2), (0.2, 1.5)):
        with pytest.raises(ValueError, match="crop_scale must be two shares in order"):
            streamed(lazy, crop_scale=scale)
    with pytest.raises(ValueError, match="seed must be an integer from 0, got -1"):
        next(streamed(lazy).batches([torch.tensor([0])], seed=-1))


@pytest.mark.parametrize("size", [(100, 100), (64, 48), (1000, 10), (10, 1000), (1, 1)])
def test_crop_box_stays_inside_and_keeps_to_scale_and_aspect(size: tuple[int, int]) -> None:
    width, height = size
    for i in range(300):
        left, top, right, bottom = crop_box(size, (0.2, 0.9), np.random.default_rng(i))
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
        if min(size) >= 48:
            w, h = right - left, bottom - top
            assert 0.18 < w * h / (width * height) < 0.93
            assert 0.7 < w / h < 1.43


def test_crop_box_areas_are_uniform() -> None:
    rng = np.random.default_rng(0)
    boxes = [crop_box((400, 400), (0.1, 0.6), rng) for _ in range(4000)]
    shares = np.array([(r - l) * (b - t) / 400**2 for l, t, r, b in boxes])  # noqa: E741
    standard_error = 0.5 / 12**0.5 / len(shares) ** 0.5
    assert abs(shares.mean() - 0.35) < 4 * standard_error
    lefts = np.array([left / (400 - (right - left)) for left, _, right, _ in boxes])
    assert abs(lefts.mean() - 0.5) < 4 / 12**0.5 / len(lefts) ** 0.5


SCRIPT = """
import sys, torch
from pathlib import Path
from normscope.data import source
from normscope.data.folders import read_folder
if __name__ == "__main__":
    split = read_folder(Path(sys.argv[1]), "own", side=32).train
    stream = source(split, torch.device("cpu"), side=16, crop_scale=(0.2, 1.0), workers=1)
    for seed in range(10**9):
        for _ in stream.batches(list(torch.arange(8).split(2)), seed=seed):
            print("going", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of process groups")
def test_streamed_ends_with_its_worker_when_interrupted(tmp_path: Path, write_images) -> None:
    write_images(tmp_path / "own", each=4, sizes=[(40, 40)])
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "own")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"going\n"
        os.killpg(process.pid, signal.SIGINT)
        process.stdout.read()
        assert process.wait(timeout=20) != 0
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("a worker outlived the interrupted process")

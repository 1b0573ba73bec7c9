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
from normscope.data.slots import piece_of

CPU = torch.device("cpu")


@pytest.fixture
def lazy(tmp_path: Path, write_images) -> Split:
    write_images(tmp_path, each=4, sizes=[(50, 40), (40, 60)])
    return read_folder(tmp_path, "own", side=32, lazy=True).train


def arrays() -> Split:
    images = np.arange(6 * 3 * 4 * 4, dtype=np.uint8).reshape(6, 3, 4, 4)
    return Split(images, np.array([5, 4, 3, 2, 1, 0]))


def test_resident_batches_follow_the_indices() -> None:
    split = arrays()
    resident = source(split, CPU, side=4)
    assert isinstance(resident, Resident)
    assert len(resident) == 6
    rows = [torch.tensor([4, 0, 4]), torch.tensor([2])]
    found = resident.batches([rows, [], rows[:1]])  # an epoch of two, one already over, one of one
    for batch, chosen in zip(found, [*rows, rows[0]], strict=True):
        assert batch.images.dtype == torch.uint8
        assert batch.sizes is None
        np.testing.assert_array_equal(batch.images, np.asarray(split.images)[chosen.numpy()])
        np.testing.assert_array_equal(batch.labels, split.labels[chosen.numpy()])
    parts = list(resident.evaluation_batches(4))
    assert [len(part) for part in parts] == [4, 2]
    np.testing.assert_array_equal(torch.cat(parts), split.images)


def test_resident_leaves_the_arrays_alone() -> None:
    split = arrays()
    resident = Resident(split, CPU)
    resident.images.zero_()
    assert np.asarray(split.images).any()


def streamed(split: Split, workers: int = 0, side: int = 16) -> Streamed:
    made = source(split, CPU, workers=workers, side=side)
    assert isinstance(made, Streamed)
    return made


def test_streamed_gives_whole_images_in_corners_in_the_order_of_the_indices(lazy: Split) -> None:
    assert isinstance(lazy.images, LazyImages)
    rows = [torch.tensor([7, 0, 3]), torch.tensor([5])]
    found = list(streamed(lazy, side=32).batches([rows, rows[:1]]))
    for batch, chosen in zip(found, [*rows, rows[0]], strict=True):
        assert batch.images.shape == (len(chosen), 3, 60, 60)  # the longest side of all
        assert batch.sizes is not None
        np.testing.assert_array_equal(batch.labels, lazy.labels[chosen.numpy()])
        for image, (h, w), i in zip(batch.images, batch.sizes.tolist(), chosen, strict=True):
            expected = lazy.images[int(i)].transpose(2, 0, 1)
            np.testing.assert_array_equal(image[:, :h, :w], expected)
            assert not image[:, h:].any()
            assert not image[:, :, w:].any()


def test_streamed_brings_large_images_down_to_four_times_the_side(lazy: Split) -> None:
    [batch] = streamed(lazy, side=8).batches([[torch.arange(8)]])
    assert batch.images.shape == (8, 3, 32, 32)
    assert batch.sizes is not None
    assert {tuple(size) for size in batch.sizes.tolist()} == {(26, 32), (32, 21)}
    assert isinstance(lazy.images, LazyImages)
    for image, (h, w), i in zip(batch.images, batch.sizes.tolist(), range(8), strict=True):
        whole = Image.fromarray(lazy.images[i]).resize((w, h), Image.Resampling.BICUBIC)
        np.testing.assert_array_equal(image[:, :h, :w], np.asarray(whole).transpose(2, 0, 1))


def test_streamed_puts_a_batch_together_from_many_pieces(tmp_path: Path, write_images) -> None:
    write_images(tmp_path, each=40, sizes=[(16, 16), (20, 14)])
    split = read_folder(tmp_path, "own", side=16, lazy=True).train
    assert isinstance(split.images, LazyImages)
    order = torch.randperm(80, generator=torch.Generator().manual_seed(0))
    batches = streamed(split, workers=2).batches([order.split(70), order.split(33)])
    rows = [*order.split(70), *order.split(33)]
    for batch, chosen in zip(batches, rows, strict=True):
        assert batch.sizes is not None
        for image, (h, w), i in zip(batch.images, batch.sizes, chosen, strict=True):
            np.testing.assert_array_equal(image[:, :h, :w], split.images[int(i)].transpose(2, 0, 1))
            assert not image[:, h:].any()  # though larger images have lain there
            assert not image[:, :, w:].any()
        np.testing.assert_array_equal(batch.labels, split.labels[chosen.numpy()])


def test_pieces_of_large_images_are_small() -> None:
    assert piece_of(32) == 32
    assert piece_of(896) == 3
    assert piece_of(10_000) == 1


def test_streamed_takes_large_images_a_few_at_a_time(tmp_path: Path, write_images) -> None:
    write_images(tmp_path, each=4, sizes=[(720, 900), (600, 500)])
    split = read_folder(tmp_path, "own", side=224, lazy=True).train
    assert isinstance(split.images, LazyImages)
    [batch] = streamed(split, side=224).batches([[torch.arange(8)]])
    assert batch.sizes is not None
    assert batch.sizes.tolist() == [[896, 717], [500, 600]] * 4
    for image, (h, w), i in list(zip(batch.images, batch.sizes, range(8), strict=True))[1::2]:
        np.testing.assert_array_equal(image[:, :h, :w], split.images[i].transpose(2, 0, 1))
        assert not image[:, h:].any()


def test_streamed_is_the_same_with_and_without_workers_pass_after_pass(lazy: Split) -> None:
    rows = list(torch.arange(8).split(3))
    here, there = streamed(lazy), streamed(lazy, workers=2)
    state = torch.random.get_rng_state()
    for _ in range(2):
        for one, two in zip(here.batches([rows]), there.batches([rows]), strict=True):
            for a, b in zip(one, two, strict=True):
                assert torch.equal(a, b)
        next(iter(there.batches([rows])))  # a pass left half done does no harm
        for a, b in zip(here.evaluation_batches(3), there.evaluation_batches(3), strict=True):
            assert torch.equal(a, b)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_streamed_evaluates_in_little_memory_and_takes_more_to_train(lazy: Split) -> None:
    stream, rows = streamed(lazy, workers=1), [torch.arange(8)]
    before = torch.cat(list(stream.evaluation_batches(5)))
    [large] = stream.batches([rows])
    [expected] = streamed(lazy).batches([rows])
    assert large.images.shape[-1] == 60
    assert torch.equal(large.images, expected.images)
    assert torch.equal(torch.cat(list(stream.evaluation_batches(5))), before)


def test_streamed_evaluates_on_centre_crops_in_order(lazy: Split) -> None:
    assert isinstance(lazy.images, LazyImages)
    parts = list(streamed(lazy).evaluation_batches(3))
    assert [tuple(part.shape) for part in parts] == [(3, 3, 16, 16), (3, 3, 16, 16), (2, 3, 16, 16)]
    for i, got in enumerate(torch.cat(parts)):
        expected = np.asarray(fitted(Image.fromarray(lazy.images[i]), 16))
        np.testing.assert_array_equal(got, expected.transpose(2, 0, 1))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("finished", [False, True])
def test_streamed_refuses_passes_that_overlap(lazy: Split, workers: int, finished: bool) -> None:
    stream = streamed(lazy, workers)
    first = stream.batches([torch.arange(8).split(2)])
    next(first)
    second = stream.evaluation_batches(4)
    parts = [next(second), *(second if finished else ())]
    with pytest.raises(RuntimeError, match="These batches ended when others began"):
        next(first)
    assert sum(map(len, [*parts, *second])) == 8  # and does the other no harm


def test_too_little_shared_memory_is_told_in_one_line(tmp_path: Path, write_images) -> None:
    write_images(tmp_path, each=40, sizes=[(300, 300)])
    script = f"""
import torch
from pathlib import Path
from normscope.data import source
from normscope.data.folders import read_folder
split = read_folder(Path({str(tmp_path)!r}), "own", side=224, lazy=True).train
next(source(split, torch.device("cpu"), side=224, workers=2).batches([torch.arange(80).split(40)]))
"""
    small = 'mount -t tmpfs -o size=1M tmpfs /dev/shm || exit 77; exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", small, "sh", sys.executable, "-c", script]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("needs unshare")
    if done.returncode == 77 or done.stderr.startswith("unshare:"):
        pytest.skip("needs the right to mount")
    assert "ValueError: shared memory must be free for 42 MB, got 'No space" in done.stderr


def test_batches_refuse_wrong_arguments(lazy: Split) -> None:
    with pytest.raises(ValueError, match="split must be one whose images are an array"):
        Resident(lazy, CPU)
    with pytest.raises(ValueError, match="split must be one whose images are lazy"):
        Streamed(arrays(), CPU, side=4, workers=0)


SCRIPT = """
import sys, torch
from pathlib import Path
from normscope.data import source
from normscope.data.folders import read_folder
if __name__ == "__main__":
    split = read_folder(Path(sys.argv[1]), "own", side=32, lazy=True).train
    stream = source(split, torch.device("cpu"), side=16, workers=1)
    for _ in stream.batches(torch.arange(8).split(2) for _ in range(10**9)):
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

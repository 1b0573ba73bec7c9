"""How long training waited for images, by the clock of whoever works on them."""

import time
from collections.abc import Iterator

import pytest
import torch

from normscope.data import Batch
from normscope.engine.waiting import Waiting


def slow(seconds: float, n: int) -> Iterator[Batch]:
    for i in range(n):
        time.sleep(seconds)
        yield Batch(torch.full((1, 3, 2, 2), i), None, torch.zeros(1))


def test_waits_are_added_up_and_the_time_between_them_is_not() -> None:
    waiting = Waiting(torch.device("cpu"))
    found, start = [], time.perf_counter()
    for batch in waiting.through(slow(0.02, 3)):
        found.append(int(batch.images[0, 0, 0, 0]))
        time.sleep(0.1)
    assert found == [0, 1, 2]
    whole = time.perf_counter() - start
    assert 0.06 <= waiting.taken() <= whole - 0.3
    assert waiting.taken() == 0


@pytest.mark.gpu
@pytest.mark.parametrize("busy", [True, False])
def test_a_gpu_that_has_work_left_does_not_wait(busy: bool) -> None:
    waiting = Waiting(torch.device("cuda"))
    for _ in waiting.through(slow(0, 1)):  # what is done for the first time takes long
        torch.cuda._sleep(1)
    waiting.taken()
    for _ in waiting.through(slow(0.02, 3)):
        if busy:
            torch.cuda._sleep(10**9)  # cycles: half a second
    waited = waiting.taken()
    assert waited == pytest.approx(0.02 if busy else 0.06, abs=0.01)  # the first always

"""extract: the order, the scale and the format of what comes back."""

import pytest
import torch
from torch import Tensor, nn

from normscope.evaluation import extract


def test_extract_joins_named_outputs_in_order_in_float32() -> None:
    images = torch.arange(7, dtype=torch.uint8).reshape(7, 1, 1, 1).expand(7, 3, 4, 4) * 40
    got = extract(
        lambda x: {"mean": x.mean((1, 2, 3)), "half": x[:, :, 0, 0].bfloat16()},
        images.split(3),
        device="cpu",
    )
    torch.testing.assert_close(got["mean"], torch.arange(7) * 40 / 255)
    assert {name: (tuple(v.shape), v.dtype) for name, v in got.items()} == {
        "mean": ((7,), torch.float32),
        "half": ((7, 3), torch.float32),
    }


def test_extract_gives_images_in_unit_range_channels_last_and_no_graph() -> None:
    net = nn.Conv2d(3, 2, 1)
    seen = []

    def encode(x: Tensor) -> dict[str, Tensor]:
        seen.append(x)
        return {"h": net(x).mean((2, 3))}

    images = torch.randint(256, (5, 3, 4, 4), dtype=torch.uint8)
    got = extract(encode, iter([images]), device="cpu")
    assert not got["h"].requires_grad
    assert torch.equal(seen[0], images / 255)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


def test_extract_refuses_what_are_no_raw_images_in_one_line() -> None:
    def encode(x: Tensor) -> dict[str, Tensor]:
        return {"x": x}

    for batches, message in (
        ([torch.rand(2, 3, 4, 4)], r"batches must be uint8 tensors \(n, c, h, w\), got a float32"),
        ([torch.zeros(3, 4, 4, dtype=torch.uint8)], "batches must be uint8 tensors"),
        ([], "batches must be at least one batch"),
    ):
        with pytest.raises(ValueError, match=message):
            extract(encode, batches, device="cpu")

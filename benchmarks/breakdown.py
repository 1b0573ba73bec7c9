"""Where the time of a training step goes on a GPU, by kernel, with FLOPs and bytes counted.

    python benchmarks/breakdown.py --net resnet18

Profiles one warm epoch of `normscope.train` on random images. Convolutions are set against a large
matrix product, batch norms against a large copy, both measured in the same run; the FLOPs are
those of the convolutions' shapes, the bytes those that fused norms must move (nets/fused.py).
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from normscope.engine import RunSpec, train
from normscope.engine.loop import Loop
from normscope.methods import METHODS
from normscope.nets import backbone
from steady import random_images
from tables import HERE, Table, installed

EPOCHS = 3
# what a kernel belongs to, by a part of its name; the first that fits
KINDS = {
    "multi_tensor_apply": "optimizer",
    "init_device_workspace": "cuDNN's preparations",
    "fprop": "convolutions",
    "dgrad": "convolutions",
    "wgrad": "convolutions",
    "cutlass__5x_cudnn": "convolutions",
    "convolve": "convolutions",
    "_forward_sums": "batch norms",
    "_backward_sums": "batch norms",
    "_finish_": "batch norms",
    "_apply": "batch norms",
    "_directions": "loss",
    "_sums": "loss",
    "_losses": "loss",
    "_forces": "loss",
    "_gradients": "loss",
    "_patches": "stem, heads and the loss's product",
    "nvjet": "stem, heads and the loss's product",
    "splitK": "stem, heads and the loss's product",
    "gemm": "stem, heads and the loss's product",
    "triton_": "views and compiled heads",
    "copy": "casts and copies",
    "Mem": "casts and copies",
}


def kind_of(kernel: str) -> str:
    """The part of a step that a kernel belongs to."""
    return next((kind for part, kind in KINDS.items() if part in kernel), "other")


def profiled(args: argparse.Namespace) -> tuple[Counter[str], Counter[str], float, int]:
    """Milliseconds and kernels of each kind in the last epoch, its gaps, and its steps."""
    found = profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU])
    end_epoch = Loop._end_epoch

    def ended(loop: Loop, **options: bool) -> None:
        if loop.progress.epoch == EPOCHS - 1:
            torch.cuda.synchronize()
            found.stop()
        end_epoch(loop, **options)
        if loop.progress.epoch == EPOCHS - 1:
            torch.cuda.synchronize()
            found.start()

    with tempfile.TemporaryDirectory() as folder:
        data = random_images(Path(folder), args.images, 32)
        values = {"method": args.method, "net": args.net, "batch": args.batch, "accumulate": 1}
        spec = RunSpec(data=data, epochs=EPOCHS, knn_k=1, **values)
        with patch.object(Loop, "_end_epoch", ended):
            train(spec, folder=Path(folder) / "run", device="cuda", quiet=True)
    events = [e for e in found.events() or [] if "CUDA" in str(e.device_type)]
    kernels = sorted(
        (e.time_range.start, e.time_range.end, e.name) for e in events if "#" not in e.name
    )
    spent, count, busy_until, gaps = Counter(), Counter(), kernels[0][0], 0.0
    for start, end, name in kernels:
        gaps += max(0.0, start - busy_until)
        busy_until = max(busy_until, end)
        spent[kind_of(name)] += (end - start) / 1e3
        count[kind_of(name)] += 1
    return spent, count, gaps / 1e3, args.images // args.batch


def counted(net: str, batch: int) -> tuple[float, float]:
    """FLOPs of a step's convolutions and bytes of its batch norms, of two views in bf16."""
    network = backbone(net, side=32)
    flops, passes = 0.0, 0.0

    def conv(layer: nn.Conv2d, inputs: tuple[torch.Tensor], out: torch.Tensor) -> None:
        nonlocal flops
        each = 2 * out[0].numel() * layer.in_channels * layer.kernel_size[0] ** 2
        flops += each * (2 if inputs[0].shape[1] == 3 else 3)  # no gradient in the images

    def norm(layer: nn.BatchNorm2d, _: Any, out: torch.Tensor) -> None:
        nonlocal passes
        # read twice and written once forward, five passes backward; at a block's end the
        # shortcut is read, its gradient written, and two readers' gradients are added
        last = layer in ends
        passes += out[0].numel() * (12 if last else 8)

    ends = {block.bn3 if hasattr(block, "bn3") else block.bn2 for block in _blocks(network)}
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(conv)  # pyright: ignore[reportArgumentType]
        elif isinstance(layer, nn.BatchNorm2d):
            layer.register_forward_hook(norm)  # pyright: ignore[reportArgumentType]
    network(torch.zeros(1, 3, 32, 32))
    return flops * 2 * batch, passes * 2 * batch * 2


def _blocks(network: nn.Module) -> list[Any]:
    return [layer for layer in network.modules() if hasattr(layer, "downsample")]


def ceilings() -> tuple[float, float]:
    """FLOP/s of a large bf16 product, and bytes/s of a large copy."""
    a, b = torch.randn(2, 8192, 8192, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(1 << 29, device="cuda")
    y = torch.empty_like(x)
    return 2 * 8192**3 / seconds(lambda: a @ b), 2 * x.numel() * 4 / seconds(lambda: y.copy_(x))


def seconds(work: Any, repeats: int = 20) -> float:
    """Of one call, on the device."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for i in range(repeats + 3):
        if i == 3:
            begin.record()
        work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / repeats


def main() -> None:
    """Profile an epoch and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--net", choices=["resnet18", "resnet50"], default="resnet18")
    parser.add_argument("--method", choices=list(METHODS), default="simclr")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--name", help="of the JSON file; breakdown-NET unless given")
    parser.add_argument("--folder", type=Path, default=HERE, help="where README.md is made")
    args = parser.parse_args()
    if not 2 <= args.batch <= args.images:
        parser.error(f"--batch must be at least 2 and at most --images, got {args.batch}.")
    if not torch.cuda.is_available():
        parser.error("a profile needs a GPU, and there is no CUDA device here.")
    spent, count, gaps, steps = profiled(args)
    flops, moved = counted(args.net, args.batch)
    flop_rate, byte_rate = ceilings()
    notes = {
        "convolutions": f"{flops / 1e12:.2f} TFLOP, "
        f"{flops / (spent['convolutions'] / steps) / flop_rate * 1e3:.0%} of a large product's "
        f"{flop_rate / 1e12:.0f} TFLOP/s",
        "batch norms": f"{moved / 1e9:.1f} GB, "
        f"{moved / (spent['batch norms'] / steps) / byte_rate * 1e3:.0%} of a large copy's "
        f"{byte_rate / 1e12:.2f} TB/s",
    }
    rows = [
        [kind, f"{ms / steps:.3f}", f"{count[kind] / steps:.0f}", notes.get(kind, "")]
        for kind, ms in spent.most_common()
    ]
    rows.append(["gaps between kernels", f"{gaps / steps:.3f}", "-", "the profiler's own included"])
    table = Table(
        title=f"A step of {args.method}, {args.net}, batch {args.batch} in two views",
        columns=["part", "ms", "kernels", "against the limit"],
        rows=rows,
        notes=[f"{steps} steps profiled; they take longer so."],
        measured={"ms": dict(spent), "gaps": gaps, "flops": flops, "bytes": moved}
        | {"flop_rate": flop_rate, "byte_rate": byte_rate, "steps": steps},
        versions=installed("torch", "triton"),
    )
    table.save(args.name or f"breakdown-{args.net}", args.folder)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped; nothing was stored") from None

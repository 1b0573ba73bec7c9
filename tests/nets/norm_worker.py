"""One of two gloo processes: train two steps on its half of each batch, save what it got.

Run by test_batch_norm.py as: norm_worker.py RANK FOLDER
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from normscope.nets import synchronised

WORLD, ROWS, STEPS = 2, 3, 2


def network() -> nn.Sequential:
    """The same weights in every process, and each kind of batch norm."""
    torch.manual_seed(0)
    norms = [
        nn.BatchNorm2d(4, momentum=0.3),
        nn.BatchNorm1d(5, affine=False),
        nn.BatchNorm1d(3, momentum=None),
        nn.BatchNorm1d(3, track_running_stats=False),
    ]
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3), norms[0], nn.ReLU(), nn.Flatten(), nn.Linear(36, 5), norms[1],
        nn.Linear(5, 3), norms[2], nn.Tanh(), nn.Linear(3, 3), norms[3]
    )  # fmt: skip
    for norm in (norms[0], norms[2], norms[3]):
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    return net.double()


def images() -> Tensor:
    """The joined batch of every step; far from zero mean, so that halves differ."""
    x = torch.randn(STEPS, WORLD * ROWS, 2, 5, 5, generator=torch.Generator().manual_seed(1))
    return x.double() * 3 + torch.arange(WORLD * ROWS).reshape(-1, 1, 1, 1)


def train(net: nn.Module, batches: Tensor, rows: slice) -> dict:
    """Outputs and gradients of the last step, buffers, and the output in eval mode."""
    outputs = []
    for x in batches:
        net.zero_grad()
        outputs.append(net(x[rows]))
        (outputs[-1] ** 3).mean().backward()
    grads = [p.grad for p in net.parameters()]
    buffers = list(net.buffers())
    with torch.no_grad():
        evaluated = net.eval()(batches[-1][rows])
    return {"out": outputs[-1].detach(), "grads": grads, "buffers": buffers, "evaluated": evaluated}


def main() -> None:
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD
    )
    net = DistributedDataParallel(synchronised(network()))
    got = train(net, images(), slice(rank * ROWS, (rank + 1) * ROWS))
    torch.save(got, folder / f"{rank}.pt")
    dist.barrier()  # neither leaves while the other still talks
    dist.destroy_process_group()
    os._exit(0)  # a thread of gloo's that still drops tensors would abort as Python ends


if __name__ == "__main__":
    main()

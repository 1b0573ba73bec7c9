"""One of two gloo processes: train one step on its half of a batch, save what it got.

Run by test_gather.py as: gather_worker.py RANK FOLDER CASE
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from normscope import GradScale
from normscope.losses import info_nce, partition

WORLD, ROWS, TAU = 2, 6, 0.1


def network() -> nn.Sequential:
    """The same weights in every process."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4), GradScale(power=1.0))


def images() -> tuple[torch.Tensor, torch.Tensor]:
    """Both views of the joined batch."""
    x = torch.randn(2, WORLD * ROWS, 5, generator=torch.Generator().manual_seed(1))
    return x[0], x[1]


def step(net: nn.Module, x1: torch.Tensor, x2: torch.Tensor, *, gather: bool, tau=TAU) -> dict:
    """The loss and its gradients in the parameters and in the embeddings."""
    # one call for both views: DDP counts each forward as a step of its own
    z1, z2 = net(torch.cat([x1, x2])).chunk(2)
    z1.retain_grad()
    loss = info_nce(z1, z2, temperature=tau, gather=gather)
    loss.backward()
    grads = [p.grad for p in net.parameters()]
    return {"loss": loss.detach(), "grads": grads, "z1_grad": z1.grad}


def main() -> None:
    rank, folder, case = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    partition._TILE["cpu"] = 5  # several tiles, some of them another process's
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD
    )
    x1, x2 = images()
    rows = slice(rank * ROWS, (rank + 1) * ROWS)
    if case == "uneven" and rank == 1:
        rows = slice(rank * ROWS, (rank + 1) * ROWS - 2)
    tau = 0.2 if case == "temperature" and rank == 1 else TAU
    try:
        got = step(DistributedDataParallel(network()), x1[rows], x2[rows], gather=True, tau=tau)
    except ValueError as error:
        got = {"error": str(error)}
    torch.save(got, folder / f"{rank}.pt")
    dist.barrier()  # neither leaves while the other still talks
    dist.destroy_process_group()
    os._exit(0)  # a thread of gloo's that still drops tensors would abort as Python ends


if __name__ == "__main__":
    main()

"""VICReg's step against its paper's terms as plain loops, and two processes against one."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from normscope.engine import RunSpec
from normscope.methods.vicreg import VICReg

from .plain import Flat, N, assert_same_gradients, labels, online, views

D = 4


def method() -> VICReg:
    """In eval mode, so that an image's embedding is its own; some deviations fall short of one."""
    net = VICReg(Flat(), dimension=D).double().eval()
    deviations = net(views(), labels()).embeddings.std(0).detach()
    net.projector[-1].weight.data.div_(deviations.median())
    return net


def rows(net: VICReg, x: Tensor) -> list[Tensor]:
    """The embeddings one image at a time, first views first."""
    return [net.projector(net.backbone(image[None]))[0] for image in x.flatten(0, 1)]


def plain_loop(z: list[Tensor]) -> Tensor:
    invariance = sum((z[i][j] - z[N + i][j]) ** 2 for i in range(N) for j in range(D)) / (N * D)
    variance, covariance = torch.zeros(()), torch.zeros(())
    for view in (z[:N], z[N:]):
        mean = [sum(row[j] for row in view) / N for j in range(D)]
        for j in range(D):
            spread = sum((row[j] - mean[j]) ** 2 for row in view) / (N - 1)
            variance = variance + torch.relu(1 - (spread + 1e-4).sqrt()) / (2 * D)
            for k in set(range(D)) - {j}:
                both = sum((row[j] - mean[j]) * (row[k] - mean[k]) for row in view) / (N - 1)
                covariance = covariance + both**2 / D
    return 25 * invariance + 25 * variance + covariance


def test_vicreg_loss_and_gradients_equal_plain_loops() -> None:
    net, x = method(), views()
    expected = plain_loop(rows(net, x))
    assert_same_gradients(net(x, labels()).loss, expected, online(net))


def test_vicreg_gives_raw_embeddings_each_drawn_to_the_other_view() -> None:
    net, x = method(), views()
    out, z = net(x, labels()), rows(net, x)
    torch.testing.assert_close(out.embeddings, torch.stack(z))
    torch.testing.assert_close(out.targets, torch.stack(z[N:] + z[:N]))
    torch.testing.assert_close(out.features, net.backbone(x.flatten(0, 1)))


def test_vicreg_feels_the_norm_of_embeddings_as_no_cosine_does() -> None:
    net, x = method(), views()[:1].repeat(2, 1, 1, 1, 1)
    before = net(x, labels()).loss
    net.projector[-1].weight.data.mul_(0.1)
    assert net(x, labels()).loss > before + 5  # deviations fall short of one


def test_vicreg_is_trained_as_its_paper_says() -> None:
    spec = RunSpec(method="vicreg", data="cifar10", epochs=100)
    assert (spec.optimizer, spec.lr, spec.weight_decay) == ("lars", 0.2, 1e-6)
    assert (spec.decay, spec.warmup_epochs, spec.augmentation) == ("no_bias_norm", 10, "byol")
    assert spec.batch == 512
    net = VICReg(Flat())
    assert (net.invariance, net.variance, net.covariance) == (25, 25, 1)
    assert net.projector[-1].weight.shape == (2048, 2048)
    assert net.projector[-1].bias is None


PROCESS = """
import sys
import torch
import torch.distributed as dist
from normscope.methods.vicreg import VICReg
from tests.methods.plain import Flat

rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if world > 1:
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=world)
torch.manual_seed(0)
net = VICReg(Flat(), dimension=4).double().eval()
views = torch.randn(2, 8, 3, 8, 8, dtype=torch.float64)
share = 8 // world
out = net(views[:, rank * share : (rank + 1) * share], None)
out.loss.backward()
gradients = [p.grad for p in net.parameters() if p.grad is not None]
if world > 1:
    for gradient in gradients:  # as DistributedDataParallel does
        dist.all_reduce(gradient)
        gradient /= world
torch.save([out.loss.detach(), *gradients], f"{folder}/{world}-{rank}.pt")
"""


@pytest.mark.filterwarnings("ignore")
def test_vicreg_on_two_processes_takes_the_step_of_one(tmp_path: Path) -> None:
    places = [(0, 1), (0, 2), (1, 2)]
    processes = [
        subprocess.Popen([sys.executable, "-c", PROCESS, str(rank), str(world), str(tmp_path)])
        for rank, world in places
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0, 0]
    whole, *parts = (torch.load(tmp_path / f"{world}-{rank}.pt") for rank, world in places)
    for part in parts:
        for value, expected in zip(part, whole, strict=True):
            torch.testing.assert_close(value, expected)

"""How others train on two views of small images: lightly, and a plain torchvision loop.

Both keep images as arrays in memory and make the views one by one with Pillow in worker processes,
as their users do. Importing a peer that is not installed fails with its own error.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

Loss = Callable[[list[Tensor]], Tensor]


class Pictures(Dataset[Any]):
    """Random images, made into what `transform` gives of a Pillow image."""

    def __init__(self, n: int, transform: Callable[[Image.Image], Any]) -> None:
        self.pixels = np.random.default_rng(0).integers(256, size=(n, 32, 32, 3), dtype=np.uint8)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, i: int) -> Any:
        """The views of one image."""
        return self.transform(Image.fromarray(self.pixels[i]))


def epochs(n: int, batch: int, workers: int, transform: Any) -> Iterator[DataLoader[Any]]:
    """A loader whose workers live on from one epoch to the next."""
    loader = DataLoader(
        Pictures(n, transform),
        batch_size=batch,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=torch.cuda.is_available(),
    )
    while True:
        yield loader


def resnet(name: str) -> nn.Module:
    """Torchvision's network with the stem for 32 pixels and without a classifier."""
    import torchvision  # pyright: ignore[reportMissingImports]

    net = getattr(torchvision.models, name)()
    net.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    net.maxpool, net.fc = nn.Identity(), nn.Identity()
    return net


def width(name: str) -> int:
    """Features of a ResNet."""
    return 512 if name == "resnet18" else 2048


def plain(method: str, net: str, n: int, batch: int, workers: int, count: int) -> list[float]:
    """SimCLR as the paper's published code trains it: float32, a pass for each view.

    Returns:
        Seconds of each epoch.
    """
    from torchvision import transforms as t  # pyright: ignore[reportMissingImports]

    if method != "simclr":
        raise ValueError("plain must be simclr: the others have the same pipeline.")
    jitter = [t.ColorJitter(*(0.4 * (i == k) for i in range(3)), 0.1 * (k == 3)) for k in range(4)]
    view = t.Compose(
        [
            t.RandomResizedCrop(32, (0.2, 1.0)),
            t.RandomHorizontalFlip(),
            *(t.RandomApply([j], p=0.8) for j in jitter),
            t.RandomGrayscale(0.2),
            t.ToTensor(),
        ]
    )
    torch.backends.cudnn.benchmark = True
    d = width(net)
    head = nn.Sequential(nn.Linear(d, d, bias=False), nn.ReLU(), nn.Linear(d, 128, bias=False))
    model = nn.Sequential(resnet(net), head).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.36, momentum=0.9, weight_decay=1e-6)
    seconds = []
    for _, loader in zip(range(count), epochs(n, batch, workers, Two(view)), strict=False):
        start = time.perf_counter()
        for x1, x2 in loader:
            z1, z2 = (F.normalize(model(x.cuda()), dim=1) for x in (x1, x2))
            similarity = z1 @ torch.cat([z2, z1]).T / 0.5
            own = torch.arange(len(z1), device=z1.device)
            similarity[own, own + len(z1)] = -torch.inf
            loss = F.cross_entropy(similarity, own)
            loss.backward()
            loss.item()  # its progress bar shows the loss of each step
            optimizer.step()
            optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
    return seconds


class Two:
    """Two views of an image by one random transform."""

    def __init__(self, view: Callable[[Image.Image], Tensor]) -> None:
        self.view = view

    def __call__(self, image: Image.Image) -> list[Tensor]:
        """Both."""
        return [self.view(image), self.view(image)]


def lightly(method: str, net: str, n: int, batch: int, workers: int, count: int) -> list[float]:
    """Lightly's own transforms, heads and losses in bf16, as its examples put them together.

    Returns:
        Seconds of each epoch.
    """
    torch.backends.cudnn.benchmark = True
    model, transform, loss_of, follow = LIGHTLY[method](resnet(net), width(net))
    model.cuda().to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, 0.06, momentum=0.9, weight_decay=5e-4)
    seconds = []
    for _, loader in zip(range(count), epochs(n, batch, workers, transform), strict=False):
        start = time.perf_counter()
        for views in loader:
            moved = [
                x.cuda(non_blocking=True).to(memory_format=torch.channels_last) for x in views[:2]
            ]
            follow()
            with torch.autocast("cuda", torch.bfloat16):
                loss = loss_of(moved)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds


Built = tuple[nn.Module, Any, Loss, Callable[[], None]]


def _simclr(net: nn.Module, d: int) -> Built:
    from lightly.loss import NTXentLoss  # pyright: ignore[reportMissingImports]
    from lightly.models.modules import SimCLRProjectionHead  # pyright: ignore[reportMissingImports]
    from lightly.transforms import SimCLRTransform  # pyright: ignore[reportMissingImports]

    model = nn.Sequential(net, SimCLRProjectionHead(d, d, 128))
    criterion = NTXentLoss(0.5)
    loss = lambda views: criterion(*(model(x) for x in views))  # noqa: E731
    return model, SimCLRTransform(input_size=32, gaussian_blur=0.0), loss, lambda: None


def _simsiam(net: nn.Module, d: int) -> Built:
    from lightly.loss import NegativeCosineSimilarity  # pyright: ignore[reportMissingImports]
    from lightly.models.modules import (  # pyright: ignore[reportMissingImports]
        SimSiamPredictionHead,
        SimSiamProjectionHead,
    )
    from lightly.transforms import SimSiamTransform  # pyright: ignore[reportMissingImports]

    encoder = nn.Sequential(net, SimSiamProjectionHead(d, 2048, 2048))
    predictor = SimSiamPredictionHead(2048, 512, 2048)
    criterion = NegativeCosineSimilarity()

    def loss(views: list[Tensor]) -> Tensor:
        z1, z2 = (encoder(x) for x in views)
        terms = criterion(predictor(z1), z2.detach()) + criterion(predictor(z2), z1.detach())
        return terms / 2

    return nn.ModuleList([encoder, predictor]), SimSiamTransform(input_size=32), loss, lambda: None


def _byol(net: nn.Module, d: int) -> Built:
    from lightly.loss import NegativeCosineSimilarity  # pyright: ignore[reportMissingImports]
    from lightly.models.modules import (  # pyright: ignore[reportMissingImports]
        BYOLPredictionHead,
        BYOLProjectionHead,
    )
    from lightly.transforms.byol_transform import (  # pyright: ignore[reportMissingImports]
        BYOLTransform,
        BYOLView1Transform,
        BYOLView2Transform,
    )

    encoder = nn.Sequential(net, BYOLProjectionHead(d, 4096, 256))
    predictor, criterion = BYOLPredictionHead(256, 4096, 256), NegativeCosineSimilarity()
    target, follow = _follower(encoder)
    transform = BYOLTransform(BYOLView1Transform(input_size=32), BYOLView2Transform(input_size=32))

    def loss(views: list[Tensor]) -> Tensor:
        p1, p2 = (predictor(encoder(x)) for x in views)
        with torch.no_grad():
            z1, z2 = (target(x) for x in views)
        return (criterion(p1, z2) + criterion(p2, z1)) / 2

    return nn.ModuleList([encoder, predictor, target]), transform, loss, follow


def _moco_v2(net: nn.Module, d: int) -> Built:
    from lightly.loss import NTXentLoss  # pyright: ignore[reportMissingImports]
    from lightly.models.modules import MoCoProjectionHead  # pyright: ignore[reportMissingImports]
    from lightly.transforms import MoCoV2Transform  # pyright: ignore[reportMissingImports]

    encoder = nn.Sequential(net, MoCoProjectionHead(d, d, 128))
    target, follow = _follower(encoder)
    criterion = NTXentLoss(0.2, memory_bank_size=(4096, 128)).cuda()

    def loss(views: list[Tensor]) -> Tensor:
        with torch.no_grad():
            key = target(views[1])
        return criterion(encoder(views[0]), key)

    return nn.ModuleList([encoder, target]), MoCoV2Transform(input_size=32), loss, follow


def _dino(net: nn.Module, d: int) -> Built:
    from lightly.loss import DINOLoss  # pyright: ignore[reportMissingImports]
    from lightly.models.modules import DINOProjectionHead  # pyright: ignore[reportMissingImports]
    from lightly.transforms import DINOTransform  # pyright: ignore[reportMissingImports]

    # its weight norm can't be copied
    student, teacher = (
        nn.Sequential(part, DINOProjectionHead(d, 2048, 256, 4096))
        for part in (net, copy.deepcopy(net))
    )
    teacher.load_state_dict(student.state_dict())
    follow = _following(student, teacher)
    criterion = DINOLoss(output_dim=4096).cuda()

    def loss(views: list[Tensor]) -> Tensor:
        with torch.no_grad():
            theirs = [teacher(x) for x in views]
        return criterion(theirs, [student(x) for x in views], epoch=0)

    transform = DINOTransform(global_crop_size=32, local_crop_size=32, n_local_views=0)
    return nn.ModuleList([student, teacher]), transform, loss, follow


def _follower(online: nn.Module) -> tuple[nn.Module, Callable[[], None]]:
    """A momentum copy, and what moves it."""
    target = copy.deepcopy(online)
    return target, _following(online, target)


def _following(online: nn.Module, target: nn.Module) -> Callable[[], None]:
    """What moves a target, which no gradient reaches any more."""
    from lightly.models.utils import update_momentum  # pyright: ignore[reportMissingImports]

    target.requires_grad_(False)
    return lambda: update_momentum(online, target, m=0.99)


LIGHTLY: dict[str, Callable[[nn.Module, int], Built]] = {
    "simclr": _simclr,
    "simsiam": _simsiam,
    "byol": _byol,
    "moco_v2": _moco_v2,
    "dino": _dino,
}

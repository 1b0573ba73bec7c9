"""Lightning modules and trainers that the tests share; run alone, it trains on two processes.

Run by test_lightning.py as: lightning_modules.py FOLDER
"""

import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn

import normscope as ns
from normscope.integrations.lightning import NormCallback

ROWS = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))


class Contrastive(pl.LightningModule):
    """Two forward passes of one head a step, with the interventions that it is told."""

    def __init__(self, cut: float = 1.0, power: float = 0.0, optimizer: str = "sgd") -> None:
        super().__init__()
        self.save_hyperparameters()
        self.optimizer = optimizer
        torch.manual_seed(0)
        layers = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)
        self.net = nn.Sequential(*layers)
        if cut != 1:
            ns.cut_init_(self.net, cut)
        self.net.append(ns.GradScale(power))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def training_step(self, x: torch.Tensor, _: int) -> dict[str, torch.Tensor]:
        z1, z2 = self(x), self(x.flip(1))
        loss = ns.losses.negative_cosine(z1, z2.detach()) + ns.losses.negative_cosine(
            z2, z1.detach()
        )
        self.log("loss", loss)
        return {"loss": loss}

    def configure_optimizers(self) -> Any:
        kinds = {
            "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
            "lars": lambda p: ns.optim.LARS(p, lr=0.1),
            "angular": lambda p: ns.optim.AngularSGD(p, lr=0.01),
        }
        optimizer = kinds[self.optimizer](self.parameters())
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def batches(*, shuffle: bool = False) -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(ROWS, batch_size=16, shuffle=shuffle)


def trainer(*callbacks: Any, epochs: int = 1, every: int = 1, **options: Any) -> pl.Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    options = {"logger": False, "enable_checkpointing": False, **quiet, **options}
    return pl.Trainer(
        max_epochs=epochs, log_every_n_steps=every, callbacks=list(callbacks), **options
    )


class Keeps(pl.Callback):
    """Writes what each process's monitor saw."""

    def __init__(self, norms: NormCallback, folder: Path) -> None:
        self.norms, self.folder = norms, folder

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        del pl_module
        shown = {k: float(v) for k, v in trainer.logged_metrics.items()}
        seen = {"summary": self.norms.monitor.summary(), "logged": shown}
        torch.save(seen, self.folder / f"{trainer.global_rank}.pt")


def main() -> None:
    folder = Path(sys.argv[1])
    norms = NormCallback("net")
    two = {"strategy": "ddp_fork", "devices": 2, "max_steps": 1, "default_root_dir": folder}
    module = Contrastive(power=1.0)
    norm = module.net[1].eval()  # its statistics would be those of each half
    norm.train = lambda *_: norm  # pyright: ignore[reportAttributeAccessIssue]
    rows = torch.utils.data.DataLoader(ROWS, batch_size=32)
    trainer(norms, Keeps(norms, folder), **two).fit(module, rows)


if __name__ == "__main__":
    main()

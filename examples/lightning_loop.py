"""normscope in Lightning: the learning rate by a short test, norms and alarms while it trains."""

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits

import normscope as ns
from normscope.integrations.lightning import NormCallback, range_test


class Contrastive(pl.LightningModule):
    def __init__(self, lr: float = 0.01) -> None:
        super().__init__()
        layers = torch.nn.Linear(64, 128), torch.nn.BatchNorm1d(128), torch.nn.ReLU()
        self.lr, self.net = lr, torch.nn.Sequential(*layers, torch.nn.Linear(128, 32))

    def training_step(self, x: torch.Tensor, _: int) -> torch.Tensor:
        return ns.losses.info_nce(*(self.net(x + 0.1 * torch.randn_like(x)) for _ in range(2)))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)


x = torch.tensor(load_digits(return_X_y=True)[0], dtype=torch.float32) / 16
batches = torch.utils.data.DataLoader(x, batch_size=256, shuffle=True, drop_last=True)
found = range_test(Contrastive(), batches)
norms = NormCallback("net")  # the name of the module that returns the embeddings
pl.Trainer(max_epochs=15, callbacks=[norms]).fit(Contrastive(found.advised.lr), batches)
print(found.advice, norms.monitor.diagnosis(), sep="\n")

"""A range test: the learning rate rises, layers turn faster, and one rate is advised."""

import torch
from sklearn.datasets import load_digits

import normscope as ns
from normscope.report import save_range_figure

torch.manual_seed(0)
x = torch.tensor(load_digits(return_X_y=True)[0], dtype=torch.float32) / 16
layers = torch.nn.Linear(64, 256), torch.nn.BatchNorm1d(256), torch.nn.ReLU()
net = torch.nn.Sequential(*layers, torch.nn.Linear(256, 64))
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)


def step() -> torch.Tensor:
    """Loss and gradients of a new batch."""
    batch = x[torch.randint(len(x), (256,))]
    z1, z2 = (net(batch + 0.2 * torch.randn_like(batch)) for _ in range(2))
    loss = ns.losses.info_nce(z1, z2, temperature=0.5)
    loss.backward()
    return loss


found = ns.range_test(step, optimizer, net)  # net and optimizer are afterwards as before
print(found.advice)
save_range_figure(found, "loss_and_angle_over_rates.png")

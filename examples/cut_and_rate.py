"""What a cut does under SGD: effective rate and norm, as it is, cut, and at 9 times the rate."""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

import normscope as ns

x = torch.tensor(load_digits(return_X_y=True)[0], dtype=torch.float32) / 16
figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
ways = ("as it is", 1, 0.02, "-"), ("cut by 3", 3, 0.02, "-"), ("9 times the rate", 1, 0.18, "--")
for label, cut, lr, line in ways:
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 256, bias=False), torch.nn.BatchNorm1d(256), torch.nn.ReLU()
    net = torch.nn.Sequential(*layers, torch.nn.Linear(256, 64, bias=False))
    ns.cut_init_(net, c=cut)
    monitor = ns.NormMonitor(weights={"first": net[0].weight})
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    for _ in range(200):
        batch = x[torch.randint(len(x), (256,))]
        z1, z2 = (net(batch + 0.2 * torch.randn_like(batch)) for _ in range(2))
        optimizer.zero_grad()
        ns.losses.info_nce(z1, z2, temperature=0.5).backward()
        monitor.observe(z1, lr=lr, targets=z2)
        optimizer.step()
    records = monitor.records()
    for ax, key in zip(axes, ("lr_over_weight_squared", "norm_mean"), strict=True):
        ax.plot([r["step"] for r in records], [r[key] for r in records], ls=line, label=label)
axes[0].set(title="learning rate / |w|²", xlabel="step", yscale="log")
axes[1].set(title="mean norm", xlabel="step", yscale="log")
axes[1].legend()
figure.savefig("a_cut_and_nine_times_the_rate.png")

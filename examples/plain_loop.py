"""A plain PyTorch loop with three lines of normscope: a cut, GradScale, and a monitor."""

import torch
from sklearn.datasets import load_digits

import normscope as ns

pixels, _ = load_digits(return_X_y=True)
x = torch.tensor(pixels, dtype=torch.float32) / 16
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
ns.cut_init_(net, c=3.0)  # short embeddings at the start
net.append(ns.GradScale(power=1.0))  # a gradient that does not feel the norm
monitor = ns.NormMonitor(power=1.0)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for epoch in range(5):
    for batch in torch.randperm(len(x)).split(256)[:-1]:
        z = net(x[batch].repeat(2, 1) + 0.2 * torch.randn(512, 64))  # two noisy views
        z1, z2 = z.chunk(2)
        loss = ns.losses.info_nce(z1, z2, temperature=0.5)
        optimizer.zero_grad()
        loss.backward()
        monitor.observe(z, lr=0.1, targets=torch.cat([z2, z1]))
        optimizer.step()
    now = monitor.summary()
    print(f"epoch {epoch + 1}: norm {now['norm_mean']:.2f}, rank {now['rank']:.0f}", monitor.alarms)

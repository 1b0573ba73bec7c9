"""A plain PyTorch loop that watches its effective learning rate, and sets it by a cut."""

import torch
from sklearn.datasets import load_digits

import normscope as ns

x = torch.tensor(load_digits(return_X_y=True)[0], dtype=torch.float32) / 16
layers = torch.nn.Linear(64, 256), torch.nn.BatchNorm1d(256), torch.nn.ReLU()
net = torch.nn.Sequential(*layers, torch.nn.Linear(256, 64))
names = ns.scale_invariant_parameters(net, x[:64])  # whose size the batch norm removes
monitor = ns.NormMonitor(weights={n: p for n, p in net.named_parameters() if n in names})
ns.cut_init_(net, c=3.0)  # as 9 times the learning rate on these
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
    rate, norm, rank = (now[key] for key in ("lr_over_weight_squared", "norm_mean", "rank"))
    print(f"epoch {epoch + 1}: effective rate {rate:.2g}, norm {norm:.2f}, rank {rank:.0f}")

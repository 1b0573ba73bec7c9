"""normscope with timm's networks and lightly's heads and loss: which weights a cut turns faster."""

import timm
import torch
from lightly.loss import NTXentLoss
from lightly.models.modules import SimCLRProjectionHead

import normscope as ns

torch.manual_seed(0)
backbone = timm.create_model("resnet18", num_classes=0)  # 512 features
net = torch.nn.Sequential(backbone, SimCLRProjectionHead(512, 512, 128))
x = torch.rand(32, 3, 32, 32)
names = ns.scale_invariant_parameters(net, x[:4])  # whose size a batch norm removes
weights = {name: p for name, p in net.named_parameters() if name in names}
print(f"{len(names)} of {len(list(net.parameters()))} parameters are scale-invariant")
ns.cut_init_(net, c=3.0, scope=names)  # as 9 times the learning rate on these
monitor, loss_of = ns.NormMonitor(weights=weights), NTXentLoss(temperature=0.5)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for _ in range(4):
    z1, z2 = (net(x + 0.05 * torch.randn_like(x)) for _ in range(2))
    optimizer.zero_grad()
    loss_of(z1, z2).backward()
    monitor.observe(torch.cat([z1, z2]), lr=0.05, targets=torch.cat([z2, z1]))
    optimizer.step()
print(monitor.diagnosis())

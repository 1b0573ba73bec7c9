"""normscope in a Hugging Face Trainer: norms, effective rates and alarms of a small network."""

import torch
from sklearn.datasets import load_digits
from transformers import Trainer, TrainingArguments

import normscope as ns
from normscope.integrations.huggingface import NormCallback


class Contrastive(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers = torch.nn.Linear(64, 128), torch.nn.BatchNorm1d(128), torch.nn.ReLU()
        self.net = torch.nn.Sequential(*layers, torch.nn.Linear(128, 32))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        z1, z2 = (self.net(x + 0.1 * torch.randn_like(x)) for _ in range(2))
        return {"loss": ns.losses.info_nce(z1, z2)}


digits = torch.tensor(load_digits(return_X_y=True)[0], dtype=torch.float32) / 16
to = {"output_dir": "runs", "report_to": "none", "use_cpu": True, "logging_steps": 10}
to |= {"per_device_train_batch_size": 128, "learning_rate": 0.001, "num_train_epochs": 3}
trainer = Trainer(Contrastive(), TrainingArguments(**to), train_dataset=[{"x": x} for x in digits])
norms = NormCallback(trainer, "net", weights=["net.0.weight"])  # the module's name
trainer.add_callback(norms)
trainer.train()
print(norms.monitor.diagnosis())

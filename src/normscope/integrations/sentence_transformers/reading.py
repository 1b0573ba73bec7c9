"""Raw embeddings and norms from sentence-transformers, whose models often normalise them away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.modules import Module
from torch import Tensor

from normscope._checks import invalid
from normscope._sphere import safe_norm
from normscope.confidence import EmbeddingTrust
from normscope.evaluation import auroc
from normscope.integrations.sentence_transformers.pipeline import before_normalize

__all__ = ["NormEvaluator", "NormTap", "raw_embeddings", "tapped"]

_LEAST = 40  # texts: half of them are the reference
_CHANGES = {"normalize_embeddings", "output_value", "precision", "truncate_dim"}


class NormTap(Module):
    """Keeps each text's raw embedding and its norm, in front of a `Normalize`.

    It changes nothing for the modules after it. `model.encode(texts, output_value="norm")` gives
    the norms, `raw_embeddings(model, texts)` the embeddings, and a loss finds both in the features.

    `model.save` keeps it. Since version 6, sentence-transformers loads modules from other packages
    if `trust_remote_code=True`. That allows all code which the folder names, so pass it for your
    own folders. Otherwise save the model without the tap, and load it with `tapped`.

    >>> tap = NormTap()
    >>> tap({"sentence_embedding": torch.tensor([[3.0, 4.0]])})["norm"]
    tensor([5.])
    """

    def forward(self, features: dict[str, Tensor | Any], **kwargs: Any) -> dict[str, Tensor | Any]:
        """Add `raw_embedding`, (n, d), and `norm`, (n,), to a batch's features."""
        del kwargs
        z = features["sentence_embedding"]
        return {**features, "raw_embedding": z, "norm": safe_norm(z).squeeze(-1)}

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write its configuration, which is empty."""
        del args, kwargs
        self.save_config(output_path)


def tapped(model: SentenceTransformer) -> SentenceTransformer:
    """The model with a `NormTap` before its first `Normalize`, or last if it has none.

    Its modules are those of `model`, not copies; its embeddings are the same.
    """
    if any(isinstance(module, NormTap) for module in model.children()):
        return copy(model)
    return before_normalize(model, "norm_tap", NormTap())


def raw_embeddings(
    model: SentenceTransformer, texts: Sequence[str], *, batch_size: int = 32, **encode: Any
) -> np.ndarray:
    """Embeddings before any `Normalize`, (n, d), float32.

    Args:
        model: with or without a `NormTap`.
        texts: n of them.
        batch_size: texts that are embedded at once.
        encode: further arguments of the model's `encode`, such as `prompt_name`.
    """
    given = listed(texts, least=1)
    if not isinstance(model, SentenceTransformer):
        raise invalid("model", "a SentenceTransformer", model, "For others, pass rows to fit.")
    if changed := _CHANGES & set(encode):
        advice = "They would change raw embeddings."
        raise invalid("encode", f"without {', '.join(sorted(_CHANGES))}", min(changed), advice)
    embed: Any = tapped(model).encode  # its types name its own outputs alone
    found = embed(given, batch_size=batch_size, output_value="raw_embedding", **encode)
    return torch.stack(found).float().cpu().numpy()


class NormEvaluator(BaseEvaluator):
    """Reports norms while a model trains and, given novel texts, how well they are separated.

    Every second text is the reference of an `EmbeddingTrust`, the others are compared with the
    novel ones. Give it to `SentenceTransformerTrainer`, or call it with a model. It returns:

    - `norm_mean`, and `norm_spread`: the standard deviation over the mean;
    - `norm_auroc`: of a small norm for the novel texts, over all kinds;
    - `novelty_auroc`: of `EmbeddingTrust.novelty`, the mean over kinds;
    - `novelty_auroc_KIND` for each kind.

    Args:
        texts: like those that the model is used for, at least 40.
        novel: texts unlike them, by kind.
        batch_size: texts that are embedded at once.
        name: put before the names of what it returns.
    """

    def __init__(
        self,
        texts: Sequence[str],
        novel: Mapping[str, Sequence[str]] | None = None,
        *,
        batch_size: int = 32,
        name: str = "",
    ) -> None:
        super().__init__()
        if novel is not None and not isinstance(novel, Mapping):
            raise invalid("novel", "lists of texts by kind", novel, "Pass {'kind': texts}.")
        self.texts, self.novel = listed(texts, least=_LEAST), dict(novel or {})
        self.batch_size, self.name = batch_size, name
        self.primary_metric = "novelty_auroc" if self.novel else "norm_mean"

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """What the class describes; it writes no file."""
        del output_path
        z = self._embed(model, self.texts)
        norms = _norms(z)
        found = {
            "norm_mean": float(norms.mean()),
            "norm_spread": float(norms.std() / norms.mean()),
            **self._told_apart(model, z),
        }
        named = self.prefix_name_to_metrics(found, self.name)
        self.store_metrics_in_model_card_data(model, named, epoch, steps)
        return named

    def _told_apart(self, model: Any, z: np.ndarray) -> dict[str, float]:
        if not self.novel:
            return {}
        trust, known = EmbeddingTrust.fit(z[::2]), z[1::2]
        usual = trust.novelty(known)
        kinds, small = {}, [_norms(known)]
        for kind, texts in self.novel.items():
            rows = self._embed(model, texts)
            small.append(_norms(rows))
            kinds[f"novelty_auroc_{kind}"] = _auroc(usual, trust.novelty(rows))
        return {
            "norm_auroc": _auroc(-small[0], -np.concatenate(small[1:])),
            "novelty_auroc": float(np.mean([*kinds.values()])),
            **kinds,
        }

    def _embed(self, model: Any, texts: Sequence[str]) -> np.ndarray:
        return raw_embeddings(model, texts, batch_size=self.batch_size)


def listed(texts: Any, *, least: int) -> list[str]:
    """Texts as a list, of so many at least."""
    found = list(texts) if isinstance(texts, Iterable) and not isinstance(texts, str) else []
    if len(found) < least or not all(isinstance(text, str) for text in found):
        got = f"{len(found):,} in a {type(texts).__name__}"
        raise invalid("texts", f"a list of at least {least} strings", got, "Pass a list of texts.")
    return found


def _norms(z: np.ndarray) -> np.ndarray:
    return safe_norm(torch.from_numpy(z)).squeeze(-1).numpy()


def _auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    is_outside = np.repeat([False, True], [len(inside), len(outside)])
    return auroc(np.concatenate([inside, outside]), is_outside)

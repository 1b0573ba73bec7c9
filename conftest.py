"""What every test shares: doctest names, seeds, and hypothesis's profile."""

import os
import signal
from importlib.util import find_spec

import hypothesis
import pytest
import torch

# A job in a shell's background ignores Ctrl-C, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")

# Without a GPU its kernels are interpreted; Triton looks as it is imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
_NEEDED = {
    "triton": "src/normscope/*/fused.py",
    "sentence_transformers": "src/normscope/integrations/sentence_transformers/*.py",
    "transformers": "src/normscope/integrations/huggingface.py",
    "cleanlab": "src/normscope/integrations/cleanlab.py",
    "lightning": "src/normscope/integrations/lightning.py",
}
collect_ignore_glob = [files for package, files in _NEEDED.items() if not find_spec(package)]


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["torch"] = torch


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none."""
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))

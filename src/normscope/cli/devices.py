"""The option --device of every command that has it."""

from __future__ import annotations

from normscope.cli.console import refuse

HELP = "auto, cpu, cuda or mps"


def device_named(name: str) -> str:
    """A device of torch that is there; `auto` is a CUDA GPU if there is one, else the CPU."""
    import torch

    if name not in ("auto", "cpu", "cuda", "mps"):
        refuse(f"--device must be {HELP}, got {name!r}.")
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(name, True):
        refuse(f"--device must be cpu where there is no such GPU, got {name!r}.")
    return name if name != "auto" else "cuda" if there["cuda"] else "cpu"

"""Where and with what something was computed."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def versions() -> dict[str, str]:
    """The versions of Python and of the packages that results depend on."""
    packages = ("normscope", "torch", "numpy")
    return {"python": platform.python_version()} | {p: _version(p) for p in packages}


def hardware(*, gpu: bool) -> str:
    """The processor's name and how many cores there are; before it the GPU's, if one works."""
    if not gpu:
        return processor()
    import torch

    return f"{torch.cuda.get_device_name()}, {processor()}"


def processor() -> str:
    """The processor's name and how many cores there are."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
        name = next(names, name)
    return f"{name}, {os.cpu_count()} cores"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from its source
        return f"from source {_source()}"


def _source() -> str:
    """Which source: ten digits of the SHA-256 of all its modules."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:10]

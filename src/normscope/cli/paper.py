"""The one way from the library to the reproduction, taken only when a command needs it."""

from importlib import import_module
from typing import Any


def paper(module: str) -> Any:
    """A module of `normscope_paper`, imported now."""
    return import_module(f"normscope_paper.{module}")

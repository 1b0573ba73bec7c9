"""A device without float64, as Apple's GPUs are: its tensors hold theirs on the CPU.

They call themselves "meta", since torch is built with that everywhere. Every operation on them, and
every conversion to float64, comes through here.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

KIND = "meta"


class OnDevice(Tensor):
    """A tensor of that device."""

    is_meta = False  # it has values

    @staticmethod
    def __new__(cls, held: Tensor) -> "OnDevice":
        _refuse(held.dtype)
        about = {"strides": held.stride(), "dtype": held.dtype, "device": torch.device(KIND)}
        return Tensor._make_wrapper_subclass(cls, held.shape, **about)

    def __init__(self, held: Tensor) -> None:
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None) -> Any:
        return _run(func, args, kwargs or {})


class DeviceWithoutFloat64(TorchDispatchMode):
    """Context in which the device exists."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    inputs = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, OnDevice)]
    there = bool(inputs)
    if kwargs.get("device") is not None:
        there = torch.device(kwargs["device"]).type == KIND
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if there:
        _refuse(kwargs.get("dtype"))
    args, kwargs = tree_map(lambda x: x.held if isinstance(x, OnDevice) else x, (args, kwargs))
    out = func(*args, **kwargs)
    if not there:
        return out
    known = {id(x.held): x for x in inputs}  # in-place operations return what they were given

    def on_device(x: Any) -> Any:
        return known.get(id(x), OnDevice(x)) if isinstance(x, Tensor) else x

    return tree_map(on_device, out)


def _refuse(dtype: torch.dtype | None) -> None:
    if dtype in (torch.float64, torch.complex128):
        raise TypeError("this device has no float64")

"""Lean loading: a network is built without weights, and each tensor goes straight to its device.

build() -> parameters on meta          0 bytes
checkpoint, memory-mapped  --tensor by tensor-->  device          the weights, once
"""

import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

NAMES_IN_MESSAGE = 8


def load(build: Callable[[], nn.Module], checkpoint: Path, *, device: torch.device) -> nn.Module:
    """The network of `build` in eval mode on `device`, filled from a `.pt` or `.pth` state dict.

    Raises ValueError, in one sentence, where the names or shapes of the two differ.
    """
    with parameters_on_meta():
        module = build()
    is_mapped = zipfile.is_zipfile(checkpoint)  # files of before torch 1.6 cannot be mapped
    tensors = torch.load(checkpoint, map_location="cpu", mmap=is_mapped, weights_only=True)
    _check(module, tensors, checkpoint)
    _fill(module, tensors, device=device, is_mapped=is_mapped)
    return module.to(device).eval()  # moves only the buffers that no checkpoint holds


def packaged(distribution: str, path: str) -> Path:
    """A file of an installed distribution, found without importing anything of it."""
    return Path(str(metadata.distribution(distribution).locate_file(path)))


@contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Modules made in here have parameters without memory, and real buffers.

    `with torch.device("meta")` would take the buffers too; those that are computed and in no
    checkpoint (position tables, anchors) could not be brought back.
    """

    def to_meta(module: nn.Module, name: str, parameter: nn.Parameter) -> Any:
        if parameter.is_meta:
            return None  # the same object again: tied weights stay tied
        return nn.Parameter(parameter.to("meta"), requires_grad=False)

    hook = register_module_parameter_registration_hook(to_meta)
    try:
        yield
    finally:
        hook.remove()


def _check(module: nn.Module, tensors: Mapping[str, Tensor], checkpoint: Path) -> None:
    expected = module.state_dict()
    misshapen = [
        f"{name} {tuple(tensors[name].shape)} instead of {tuple(expected[name].shape)}"
        for name in expected.keys() & tensors.keys()
        if tensors[name].shape != expected[name].shape
    ]
    kinds = {
        "missing": expected.keys() - tensors.keys(),
        "unexpected": tensors.keys() - expected.keys(),
        "misshapen": misshapen,
    }
    wrong = [f"{kind} {_listed(sorted(names))}" for kind, names in kinds.items() if names]
    if wrong:
        network = type(module).__name__
        raise ValueError(f"{checkpoint} does not fit {network}: {'; '.join(wrong)}")


def _listed(names: list[str]) -> str:
    more = len(names) - NAMES_IN_MESSAGE
    return ", ".join(names[:NAMES_IN_MESSAGE]) + (f" and {more} more" if more > 0 else "")


def _fill(
    module: nn.Module, tensors: dict[str, Tensor], *, device: torch.device, is_mapped: bool
) -> None:
    """Move each tensor out of `tensors` into its place, in the dtype that the network was built in.

    On the CPU a mapped tensor is copied: kept mapped, it would change under a running service
    when somebody writes over the file. One that is not mapped is ours already.
    """
    filled: dict[int, Tensor] = {}  # by id of the parameter on meta: tied weights stay tied
    for name, old in module.state_dict(keep_vars=True).items():
        value = tensors.pop(name).to(device, old.dtype, copy=is_mapped)
        if isinstance(old, nn.Parameter):
            value = filled.setdefault(id(old), nn.Parameter(value, requires_grad=False))
        owner, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(owner), leaf, value)

"""What the machines offer."""

from typing import Literal

Device = Literal["cuda", "cpu"]


def resolve_device(wanted: Literal["auto", "cuda", "cpu"], *, num_gpus: float) -> Device:
    """`auto` is cuda where the cluster has a GPU. ValueError if cuda is wanted without one."""
    if wanted == "cuda" and not num_gpus:
        raise ValueError(
            "args.device in serve_config.yaml is cuda, but no node of this Ray cluster has a GPU. "
            "Set it to auto or cpu, or start Ray where `nvidia-smi` shows one."
        )
    if wanted == "auto":
        return "cuda" if num_gpus else "cpu"
    return wanted

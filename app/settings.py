"""The typed `args` of serve_config.yaml: frozen, and unknown keys are refused by name."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Media(Group):
    """Where videos come from and how large they may be."""

    directory: Path = Path("/tmp/reelserve/media")
    roots: tuple[Path, ...] = ()
    upload_limit_bytes: int = Field(default=4 * 2**30, gt=0)


class Request(Group):
    """Bounds of one request."""

    deadline_seconds: float = Field(default=3600, gt=0)
    clips_in_flight: int = Field(default=12, gt=0)


class Decoding(Group):
    """One deployment of decoders."""

    reader: str = "deployments.decoding.reader:SoftwareReader"
    children: int = Field(default=4, gt=0)
    warm_children: int = Field(default=1, gt=0)


class PartSettings(Group):
    """One model part. `model` is an import path, `options` go to its constructor."""

    model: str
    checkpoint: Path | None = None
    options: dict[str, Any] = {}
    max_batch: int = Field(default=4, gt=0)
    threads: int = Field(default=1, gt=0)
    batch_limit_seconds: float = Field(default=60, gt=0)


class Shares(Group):
    """What each replica reserves, in CPUs or in GPUs."""

    ingress: float = Field(default=0, ge=0)
    decoder: float = Field(default=0, ge=0)
    cpu_decoder: float = Field(default=0, ge=0)
    part_a: float = Field(default=0, ge=0)
    part_b: float = Field(default=0, ge=0)


class Settings(Group):
    """All of `args`."""

    device: Literal["auto", "cuda", "cpu"] = "auto"
    stall_seconds: float = Field(default=5, gt=0)
    media: Media = Media()
    request: Request = Request()
    decoder: Decoding = Decoding()
    cpu_decoder: Decoding = Decoding()
    part_a: PartSettings = PartSettings(model="deployments.models.tags:Tags")
    part_b: PartSettings = PartSettings(model="deployments.models.shots:Shots", max_batch=1)
    cpu: Shares = Shares(ingress=0.1, decoder=0.1, cpu_decoder=0.1, part_a=0.2, part_b=0.2)
    gpu: Shares = Shares(part_a=0.4, part_b=0.4)

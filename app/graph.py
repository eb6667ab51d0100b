r"""The graph, and the only place that binds deployments.

                      +-----------+   clips    +---------+
                 +--->|  Decoder  |----------->|  PartA  |---+
    HTTP         |    +-----------+      \ /   +---------+   |
    ---> Ingress +     when it can't      X                  +---> Ingress ---> answer
                 |    +------------+     / \   +---------+   |
                 +--->| CpuDecoder |---------->|  PartB  |---+
                      +------------+           +---------+

Ingress asks a decoder for clips and hands each, as a reference, to its part; pixels never pass
through Ingress. How many replicas each has stands in serve_config.yaml under `deployments`.
"""

from typing import Any

import ray
from ray import serve
from ray.serve import Application

from app.api import Ingress
from app.settings import Decoding, PartSettings, Settings
from cluster.machine import Device, resolve_device
from deployments.decoder import Decoder
from deployments.model_part import ModelPart


def build(settings: Settings) -> Application:
    """What `import_path: app.graph:build` in serve_config.yaml names; `settings` are its `args`."""
    device = resolve_device(settings.device, num_gpus=ray.cluster_resources().get("GPU", 0))
    return _deployment(Ingress, "Ingress", "ingress", settings, "cpu").bind(
        settings,
        decoder=_decoder("Decoder", "decoder", settings, device),
        cpu_decoder=_decoder("CpuDecoder", "cpu_decoder", settings, "cpu"),
        part_a=_part("PartA", "part_a", settings, device),
        part_b=_part("PartB", "part_b", settings, device),
    )


def _decoder(name: str, key: str, settings: Settings, device: Device) -> Application:
    decoding: Decoding = getattr(settings, key)
    return _deployment(Decoder, name, key, settings, device).bind(
        reader=decoding.reader,
        children=decoding.children,
        warm_children=decoding.warm_children,
        stall_seconds=settings.stall_seconds,
    )


def _part(name: str, key: str, settings: Settings, device: Device) -> Application:
    part: PartSettings = getattr(settings, key)
    return _deployment(ModelPart, name, key, settings, device).bind(
        name=key,
        model=part.model,
        options=part.options,
        checkpoint=part.checkpoint,
        max_batch=part.max_batch,
        threads=part.threads,
        batch_limit_seconds=part.batch_limit_seconds,
        device=device,
    )


def _deployment(
    cls: type, name: str, key: str, settings: Settings, device: Device
) -> serve.Deployment:
    """CPU shares are bookkeeping; a replica without a GPU share is kept from seeing any GPU."""
    # glibc's arena a thread: 100 MB more for each replica, and none that needs them.
    env_vars = {"MALLOC_ARENA_MAX": "1"}
    options: dict[str, Any] = {"num_cpus": getattr(settings.cpu, key)}
    if device == "cuda" and (share := getattr(settings.gpu, key)):
        options["num_gpus"] = share
    else:
        env_vars["CUDA_VISIBLE_DEVICES"] = ""
    options["runtime_env"] = {"env_vars": env_vars}
    return serve.deployment(name=name, ray_actor_options=options)(cls)

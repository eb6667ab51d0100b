"""What each deployment reserves, by the device that the cluster resolves to."""

import subprocess
import sys
from typing import Any

import pytest
import ray

from app.graph import build
from app.settings import Settings, Shares


def options(settings: Settings) -> dict[str, dict[str, Any]]:
    """Deployment -> its ray_actor_options."""
    ingress = build(settings)._bound_deployment
    inner = [app._bound_deployment for app in ingress.init_kwargs.values()]
    return {one.name: one.ray_actor_options for one in [ingress, *inner]}


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    def pretend(num: int) -> None:
        monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0, "GPU": float(num)})

    return pretend


def test_the_graph_has_the_five_deployments(gpus: Any) -> None:
    gpus(0)
    assert set(options(Settings())) == {"Ingress", "Decoder", "CpuDecoder", "PartA", "PartB"}


def test_without_a_gpu_no_replica_reserves_or_sees_one(gpus: Any) -> None:
    gpus(0)
    for reserved in options(Settings()).values():
        assert not reserved.get("num_gpus")
        assert reserved["runtime_env"]["env_vars"]["CUDA_VISIBLE_DEVICES"] == ""


def test_with_a_gpu_each_part_reserves_its_share_and_sees_it(gpus: Any) -> None:
    gpus(2)
    reserved = options(Settings(gpu=Shares(part_a=0.4, part_b=0.6)))
    assert [reserved[name]["num_gpus"] for name in ("PartA", "PartB")] == [0.4, 0.6]
    for name in ("PartA", "PartB"):
        # Ray sets the variable itself where it gives a GPU; ours would hide it.
        assert "CUDA_VISIBLE_DEVICES" not in reserved[name].get("runtime_env", {}).get(
            "env_vars", {}
        )
    assert reserved["CpuDecoder"]["runtime_env"]["env_vars"]["CUDA_VISIBLE_DEVICES"] == ""


def test_cpu_wanted_on_a_machine_with_gpus_takes_none(gpus: Any) -> None:
    gpus(2)
    reserved = options(Settings(device="cpu"))
    assert not any(one.get("num_gpus") for one in reserved.values())


def test_building_the_graph_imports_no_torch() -> None:
    code = "import sys, app.graph; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

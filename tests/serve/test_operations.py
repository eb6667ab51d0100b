"""What who runs the service sees of it: start, memory, scaling, the dashboard, health."""

import functools
import time
from typing import Any

import httpx
import pytest

from app.schemas import Status
from deployments.batching import IDLE_SECONDS
from tests.serve import processes
from tests.serve.answers import RAW, analyzed
from tests.serve.service import Service, deployment, wait_until

READY_SECONDS = 60.0
IDLE_PSS_BYTES = 3 * 2**30  # 3 GB as /proc counts its kB
WORKED_BYTES = 400e6  # that allocators keep: it grows with the first requests, and then no more
SCALE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def whole(service: Service) -> None:
    wait_until(service.is_whole, seconds=60, what="a whole service")


def test_the_service_is_ready_within_a_minute(service):
    print(f"ready after {service.ready_seconds:.1f} s")
    assert service.ready_seconds < READY_SECONDS


def test_the_idle_service_with_its_ray_takes_less_than_3_gb_and_no_more_for_having_worked(
    service, client, sample_video
):
    for _ in range(3):
        analyzed(client, content=sample_video.read_bytes(), headers=RAW)
    time.sleep(2 * IDLE_SECONDS)
    now = processes.pss_bytes(processes.of_folder(service.folder))
    print(f"PSS {service.idle_pss_bytes / 1e9:.2f} GB at first, {now / 1e9:.2f} GB after requests")
    assert service.idle_pss_bytes < IDLE_PSS_BYTES
    assert now < service.idle_pss_bytes + WORKED_BYTES


@pytest.mark.parametrize("name", ["Ingress", "Decoder", "CpuDecoder"])
def test_a_replica_that_computes_nothing_never_imports_torch(service, name):
    replicas = processes.replicas(service.folder, name)
    assert replicas
    assert not any(map(processes.has_torch, replicas))


def test_no_decode_child_imports_torch_and_each_part_does(service):
    children = processes.decode_children(service.folder)
    parts = [
        *processes.replicas(service.folder, "PartA"),
        *processes.replicas(service.folder, "PartB"),
    ]
    assert len(children) == 2
    assert not any(map(processes.has_torch, children))
    assert all(map(processes.has_torch, parts))


@pytest.mark.parametrize(("path", "said"), [("/livez", "alive"), ("/readyz", "ready")])
def test_health_is_told_in_one_word(client, path, said):
    response = client.get(path)
    assert (response.status_code, response.json()) == (200, {"status": said})


def test_the_status_names_every_deployment_and_its_replicas(client):
    status = client.get("/v1/status").json()
    Status.model_validate(status)
    running = {name: one["replicas"]["RUNNING"] for name, one in status["deployments"].items()}
    assert running == {"Ingress": 1, "Decoder": 1, "CpuDecoder": 1, "PartA": 1, "PartB": 2}
    assert len(status["deployments"]["PartB"]["said"]) == 2


def test_the_documentation_names_every_route_and_the_kinds_of_body(client):
    assert "swagger" in client.get("/docs").text.lower()
    described = client.get("/openapi.json").json()
    assert {"/v1/analyze", "/v1/status", "/livez", "/readyz"} <= described["paths"].keys()
    body = described["paths"]["/v1/analyze"]["post"]["requestBody"]["content"]
    assert body.keys() >= {"multipart/form-data", "video/*", "application/json"}


def on_dashboard(service: Service) -> dict[str, Any]:
    """What the dashboard's REST says of the application."""
    url = f"{service.dashboard_url}/api/serve/applications/"
    headers = {"Authorization": f"Bearer {service.token}"}
    response = httpx.get(url, headers=headers, timeout=30)
    assert response.status_code == 200, response.text
    return response.json()["applications"]["reelserve"]


def test_the_dashboard_wants_the_token(service):
    url = f"{service.dashboard_url}/api/serve/applications/"
    assert httpx.get(url, timeout=30).status_code == 401


def test_a_changed_number_of_replicas_is_deployed_and_the_dashboard_shows_them(
    service, client, sample_video
):
    others = {child.pid for child in processes.replicas(service.folder, "PartB")}
    for num in (2, 1):
        service.deploy(functools.partial(_scale_part_a, num=num))
        wait_until(functools.partial(_is_scaled, service, num), seconds=SCALE_SECONDS)
        shown = [one["state"] for one in on_dashboard(service)["deployments"]["PartA"]["replicas"]]
        assert shown.count("RUNNING") == num
        assert analyzed(client, content=sample_video.read_bytes(), headers=RAW)["part_a"]["top"]
    assert {child.pid for child in processes.replicas(service.folder, "PartB")} == others


def _scale_part_a(document: dict[str, Any], *, num: int) -> None:
    deployment(document, "PartA")["num_replicas"] = num


def _is_scaled(service: Service, num: int) -> bool:
    return running(service, "PartA") == num and service.is_whole()


def running(service: Service, name: str) -> int:
    return service.status()[name]["replicas"].get("RUNNING", 0)


def test_a_configuration_with_a_wrong_key_is_refused_and_what_runs_goes_on(service, client):
    """By Serve, when it builds the application; `reelserve check` says it without a service."""
    before = service.config.read_text()
    service.deploy(lambda document: document["applications"][0]["args"].update(stal_seconds=5))
    try:
        wait_until(
            lambda: "stal_seconds" in on_dashboard(service)["message"],
            seconds=30,
            what="a refusal",
        )
        assert client.get("/readyz").status_code == 200
    finally:
        service.config.write_text(before)
        service.deploy(lambda document: None)
    wait_until(service.is_whole, seconds=60, what="a whole service")

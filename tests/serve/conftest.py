"""One service for all tests of this folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli import sample
from tests.serve.service import Service, started

UPLOAD_LIMIT_BYTES = 16 * 2**20

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.serve)


def _small_limit(document: dict[str, Any]) -> None:
    document["applications"][0]["args"]["media"]["upload_limit_bytes"] = UPLOAD_LIMIT_BYTES


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """The service as the repository configures it, but for the upload limit."""
    with started(_small_limit) as service:
        yield service


@pytest.fixture(scope="session")
def client(service: Service) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


@pytest.fixture(scope="session")
def sample_video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sample") / "sample.mp4"
    sample.write(path)
    return path

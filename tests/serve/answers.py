"""Asking for an analysis, and telling whether two answers are the same."""

import math
from typing import Any

import httpx

RAW = {"content-type": "video/mp4"}
PARTS = ("part_a", "part_b")


def analyzed(client: httpx.Client, **request: Any) -> dict[str, Any]:
    response = client.post("/v1/analyze", **request)
    assert response.status_code == 200, response.text
    return response.json()


def of_parts(answer: dict[str, Any]) -> dict[str, Any]:
    return {part: answer[part] for part in PARTS}


def assert_same(ours: Any, theirs: Any) -> None:
    """The same values, but for the last bits of a probability: batches have different sizes."""
    assert type(ours) is type(theirs)
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert_same(ours[key], theirs[key])
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    elif isinstance(ours, float):
        assert math.isclose(ours, theirs, rel_tol=0, abs_tol=1e-5)
    else:
        assert ours == theirs

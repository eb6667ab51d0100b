"""Every error has one shape, and says no more than it should."""

import asyncio
import pickle

import pytest
from fastapi import FastAPI, Query
from ray.exceptions import RayTaskError

from app.problems import install, problem
from app.schemas import ANALYZE_BODY, Analysis, Problem
from deployments.errors import NoFrames, Overloaded, ReelserveError, StorageFull, TooLarge
from tests.app.serving import asgi_client, assert_problem


def failing_app(error: Exception) -> FastAPI:
    app = FastAPI()
    install(app)

    @app.get("/")
    async def fail() -> None:
        raise error

    @app.get("/limit")
    async def limit(n: int = Query(ge=1)) -> int:
        return n

    return app


async def answer_to(error: Exception, path: str = "/", method: str = "GET"):
    async with asgi_client(failing_app(error)) as client:
        return await client.request(method, path)


def through_ray(error: Exception) -> Exception:
    return RayTaskError("f", "\x1b[36mray::f()\x1b[39m traceback", error).as_instanceof_cause()


async def test_an_error_of_the_tree_answers_with_its_status_code_and_sentence():
    answer = await answer_to(TooLarge("Much too large."))
    assert_problem(answer, 413, "too_large", "Much too large.")
    assert Problem.model_validate(answer.json()).type == "about:blank"


async def test_an_error_from_a_handle_answers_without_the_remote_trace():
    error = through_ray(NoFrames("Not one frame."))
    assert "traceback" in str(error)
    assert_problem(await answer_to(error), 422, "no_frames")
    assert problem(error)["detail"] == "Not one frame."


async def test_an_error_that_ray_wrapped_twice_is_still_ours():
    assert problem(through_ray(through_ray(NoFrames("Not one frame."))))["code"] == "no_frames"


async def test_overloaded_says_when_to_come_back():
    for error in (Overloaded("Busy."), through_ray(Overloaded("Busy."))):
        answer = await answer_to(error)
        assert_problem(answer, 503, "overloaded")
        assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    "error",
    [KeyError("secret"), through_ray(KeyError("secret"))],
    ids=["here", "remote"],
)
async def test_an_unexpected_error_says_nothing_and_is_logged(error, caplog):
    answer = await answer_to(error)
    assert_problem(answer, 500, "internal_error")
    assert "secret" not in answer.text
    assert "Traceback" in caplog.text
    assert "Unexpected error in a request" in caplog.text


async def test_a_query_that_does_not_validate_is_an_invalid_request():
    answer = await answer_to(KeyError(), "/limit?n=0")
    assert_problem(answer, 400, "invalid_request", "query.n", "greater than or equal to 1")


async def test_an_unknown_route_and_method_are_problems_too():
    assert_problem(await answer_to(KeyError(), "/nowhere"), 404, "not_found", "GET /nowhere")
    answer = await answer_to(KeyError(), method="PUT")
    assert_problem(answer, 405, "method_not_allowed", "PUT /")
    assert answer.headers["allow"] == "GET"


def test_every_error_of_the_tree_has_a_code_of_its_own_and_survives_pickle():
    def below(root: type[ReelserveError]) -> list[type[ReelserveError]]:
        return [root, *(leaf for child in root.__subclasses__() for leaf in below(child))]

    ours = [kind for kind in below(ReelserveError) if kind.__module__ == "deployments.errors"]
    assert StorageFull in ours
    assert len({kind.code for kind in ours}) == len(ours)
    for kind in ours:
        assert str(pickle.loads(pickle.dumps(kind("A sentence.")))) == "A sentence."
        assert problem(kind("A sentence."))["status"] == kind.status


def test_the_documented_body_and_answer_are_part_of_the_openapi_document():
    app = FastAPI()

    @app.post("/v1/analyze", response_model=Analysis, openapi_extra=ANALYZE_BODY)
    async def analyze() -> None: ...

    route = app.openapi()["paths"]["/v1/analyze"]["post"]
    assert set(route["requestBody"]["content"]) >= {"multipart/form-data", "application/json"}
    assert asyncio.iscoroutinefunction(analyze)

"""What goes over HTTP, for /docs and for readers; parts answer in their own words."""

from typing import Any, Literal

from pydantic import BaseModel, Field

TAGS_EXAMPLE = {
    "frames": [{"pts_seconds": 0.0, "tags": [{"label": "seashore", "probability": 0.83}]}],
    "top": [{"label": "seashore", "probability": 0.71}],
}
SHOTS_EXAMPLE = {
    "shots": [
        {
            "start_seconds": 0.0,
            "end_seconds": 4.0,
            "start_frame": 0,
            "end_frame": 100,
            "cut_probability": 0.98,
        }
    ]
}


class Video(BaseModel):
    """What the file says of itself, and what its content turned out to be."""

    name: str = Field(description="The caller's name of the file, cleaned; may be empty.")
    container: str
    codec: str
    width: int = Field(description="As shown, in pixels: upright, square pixels.")
    height: int
    coded_width: int
    coded_height: int
    rotation_degrees: int = Field(description="Clockwise, already applied.")
    pixel_format: str
    average_fps: float | None
    duration_seconds_from_header: float | None
    start_seconds_from_header: float
    duration_seconds: float = Field(description="From the content: the end of the last frame.")
    frames: int = Field(description="Frames that were decoded.")
    warnings: list[str] = Field(description="What is odd about the file, such as an early end.")


class Attempt(BaseModel):
    """One decoder's pass over the video, or a piece of it."""

    deployment: str
    replica: str | None = Field(description="Null where none was reached.")
    pid: int | None = Field(description="Of the decode child; null where none was reached.")
    first_clips: dict[str, int] = Field(description="Part -> the first clip that it was asked for.")
    failure: str | None = Field(description="Why it was given up; null for the one that ended it.")


class Decode(BaseModel):
    """Who decoded."""

    deployment: str
    backend: str
    fallback_reason: str | None = Field(description="Why CpuDecoder took over; null if it didn't.")
    frames: int
    attempts: list[Attempt]


class PartTiming(BaseModel):
    """Seconds that one part spent on the clips of this video."""

    queue_seconds: float
    forward_seconds: float
    clips: int
    batch_sizes: dict[int, int] = Field(description="Size of a batch -> clips that ran in one.")
    summarise_seconds: float


class Timing(BaseModel):
    """Each stage's own seconds; stages overlap, so they do not add up to the total."""

    total_seconds: float
    intake_seconds: float
    decode_seconds: float
    part_a: PartTiming
    part_b: PartTiming
    video_seconds: float = Field(description="Length of what was analysed.")
    realtime_factor: float = Field(description="Seconds of video per second of wall clock.")


class Analysis(BaseModel):
    """The answer to POST /v1/analyze."""

    video: Video
    decode: Decode
    part_a: dict[str, Any] = Field(examples=[TAGS_EXAMPLE])
    part_b: dict[str, Any] = Field(examples=[SHOTS_EXAMPLE])
    timing: Timing


class Problem(BaseModel):
    """An error (RFC 9457). Tell errors apart by `code`; `detail` is for people."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str = Field(examples=["too_large"])


class InfoEvent(BaseModel):
    """First line of a stream."""

    event: Literal["info"] = "info"
    video: dict[str, Any] = Field(description="Of `Video`, what the header says.")


class ProgressEvent(BaseModel):
    """Where the analysis is."""

    event: Literal["progress"] = "progress"
    pts_seconds: float
    duration_seconds: float | None
    clips_done: dict[str, int] = Field(description="By part.")


class ResultEvent(BaseModel):
    """Last line of a stream that went well."""

    event: Literal["result"] = "result"
    result: Analysis


class ErrorEvent(BaseModel):
    """Last line of a stream that did not."""

    event: Literal["error"] = "error"
    problem: Problem


class DeploymentStatus(BaseModel):
    """One deployment, as Serve sees it and as its replicas see themselves."""

    status: str = Field(examples=["HEALTHY"])
    replicas: dict[str, int] = Field(description="State -> how many.", examples=[{"RUNNING": 2}])
    said: list[dict[str, Any]] = Field(description="A replica each; empty if none answered.")


class Status(BaseModel):
    """The answer to GET /v1/status."""

    requests_running: int = Field(description="By the replica that answers.")
    fallbacks: dict[str, int] = Field(description="Reason -> how often CpuDecoder took over.")
    deployments: dict[str, DeploymentStatus]


ANALYZE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A file, or the path of one under the media roots. Never both.",
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "video": {"type": "string", "format": "binary"},
                        "path": {"type": "string"},
                    },
                }
            },
            "video/*": {"schema": {"type": "string", "format": "binary"}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {"path": {"type": "string"}},
                    "required": ["path"],
                    "additionalProperties": False,
                },
                "example": {"path": "/media/holiday.mp4"},
            },
        },
    }
}
"""For a route's `openapi_extra`: the body is read by hand, so FastAPI cannot see it."""

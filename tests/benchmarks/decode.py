"""What the clips of both parts cost beside decoding alone, in CPU time of the decode child.

    python -m tests.benchmarks.decode [--assert] [--file FILE]

One run of libav that throws every frame away, one of the product, in turn; each in a process of
its own. Prints medians and their ratio; `--assert` exits 1 where it is above 1.4.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import av
import numpy as np

from deployments.decoding.protocol import Job
from deployments.decoding.supervisor import Supervisor
from deployments.frames import Clip, ClipSpec, DecodeReport, Source

MOST_RATIO = 1.4
NUM_PAIRS = 5
SPECS = {
    "part_a": ClipSpec(fps=1, length=1, stride=1, size=(224, 224), fit="centre_crop"),
    "part_b": ClipSpec(length=100, stride=50, context=25, size=(27, 48)),
}


def main() -> None:
    arguments = _arguments()
    if arguments.bare:
        print(_bare_cpu_seconds(arguments.file))
        return
    with tempfile.TemporaryDirectory() as directory:
        path = arguments.file or write_realistic_video(f"{directory}/v.mp4")
        megabits = Path(path).stat().st_size * 8 / 1e6
        print(f"{path}: {megabits:.0f} Mbit")
        ratio = _compare(path)
    if arguments.insist and ratio > MOST_RATIO:
        sys.exit(f"{ratio:.3f} is above {MOST_RATIO}")


def write_realistic_video(path: str, *, seconds: int = 10) -> str:
    """1080p30 H.264, x264's default preset: a texture that moves, with mild noise; 3 Mbit/s."""
    width, height = 1920, 1080
    random = np.random.default_rng(0)
    y, x = np.mgrid[0 : height + 256, 0 : width + 512]
    waves = 128 + 60 * np.sin(x / 37) + 40 * np.sin(y / 23 + x / 91)
    scene = np.clip(waves + random.normal(0, 12, waves.shape), 20, 230).astype(np.uint8)
    noise = random.integers(0, 6, (8, height, width), dtype=np.uint8)
    with av.open(path, "w") as container:
        stream = container.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for index in range(seconds * 30):
            left, top = 3 * index % 512, int(60 + 60 * np.sin(index / 20))
            luma = scene[top : top + height, left : left + width] + noise[index % 8]
            container.mux(stream.encode(_yuv420(luma, u=round(120 + 20 * np.sin(index / 30)))))
        container.mux(stream.encode(None))
    return path


def _yuv420(luma: np.ndarray, *, u: int) -> av.VideoFrame:
    quarter = luma.size // 4
    planes = [luma.ravel(), np.full(quarter, u, np.uint8), np.full(quarter, 150, np.uint8)]
    picture = np.concatenate(planes).reshape(-1, luma.shape[1])
    return av.VideoFrame.from_ndarray(picture, format="yuv420p")


def _compare(path: str) -> float:
    pairs = []
    for _ in range(NUM_PAIRS):
        bare = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.decode", "--bare", "--file", path],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        pairs.append((float(bare.stdout), asyncio.run(_product_cpu_seconds(path))))
        print("libav alone {:.2f} s, with the clips of both parts {:.2f} s".format(*pairs[-1]))
    alone, with_clips = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
    print(f"medians: {alone:.2f} s, {with_clips:.2f} s, ratio {with_clips / alone:.3f}")
    return with_clips / alone


def _bare_cpu_seconds(path: str) -> float:
    """Slice threads, as in the product: on such a file frame threads cost 0.2 more CPU time."""
    begun = time.process_time()
    with av.open(path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "SLICE"
        for packet in container.demux(stream):
            packet.decode()
    return time.process_time() - begun


async def _product_cpu_seconds(path: str) -> float:
    """As the child itself counts, from open to the last clip."""
    supervisor = Supervisor(
        reader="deployments.decoding.reader:SoftwareReader",
        children=1,
        warm_children=1,
        stall_seconds=30,
    )
    await supervisor.start()
    first_clips = dict.fromkeys(SPECS, 0)
    job = Job(
        source=Source(path=path), specs=SPECS, first_clips=first_clips, num_slots=8, num_credits=8
    )
    async with supervisor.lease() as child:
        async for item in child.run(job):
            if isinstance(item, Clip):
                child.grant(1)
            elif isinstance(item, DecodeReport):
                seconds = item.decode_seconds
    await supervisor.close()
    return seconds


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--assert", dest="insist", action="store_true")
    parser.add_argument("--file", help="another video than the one that is made here")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""The limit on this machine: the same networks over the same file in one plain process.

    python -m tests.benchmarks.bare_loop VIDEO [--repeat N] [--threads N] [--nice N]

One thread decodes and cuts clips, another runs both networks; no Ray, no HTTP, no second process.
Prints one JSON object: seconds of wall clock for N videos in turn, and the networks' own
summed seconds, which the wall clock may exceed by a few per cent only if the loop is a fair limit.
"""

import argparse
import json
import os
import queue
import threading
import time
from typing import Any

import numpy as np
import torch

from deployments.decoding.clipping import ClipCutter, shown
from deployments.decoding.reader import SoftwareReader
from deployments.frames import ClipHeader, ClipOutput, VideoFacts
from deployments.models import weights
from deployments.models.shots import Shots
from deployments.models.tags import Tags

CLIPS_AHEAD = 12


class Loop:
    """Both parts in this process."""

    def __init__(self) -> None:
        self._parts: dict[str, Any] = {"part_a": Tags(), "part_b": Shots()}
        self._networks = {
            name: weights.load(part.build, part.checkpoint, device=torch.device("cpu"))
            for name, part in self._parts.items()
        }
        self.network_seconds = 0.0

    def run(self, path: str) -> dict[str, Any]:
        """Both summaries of one video."""
        clips: queue.Queue[Any] = queue.Queue(CLIPS_AHEAD)
        decoding = threading.Thread(target=self._decode, args=(path, clips), daemon=True)
        decoding.start()
        outputs: dict[str, list[ClipOutput]] = {name: [] for name in self._parts}
        while isinstance(clip := clips.get(), tuple):
            header, frames = clip
            outputs[header.part].append(self._compute(header, frames))
        return {name: self._parts[name].summarise(outputs[name], clip) for name in self._parts}

    def _compute(self, header: ClipHeader, frames: list[np.ndarray]) -> ClipOutput:
        part, network = self._parts[header.part], self._networks[header.part]
        begun = time.monotonic()
        with torch.inference_mode():
            batch = torch.from_numpy(np.stack(frames)[None])
            output = part.to_outputs(network(part.to_input(batch)))[0]
        seconds = time.monotonic() - begun
        self.network_seconds += seconds
        return ClipOutput(
            header=header, output=output, queue_seconds=0, forward_seconds=seconds, batch_size=1
        )

    def _decode(self, path: str, clips: "queue.Queue[Any]") -> None:
        specs = {name: part.clip_spec for name, part in self._parts.items()}
        reader = SoftwareReader(path, beat=lambda: None)
        cutters = [ClipCutter(name, spec) for name, spec in specs.items()]
        for frame in shown(reader.pictures(), end_seconds=None):
            for cutter in cutters:
                for clip in cutter.see(frame):
                    clips.put(clip)
        for cutter in cutters:
            for clip in cutter.finish():
                clips.put(clip)
        clips.put(VideoFacts(info=reader.info, start_seconds=0.0, end_seconds=frame.until_seconds))
        reader.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("video")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--nice", type=int, default=0)
    arguments = parser.parse_args()
    os.nice(arguments.nice)
    torch.set_num_threads(arguments.threads)
    loop = Loop()
    loop.run(arguments.video)  # warm
    loop.network_seconds = 0.0
    begun = time.monotonic()
    for _ in range(arguments.repeat):
        loop.run(arguments.video)
    seconds = time.monotonic() - begun
    print(json.dumps({"seconds": seconds, "network_seconds": loop.network_seconds}))


if __name__ == "__main__":
    main()

"""What Ray, HTTP and process borders cost: the running service against the bare loop, in turn.

    serve run serve_config.yaml                                          (in another terminal)
    python -m tests.benchmarks.overhead VIDEO [--pairs 5] [--assert]

A pair is: the bare loop over VIDEO once and NUM_CONCURRENT times, the service with one request and
with NUM_CONCURRENT at once. Both sides run at the niceness of Ray's workers. Prints medians.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time

import httpx

NUM_CONCURRENT = 4
RAY_WORKER_NICENESS = 15
LEAST_THROUGHPUT = 0.88  # of the bare loop's; an idle Ray takes 0.08 of two cores
MOST_LATENCY, MOST_LATENCY_SECONDS = 1.15, 0.2
MOST_LOOP = 1.05  # the bare loop against its own networks' seconds


def bare_loop(video: str, *, repeat: int, threads: int) -> tuple[float, float]:
    """(seconds, network seconds)."""
    command = [sys.executable, "-m", "tests.benchmarks.bare_loop", video]
    options = ["--repeat", str(repeat), "--threads", str(threads), "--nice", RAY_WORKER_NICENESS]
    run = subprocess.run([*command, *map(str, options)], capture_output=True, check=True)
    printed = json.loads(run.stdout)
    return printed["seconds"], printed["network_seconds"]


async def service(url: str, video: str, *, concurrency: int) -> float:
    """Seconds until all of `concurrency` requests at once are answered."""

    async def ask(client: httpx.AsyncClient) -> None:
        with open(video, "rb") as file:
            answer = await client.post(f"{url}/v1/analyze", files={"video": file})
        answer.raise_for_status()

    async with httpx.AsyncClient(timeout=600) as client:
        begun = time.monotonic()
        await asyncio.gather(*(ask(client) for _ in range(concurrency)))
        return time.monotonic() - begun


def measure(url: str, video: str, *, threads: int) -> dict[str, float]:
    """One pair, as ratios and seconds."""
    one_bare, _ = bare_loop(video, repeat=1, threads=threads)
    one = asyncio.run(service(url, video, concurrency=1))
    many_bare, network_seconds = bare_loop(video, repeat=NUM_CONCURRENT, threads=threads)
    many = asyncio.run(service(url, video, concurrency=NUM_CONCURRENT))
    return {
        "bare_seconds": one_bare,
        "service_seconds": one,
        "latency_ratio": (one - MOST_LATENCY_SECONDS) / one_bare,
        "throughput_ratio": many_bare / many,
        "loop_ratio": many_bare / network_seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("video")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--assert", action="store_true", dest="is_strict")
    arguments = parser.parse_args()
    asyncio.run(service(arguments.url, arguments.video, concurrency=NUM_CONCURRENT))  # warm
    pairs = []
    for _ in range(arguments.pairs):
        pairs.append(measure(arguments.url, arguments.video, threads=arguments.threads))
        print(json.dumps({name: round(value, 3) for name, value in pairs[-1].items()}), flush=True)
    medians = {name: statistics.median(pair[name] for pair in pairs) for name in pairs[0]}
    print("median", json.dumps({name: round(value, 3) for name, value in medians.items()}))
    holds = (
        medians["throughput_ratio"] >= LEAST_THROUGHPUT
        and medians["latency_ratio"] <= MOST_LATENCY
        and medians["loop_ratio"] <= MOST_LOOP
    )
    if arguments.is_strict and not holds:
        sys.exit("the service costs more than it may")


if __name__ == "__main__":
    main()

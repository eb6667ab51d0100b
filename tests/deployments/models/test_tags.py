"""Our tags against the plain network over the same pixels."""

import json
import runpy

import av
import numpy as np
import pytest
import torch
from efficientnet_lite_pytorch import EfficientNet

from deployments.models.tags import CLASSES, Tags, pack, unpack
from deployments.models.weights import load, packaged
from tests.deployments.models.conftest import answered, facts

NUM_FRAMES = 6


@pytest.fixture(scope="module")
def frames(real_video) -> np.ndarray:
    """uint8 (6, 224, 224, 3), one frame in five seconds."""
    with av.open(real_video) as container:
        shown = [
            frame.to_ndarray(format="rgb24", width=224, height=224)
            for index, frame in zip(
                range(125 * NUM_FRAMES), container.decode(video=0), strict=False
            )
            if index % 125 == 0
        ]
    return np.stack(shown)


@pytest.fixture(scope="module")
def plain(frames) -> np.ndarray:
    """float32 (6, 1000): the probabilities of the network as its package loads and runs it."""
    network = EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=str(Tags().checkpoint)
    )
    pixels = torch.from_numpy(frames).permute(0, 3, 1, 2).contiguous()
    with torch.inference_mode():
        return network.eval()((pixels - 127.0) / 128.0).softmax(1).numpy()


@pytest.fixture(scope="module")
def outputs(frames) -> list[dict]:
    part = Tags()
    network = load(part.build, part.checkpoint, device=torch.device("cpu"))
    with torch.inference_mode():
        return part.to_outputs(network(part.to_input(torch.from_numpy(frames[:, None]))))


def test_tags_are_the_strongest_of_the_plain_network(outputs, plain):
    for output, probabilities in zip(outputs, plain, strict=True):
        strongest = np.argsort(-probabilities)[:5]
        assert list(output["tags"]) == [CLASSES[at] for at in strongest]
        np.testing.assert_allclose(
            list(output["tags"].values()), probabilities[strongest], rtol=0, atol=1e-5
        )


def test_the_overall_top_is_the_mean_over_all_frames(outputs, plain):
    part = Tags(top=3)
    answer = part.summarise(answered(part.clip_spec, NUM_FRAMES, outputs), facts(NUM_FRAMES))
    mean = plain.mean(0)
    strongest = np.argsort(-mean)[:3]
    assert [tag["label"] for tag in answer["top"]] == [CLASSES[at] for at in strongest]
    np.testing.assert_allclose(
        [tag["probability"] for tag in answer["top"]], mean[strongest], rtol=0, atol=1e-4
    )


def test_each_frame_keeps_its_time_and_its_tags(outputs):
    part = Tags()
    clips = answered(part.clip_spec, NUM_FRAMES, outputs)
    answer = json.loads(json.dumps(part.summarise(clips, facts(NUM_FRAMES))))
    for frame, clip in zip(answer["frames"], clips, strict=True):
        assert frame["pts_seconds"] == clip.header.pts_seconds[0]
        assert {tag["label"]: tag["probability"] for tag in frame["tags"]} == clip.output["tags"]


def test_packed_probabilities_are_small_and_within_half_a_step(plain):
    for probabilities in plain:
        packed = pack(probabilities)
        assert len(packed) < 1500
        np.testing.assert_allclose(unpack(packed), probabilities, rtol=0, atol=0.51e-4)


def test_classes_are_torchvisions_in_their_order():
    meta = runpy.run_path(str(packaged("torchvision", "torchvision/models/_meta.py")))
    assert meta["_IMAGENET_CATEGORIES"] == CLASSES
    assert len(set(CLASSES)) == 1000


@pytest.mark.parametrize("top", [0, 1001])
def test_a_number_of_tags_that_cannot_be_is_refused(top):
    with pytest.raises(ValueError, match=f"from 1 to 1000, not {top}"):
        Tags(top=top)

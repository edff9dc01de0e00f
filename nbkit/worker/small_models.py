"""Models for images of 32 pixels or so, which a processor can train in minutes."""

from __future__ import annotations

import torch
from torch import nn
from torchvision.models.resnet import BasicBlock

_WIDTHS = (16, 32, 64)
_BLOCKS_PER_WIDTH = 3


class _SmallResNet(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        width = _WIDTHS[0]
        layers: list[nn.Module] = [
            nn.Conv2d(3, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        ]
        for wider in _WIDTHS:
            for _ in range(_BLOCKS_PER_WIDTH):
                layers.append(_block(width, wider))
                width = wider
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images).mean((2, 3)))


def resnet20(num_classes: int = 10, weights: None = None) -> nn.Module:
    """Return the residual network of 20 layers for CIFAR: 0.27 million weights.

    Where the width grows the shortcut is a 1 x 1 convolution, as in the larger networks
    of the same authors.

    References
    ----------
    He et al., Deep Residual Learning for Image Recognition, section 4.2,
    https://arxiv.org/abs/1512.03385
    """
    return _SmallResNet(num_classes)


def _block(width: int, wider: int) -> nn.Module:
    if width == wider:
        return BasicBlock(width, wider)
    shortcut = nn.Sequential(
        nn.Conv2d(width, wider, 1, stride=2, bias=False), nn.BatchNorm2d(wider)
    )
    return BasicBlock(width, wider, stride=2, downsample=shortcut)

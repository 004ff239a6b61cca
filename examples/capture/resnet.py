# pyright: reportMissingImports=false
"""ResNet-50 in PyTorch under data parallelism.

prism-jax capture examples/capture/resnet.py:build --dp 8 -o resnet.capture.gz
"""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

BATCH, CLASSES = 64, 1000
STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))  # blocks, width, stride of the first


class Bottleneck(nn.Module):
    """Three convolutions and a shortcut."""

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        super().__init__()
        n_out = 4 * width
        self.reduce, self.norm_1 = nn.Conv2d(n_in, width, 1, bias=False), nn.BatchNorm2d(width)
        self.middle, self.norm_2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.expand, self.norm_3 = nn.Conv2d(width, n_out, 1, bias=False), nn.BatchNorm2d(n_out)
        self.shortcut = None
        if stride > 1 or n_in != n_out:
            self.shortcut = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[sample, channel, row, column]."""
        y = functional.relu(self.norm_1(self.reduce(x)), inplace=True)
        y = functional.relu(self.norm_2(self.middle(y)), inplace=True)
        y = self.norm_3(self.expand(y))
        return functional.relu(y + (x if self.shortcut is None else self.shortcut(x)), inplace=True)


def resnet50() -> nn.Module:
    """ResNet-50, stride in the middle convolution (v1.5)."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    n_in = 64
    for n_blocks, width, stride in STAGES:
        for number in range(n_blocks):
            layers.append(Bottleneck(n_in, width, stride if number == 0 else 1))
            n_in = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, CLASSES))


def build(layout):
    """What `prism-jax capture` asks for."""
    model = resnet50().to(layout.device).to(memory_format=torch.channels_last)
    if layout.size("dp") > 1:
        model = DistributedDataParallel(model, process_group=layout.mesh.get_group("dp"))
    images = torch.zeros(BATCH, 3, 224, 224, device=layout.device)
    labels = torch.zeros(BATCH, dtype=torch.long, device=layout.device)

    def loss(logits):
        return functional.cross_entropy(logits, labels)

    return model, (images,), loss, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

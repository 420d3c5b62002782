"""Small networks of the kinds that people compile, with random weights."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn: Any = torch.nn
functional: Any = nn.functional


class BasicBlock(nn.Module):
    """A block of ResNet-18."""

    def __init__(self, n_in: int, n_out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: Any = None
        if stride != 1 or n_in != n_out:
            self.downsample = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x: Any) -> Any:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet(nn.Module):
    """ResNet-18, narrow."""

    def __init__(self, width: int = 8, n_classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        widths = (width, width, 2 * width, 4 * width, 8 * width)
        for number, (n_in, n_out) in enumerate(pairwise(widths), 1):
            blocks = BasicBlock(n_in, n_out, 1 if number == 1 else 2), BasicBlock(n_out, n_out)
            setattr(self, f"layer{number}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8 * width, n_classes)

    def features(self, x: Any) -> Any:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.layer4(self.layer3(self.layer2(self.layer1(x))))

    def forward(self, x: Any) -> Any:
        return self.fc(torch.flatten(self.avgpool(self.features(x)), 1))


class InvertedResidual(nn.Module):
    """A block of MobileNet-v2."""

    def __init__(self, n_in: int, n_out: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = n_in * expand
        self.is_residual = stride == 1 and n_in == n_out
        self.conv = nn.Sequential(
            *(nn.Conv2d(n_in, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)),
            *(nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden)),
            *(nn.ReLU6(inplace=True), nn.Conv2d(hidden, n_out, 1, bias=False), nn.BatchNorm2d(n_out)),
        )

    def forward(self, x: Any) -> Any:
        return x + self.conv(x) if self.is_residual else self.conv(x)


class MobileNet(nn.Module):
    """MobileNet-v2, short."""

    def __init__(self, n_classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish())
        blocks = ((16, 8, 1, 1), (8, 16, 2, 6), (16, 16, 1, 6), (16, 24, 2, 6))
        self.blocks = nn.Sequential(*(InvertedResidual(*block) for block in blocks))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(24, n_classes))

    def forward(self, x: Any) -> Any:
        return self.classifier(functional.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


class Attention(nn.Module):
    """Attention of several heads, written out with PyTorch's own function for it."""

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, self.n_heads, width // self.n_heads).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


class EncoderLayer(nn.Module):
    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, n_heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Encoder(nn.Module):
    """A transformer's encoder over words."""

    def __init__(self, n_words: int = 50, width: int = 32, n_heads: int = 4, n_layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(n_words, width)
        self.layers = nn.Sequential(*(EncoderLayer(width, n_heads) for _ in range(n_layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, words: Any) -> Any:
        return self.norm(self.layers(self.words(words)))


def with_statistics(module: Any, seed: int = 0) -> Any:
    """A module in inference mode whose batch normalisations have seen something, all its numbers drawn from a seed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if not tensor.is_floating_point():
                continue
            fan = max(1, tensor.numel() // tensor.shape[0]) if tensor.dim() > 1 else 1
            drawn = torch.randn(tensor.shape, generator=generator) * (2 / fan) ** 0.5 if tensor.dim() > 1 else None
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5 if drawn is None else drawn)
    return module.eval()

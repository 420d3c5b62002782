"""Modules that are written as torchvision writes them, and a few of other kinds, small."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as PyTorch's users call it


def conv_norm_act(
    n_in: int, n_out: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: type = nn.ReLU
) -> nn.Module:
    """Convolution, batch normalisation, activation."""
    conv = nn.Conv2d(n_in, n_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(n_out), act(inplace=True))


class BasicBlock(nn.Module):
    """ResNet's, with a projection."""

    def __init__(self, n_in: int = 8, n_out: int = 16, stride: int = 2) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.downsample = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += self.downsample(x)
        return self.relu(y)


class ResNet(nn.Module):
    """A stem, two stages, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm_act(3, 8, 7, 2), nn.MaxPool2d(3, 2, 1))
        self.layer1 = nn.Sequential(BasicBlock(8, 16, 2), BasicBlock(16, 16, 1))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.flatten(self.avgpool(self.layer1(self.stem(x))), 1))


class SqueezeExcitation(nn.Module):
    """Channels scaled by what their means say."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1, self.fc2 = nn.Conv2d(n, n // 4, 1), nn.Conv2d(n // 4, n, 1)
        self.scale = nn.Hardsigmoid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale(self.fc2(F.relu(self.fc1(self.avgpool(x))))) * x


class InvertedResidual(nn.Module):
    """MobileNet's, of the second and third kind."""

    def __init__(self, n: int = 8, act: type = nn.ReLU6) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm_act(n, 32, 1, act=act), conv_norm_act(32, 32, groups=32, act=act)]
        if act is nn.Hardswish:
            layers.append(SqueezeExcitation(32))
        self.conv = nn.Sequential(*layers, nn.Conv2d(32, n, 1, bias=False), nn.BatchNorm2d(n))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x)


class DenseBlock(nn.Module):
    """DenseNet's layers and transition."""

    def __init__(self, n: int = 16, growth: int = 8, n_layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for index in range(n_layers):
            n_in = n + index * growth
            self.layers.append(
                nn.Sequential(nn.BatchNorm2d(n_in), nn.ReLU(), nn.Conv2d(n_in, growth, 3, padding=1, bias=False))
            )
        n_out = n + n_layers * growth
        self.transition = nn.Sequential(nn.BatchNorm2d(n_out), nn.ReLU(), nn.Conv2d(n_out, n, 1), nn.AvgPool2d(2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return self.transition(torch.cat(features, 1))


class ShuffleUnit(nn.Module):
    """ShuffleNet's, of the second kind."""

    def __init__(self, n: int = 16) -> None:
        super().__init__()
        half = n // 2
        self.branch = nn.Sequential(
            conv_norm_act(half, half, 1),
            nn.Conv2d(half, half, 3, padding=1, groups=half, bias=False),
            nn.BatchNorm2d(half),
            conv_norm_act(half, half, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=1)
        y = torch.cat((first, self.branch(second)), dim=1)
        batch, n, height, width = y.shape
        return y.view(batch, 2, n // 2, height, width).transpose(1, 2).contiguous().view(batch, n, height, width)


class Patches(nn.Module):
    """ViT's: patches as tokens, a class token, positions, one encoder layer, a head of the class token."""

    def __init__(self, width: int = 16, size: int = 16, patch: int = 4) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, width, patch, patch)
        self.class_token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width))
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))
        self.head = nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.conv_proj(x).flatten(2).permute(0, 2, 1)
        tokens = torch.cat([self.class_token.expand(x.shape[0], -1, -1), tokens], dim=1) + self.positions
        normal = self.norm(tokens)
        tokens = tokens + self.attention(normal, normal, normal, need_weights=False)[0]
        tokens = tokens + self.mlp(tokens)
        return self.head(tokens[:, 0])


class UNet(nn.Module):
    """Down, up by interpolation and by a transposed convolution, with connections across."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = conv_norm_act(3, 8), conv_norm_act(8, 16, stride=2)
        self.middle = conv_norm_act(16, 16, stride=2)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.up2 = nn.ConvTranspose2d(32, 8, 2, 2)
        self.last = nn.Conv2d(16, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.down1(x)
        second = self.down2(first)
        y = torch.cat([self.up1(self.middle(second)), second], 1)
        y = torch.cat([self.up2(y), first], 1)
        return torch.sigmoid(F.interpolate(self.last(y), size=(20, 20), mode="nearest"))


class Recurrent(nn.Module):
    """A recurrent layer, and its last state."""

    def __init__(self, kind: type = nn.LSTM, **settings: object) -> None:
        super().__init__()
        self.rnn = kind(6, 8, batch_first=True, **settings)

    def forward(self, x: torch.Tensor) -> object:
        return self.rnn(x)


class ConvNeXtBlock(nn.Module):
    """ConvNeXt's, which permutes to have channels last."""

    def __init__(self, n: int = 8) -> None:
        super().__init__()
        self.layer_scale = nn.Parameter(torch.randn(n, 1, 1))
        self.dwconv = nn.Conv2d(n, n, 7, padding=3, groups=n)
        self.norm = nn.LayerNorm(n, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(n, 32), nn.GELU(), nn.Linear(32, n))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.mlp(self.norm(self.dwconv(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        return x + self.layer_scale * y


class Norms(nn.Module):
    """Group and instance normalisation, and others."""

    def __init__(self) -> None:
        super().__init__()
        self.group, self.instance = nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True)
        self.response, self.rms = nn.LocalResponseNorm(3), nn.RMSNorm(12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rms(self.response(self.instance(self.group(x))))


def randomized(module: nn.Module) -> nn.Module:
    """The module for inference, with statistics of batch normalisation and scales that are not the initial ones."""
    for each in module.modules():
        if isinstance(each, nn.BatchNorm2d):
            nn.init.normal_(each.running_mean, 0, 0.3)
            nn.init.uniform_(each.running_var, 0.5, 2)
        if (
            isinstance(each, nn.BatchNorm2d | nn.LayerNorm | nn.GroupNorm | nn.InstanceNorm2d)
            and each.weight is not None
        ):
            nn.init.uniform_(each.weight, 0.5, 1.5)
            nn.init.normal_(each.bias, 0, 0.3)
    return module.eval()


def image(n: int, size: int = 16, batch: int = 2) -> torch.Tensor:
    """A batch of square images."""
    return torch.randn(batch, n, size, size)


NETS = {
    "resnet": (ResNet, lambda: image(3, 33)),
    "resnet_block": (BasicBlock, lambda: image(8)),
    "mobilenet_v2": (InvertedResidual, lambda: image(8)),
    "mobilenet_v3": (lambda: InvertedResidual(act=nn.Hardswish), lambda: image(8)),
    "densenet": (DenseBlock, lambda: image(16)),
    "shufflenet": (ShuffleUnit, lambda: image(16)),
    "encoder_layer": (
        lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
        lambda: torch.randn(2, 7, 16),
    ),
    "encoder_layer_norm_first": (
        lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True, activation="gelu"),
        lambda: torch.randn(2, 7, 16),
    ),
    "vit": (Patches, lambda: image(3)),
    "unet": (UNet, lambda: image(3)),
    "convnext": (ConvNeXtBlock, lambda: image(8, 12)),
    "norms": (Norms, lambda: image(8, 12)),
    "lstm": (Recurrent, lambda: torch.randn(2, 5, 6)),
    "lstm_both_ways": (lambda: Recurrent(num_layers=2, bidirectional=True), lambda: torch.randn(2, 5, 6)),
    "gru": (lambda: Recurrent(nn.GRU), lambda: torch.randn(2, 5, 6)),
    "gru_both_ways": (lambda: Recurrent(nn.GRU, num_layers=2, bidirectional=True), lambda: torch.randn(2, 5, 6)),
}
"""By name: a module's constructor, and its input's."""

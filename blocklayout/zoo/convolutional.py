"""Convolutional classifiers without residual sums: stacks, and branches whose channels are put side by side.

Stacks are AlexNet, in one column, and VGG; branches SqueezeNet, Inception, DenseNet and ShuffleNet v2.

Source: A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv:1404.5997; K. Simonyan
and A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", arXiv:1409.1556; F. N. Iandola
et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and <0.5MB model size", arXiv:1602.07360, 1.1 from
the authors' repository; C. Szegedy et al., "Going Deeper with Convolutions", arXiv:1409.4842, with batch normalisation;
C. Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", arXiv:1512.00567; G. Huang et al.,
"Densely Connected Convolutional Networks", arXiv:1608.06993; N. Ma et al., "ShuffleNet V2: Practical Guidelines for
Efficient CNN Architecture Design", arXiv:1807.11164; as in torchvision 0.29, where 5x5 convolutions of GoogLeNet are
3x3, without the auxiliary classifiers, which are for training.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from blocklayout.zoo import IMAGE, CatalogueEntry
from blocklayout.zoo._layers import adaptive_average_pool

if TYPE_CHECKING:
    from blocklayout.model import BuildValue
    from blocklayout.zoo._layers import Layers

# --- AlexNet and VGG: stacks of convolutions, and three fully connected layers

CHANNELS = (64, 128, 256, 512, 512)
DEPTHS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""Convolutions of each stack, by how many layers there are with weights."""


def alexnet(net: Layers, x: BuildValue, *, features: int = 4096, classes: int = 1000) -> BuildValue:
    """Five convolutions and three fully connected layers, the first two of ``features`` each."""
    net.at("features")
    x = net.conv_act(x, 64, 11, strides=4, pads=2).max_pool(3, 2)
    x = net.conv_act(x, 192, 5).max_pool(3, 2)
    x = net.conv_act(x, 384)
    x = net.conv_act(x, 256)
    x = net.conv_act(x, 256).max_pool(3, 2)
    return classified(net, x, (6, 6), features, classes)


def vgg(
    net: Layers,
    x: BuildValue,
    *,
    depths: Sequence[int] = DEPTHS[16],
    bn: bool = False,
    features: int = 4096,
    classes: int = 1000,
) -> BuildValue:
    """Stacks of ``depths`` 3x3 convolutions, normalised or not; each sees half the image of the one before."""
    for stack, (depth, channels) in enumerate(zip(depths, CHANNELS, strict=False), start=1):
        net.at(f"stack{stack}")
        for _ in range(depth):
            x = net.act(net.bn(net.conv(x, channels, bias=True))) if bn else net.conv_act(x, channels)
        x = x.max_pool(2)
    return classified(net, x, (7, 7), features, classes)


def classified(net: Layers, x: BuildValue, extents: Sequence[int], features: int, classes: int) -> BuildValue:
    """Three fully connected layers behind a pooling to ``extents``."""
    x = adaptive_average_pool(x, extents).flatten()
    net.at("classifier")
    x = net.act(net.linear(x, features))
    x = net.act(net.linear(x, features))
    return net.linear(x, classes)


# --- SqueezeNet: few channels between layers of many

FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
"""Channels that each module squeezes into, and that each of its two branches expands to."""


def squeezenet(
    net: Layers, x: BuildValue, *, stem: tuple[int, int], pools: Collection[int], classes: int = 1000
) -> BuildValue:
    """Eight modules: a 1x1 convolution, and 1x1 beside 3x3.

    ``stem`` has channels and kernel of the first convolution. Before the modules in ``pools``, which count from 2 as in
    the paper, there is a pooling.
    """
    net.at("stem")
    x = net.conv_act(x, *stem, strides=2, pads=0)
    for module, (squeezed, expanded) in enumerate(FIRES, start=2):
        net.at(f"fire{module}")
        x = x.max_pool(3, 2, ceil_mode=True) if module in pools else x
        x = net.conv_act(x, squeezed, 1)
        x = net.concat([net.conv_act(x, expanded, 1), net.conv_act(x, expanded)])
    net.at("classifier")
    return net.conv_act(x, classes, 1).global_average_pool().flatten()


# --- Inception: GoogLeNet, which is v1, and v3

# Channels of each module's branches: 1x1; 3x3, reduced before it; 5x5, reduced before it; behind the pooling.
GOOGLENET_STAGES = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)


def chain(net: Layers, x: BuildValue, *convolutions: tuple[Any, ...]) -> BuildValue:
    """Convolutions one after the other: channels and kernel of each, and strides of those without padding."""
    for channels, kernel, *strides in convolutions:
        x = net.conv_bn(x, channels, kernel, **({"strides": strides[0], "pads": 0} if strides else {}))
    return x


def googlenet(
    net: Layers, x: BuildValue, *, stages: Sequence[Sequence[Sequence[int]]] = GOOGLENET_STAGES, classes: int = 1000
) -> BuildValue:
    """Three stages of modules, which have so many channels in each of four branches."""
    net.epsilon = 1e-3
    net.at("stem")
    x = net.conv_bn(x, 64, 7, strides=2).max_pool(3, 2, ceil_mode=True)
    x = chain(net, x, (64, 1), (192, 3))
    for stage, modules in enumerate(stages, start=3):
        x = x.max_pool(2 if stage == 5 else 3, 2, ceil_mode=True)
        for letter, channels in zip(ascii_lowercase, modules, strict=False):
            net.at(f"inception{stage}{letter}")
            ones, before_threes, threes, before_fives, fives, pooled = channels
            branches = ((ones, 1),), ((before_threes, 1), (threes, 3)), ((before_fives, 1), (fives, 3))
            parts = [chain(net, x, *each) for each in branches]
            x = net.concat([*parts, net.conv_bn(x.max_pool(3, 1, pads=1, ceil_mode=True), pooled, 1)])
    return net.classifier(x, classes)


def module_a(net: Layers, x: BuildValue, channels: int) -> BuildValue:
    """1x1, 5x5 and two 3x3 convolutions, and ``channels`` behind a pooling."""
    branches = ((64, 1),), ((48, 1), (64, 5)), ((64, 1), (96, 3), (96, 3))
    return net.concat([*(chain(net, x, *each) for each in branches), pooled(net, x, channels)])


def module_c(net: Layers, x: BuildValue, channels: int) -> BuildValue:
    """7x7 convolutions, each taken apart into 1x7 and 7x1."""
    lying, standing = (channels, (1, 7)), (channels, (7, 1))
    branches = (
        ((192, 1),),
        ((channels, 1), lying, (192, (7, 1))),
        ((channels, 1), standing, lying, standing, (192, (1, 7))),
    )
    return net.concat([*(chain(net, x, *each) for each in branches), pooled(net, x, 192)])


def module_e(net: Layers, x: BuildValue) -> BuildValue:
    """3x3 convolutions taken apart into 1x3 and 3x1, side by side."""
    parts = [net.conv_bn(x, 320, 1)]
    for branch in (((384, 1),), ((448, 1), (384, 3))):
        y = chain(net, x, *branch)
        parts.append(net.concat([net.conv_bn(y, 384, (1, 3)), net.conv_bn(y, 384, (3, 1))]))
    return net.concat([*parts, pooled(net, x, 192)])


def pooled(net: Layers, x: BuildValue, channels: int) -> BuildValue:
    """A convolution of the means of 3x3 pixels; those outside of the image count as zeros."""
    return net.conv_bn(net.same(x.average_pool(3, 1, pads=1, count_include_pad=True), x), channels, 1)


def halving(net: Layers, x: BuildValue, *branches: Sequence[tuple[Any, ...]]) -> BuildValue:
    """Half the image: branches that end in strides of 2, and a pooling."""
    return net.concat([*(chain(net, x, *each) for each in branches), net.same(x.max_pool(3, 2), x)])


def inception_v3(
    net: Layers,
    x: BuildValue,
    *,
    pooled5: Sequence[int] = (32, 64, 64),
    channels6: Sequence[int] = (128, 160, 160, 192),
    classes: int = 1000,
) -> BuildValue:
    """Modules of five kinds; channels behind poolings (``pooled5``), and between convolutions (``channels6``)."""
    net.epsilon = 1e-3
    net.at("stem")
    x = chain(net, x, (32, 3, 2), (32, 3, 1), (64, 3)).max_pool(3, 2)
    x = chain(net, x, (80, 1), (192, 3, 1)).max_pool(3, 2)
    for letter, channels in zip(ascii_lowercase[1:], pooled5, strict=False):
        net.at(f"mixed5{letter}")
        x = module_a(net, x, channels)
    net.at("mixed6a")
    x = halving(net, x, ((384, 3, 2),), ((64, 1), (96, 3), (96, 3, 2)))
    for letter, channels in zip(ascii_lowercase[1:], channels6, strict=False):
        net.at(f"mixed6{letter}")
        x = module_c(net, x, channels)
    net.at("mixed7a")
    x = halving(net, x, ((192, 1), (320, 3, 2)), ((192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2)))
    for letter in "bc":
        net.at(f"mixed7{letter}")
        x = module_e(net, x)
    return net.classifier(x, classes)


# --- DenseNet: every layer reads the results of all layers before it

BOTTLENECK = 4
"""How many times the growth a layer's 3x3 convolution reads."""


def densenet(
    net: Layers, x: BuildValue, *, blocks: Sequence[int], growth: int = 32, stem: int = 64, classes: int = 1000
) -> BuildValue:
    """Blocks of so many layers each, each with ``growth`` more channels; between blocks, half of all is left."""
    net.at("stem")
    x = net.conv_bn(x, stem, 7, strides=2).max_pool(3, 2, pads=1)
    for block, n_layers in enumerate(blocks, start=1):
        features = [x]
        for layer in range(1, n_layers + 1):
            net.at(f"block{block}.{layer}")
            y = preactivated(net, net.concat(features) if layer > 1 else x, BOTTLENECK * growth, 1)
            features.append(preactivated(net, y, growth, 3))
        x = net.concat(features)
        if block < len(blocks):
            net.at(f"transition{block}")
            x = preactivated(net, x, x.shape[1] // 2, 1).average_pool(2)
    return net.classifier(net.act(net.bn(x)), classes)


def preactivated(net: Layers, x: BuildValue, channels: int, kernel: int) -> BuildValue:
    """A convolution behind its normalisation and activation."""
    return net.conv(net.act(net.bn(x)), channels, kernel)


DENSENETS: dict[str, dict[str, Any]] = {
    "densenet121": {"blocks": (6, 12, 24, 16)},
    "densenet161": {"blocks": (6, 12, 36, 24), "growth": 48, "stem": 96},
    "densenet169": {"blocks": (6, 12, 32, 32)},
    "densenet201": {"blocks": (6, 12, 48, 32)},
}


# --- ShuffleNet v2: half of the channels pass by, then all are shuffled

SHUFFLENETS = {
    "shufflenet_v2_x0_5": (24, 48, 96, 192, 1024),
    "shufflenet_v2_x1_0": (24, 116, 232, 464, 1024),
    "shufflenet_v2_x1_5": (24, 176, 352, 704, 1024),
    "shufflenet_v2_x2_0": (24, 244, 488, 976, 2048),
}
"""Channels of the stem, the three stages, and the head."""


def shuffled(net: Layers, parts: Sequence[BuildValue]) -> BuildValue:
    """The first channel of each part, then the second of each, and so on."""
    x = net.concat(parts)
    batch, channels, height, width = x.shape
    y = x.reshape((batch, len(parts), channels // len(parts), height, width)).transpose((0, 2, 1, 3, 4))
    return net.same(y.reshape(x.shape), x)


def branch(net: Layers, x: BuildValue, channels: int, strides: int) -> BuildValue:
    """1x1, depthwise 3x3 and 1x1 convolutions."""
    y = net.conv_bn(x, channels, 1)
    y = net.conv_bn(y, channels, strides=strides, group=channels, act=None)
    return net.conv_bn(y, channels, 1)


def downsampling_unit(net: Layers, x: BuildValue, channels: int) -> BuildValue:
    """Half the image: two branches, of half the channels each."""
    first = net.conv_bn(x, x.shape[1], strides=2, group=x.shape[1], act=None)
    first = net.conv_bn(first, channels // 2, 1)
    return shuffled(net, [first, branch(net, x, channels // 2, 2)])


def unit(net: Layers, x: BuildValue) -> BuildValue:
    """A branch for the second half of the channels, nothing for the first."""
    half = x.shape[1] // 2
    first, second = (net.same(part, x) for part in x.split((half, half)))
    return shuffled(net, [first, branch(net, second, half, 1)])


def shufflenet_v2(
    net: Layers, x: BuildValue, *, channels: Sequence[int], units: Sequence[int] = (4, 8, 4), classes: int = 1000
) -> BuildValue:
    """Stages of so many ``units``; ``channels`` of the stem, the stages, and the head."""
    stem, *stages, head = channels
    net.at("stem")
    x = net.conv_bn(x, stem, strides=2).max_pool(3, 2, pads=1)
    for stage, (n_units, wanted) in enumerate(zip(units, stages, strict=True), start=2):
        for index in net.parts(f"stage{stage}", n_units):
            x = unit(net, x) if index else downsampling_unit(net, x, wanted)
    net.at("head")
    x = net.conv_bn(x, head, 1)
    net.at("classifier")
    return net.linear(x.mean((2, 3)), classes)


NETWORKS = {
    "alexnet": CatalogueEntry(alexnet),
    **{
        f"vgg{n_layers}{'_bn' if bn else ''}": CatalogueEntry(vgg, IMAGE, {"depths": depths, "bn": bn})
        for n_layers, depths in DEPTHS.items()
        for bn in (False, True)
    },
    "squeezenet1_0": CatalogueEntry(squeezenet, IMAGE, {"stem": (96, 7), "pools": (2, 5, 9)}),
    "squeezenet1_1": CatalogueEntry(squeezenet, IMAGE, {"stem": (64, 3), "pools": (2, 4, 6)}),
    "googlenet": CatalogueEntry(googlenet),
    "inception_v3": CatalogueEntry(inception_v3, (3, 299, 299)),
    **{name: CatalogueEntry(densenet, IMAGE, variant) for name, variant in DENSENETS.items()},
    **{name: CatalogueEntry(shufflenet_v2, IMAGE, {"channels": channels}) for name, channels in SHUFFLENETS.items()},
}

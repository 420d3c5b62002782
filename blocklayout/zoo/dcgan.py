"""The generator of DCGAN, which makes images of noise.

Source: A. Radford, L. Metz and S. Chintala, "Unsupervised Representation Learning with Deep Convolutional
Generative Adversarial Networks", arXiv:1511.06434; kernels and channels as in the third author's own program,
https://github.com/soumith/dcgan.torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.zoo._catalogue import Network

if TYPE_CHECKING:
    from blocklayout.model.build_value import BuildValue
    from blocklayout.zoo._layers import Layers


def dcgan_generator(net: Layers, x: BuildValue, *, width: int = 64, channels: int = 3) -> BuildValue:
    """Transposed convolutions, each of which doubles the image; one pixel of noise becomes 64x64."""
    net.at("project")
    x = net.act(net.bn(net.conv_transpose(x, 8 * width, 4)))
    for times in (4, 2, 1):
        net.at(f"up{times}")
        x = net.act(net.bn(net.conv_transpose(x, times * width, 4, strides=2, pads=1)))
    net.at("image")
    return net.conv_transpose(x, channels, 4, strides=2, pads=1).tanh()


NETWORKS = {"dcgan_generator": Network(dcgan_generator, (100, 1, 1))}

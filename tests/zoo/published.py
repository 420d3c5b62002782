"""How large the networks are, as others have counted it.

Source: torchvision 0.29.2, ``torchvision.models``: ``num_params`` and ``_ops`` (billions of multiply-adds, for
224x224 images, 299x299 for Inception, 16 frames of 112x112 for video) of each network's first ``_Weights``. The
others say where theirs are from.
"""

from __future__ import annotations

TORCHVISION: dict[str, tuple[int, float]] = {
    "alexnet": (61_100_840, 0.714),
    "convnext_small": (50_223_688, 8.684),
    "convnext_tiny": (28_589_128, 4.456),
    "densenet121": (7_978_856, 2.834),
    "densenet161": (28_681_000, 7.728),
    "densenet169": (14_149_480, 3.36),
    "densenet201": (20_013_928, 4.291),
    # It counts the auxiliary classifier: a 3x3 and a 1x1 convolution, and a normalisation, of 65x65 pixels.
    "deeplab_v3_resnet50": (
        42_004_074 - (1024 * 256 * 9 + 2 * 256 + 256 * 21 + 21),
        178.722 - 65**2 * (1024 * 256 * 9 + 256 * 21) / 1e9,
    ),
    "efficientnet_b0": (5_288_548, 0.386),
    "efficientnet_v2_s": (21_458_488, 8.366),
    "googlenet": (6_624_904, 1.498),
    # It counts the auxiliary classifier, and no work of it: 1x1 and 5x5 convolutions, normalised, and a linear layer.
    "inception_v3": (27_161_264 - (768 * 128 + 2 * 128 + 25 * 128 * 768 + 2 * 768 + 768 * 1000 + 1000), 5.713),
    "mc3_18": (11_695_440, 43.343),
    "mnasnet0_5": (2_218_512, 0.104),
    "mnasnet0_75": (3_170_208, 0.215),
    "mnasnet1_0": (4_383_312, 0.314),
    "mnasnet1_3": (6_282_256, 0.526),
    "mobilenet_v3_large": (5_483_032, 0.217),
    "mobilenet_v2": (3_504_872, 0.301),
    "r2plus1d_18": (31_505_325, 40.519),
    "r3d_18": (33_371_472, 40.697),
    "regnet_x_400mf": (5_495_976, 0.414),
    "regnet_y_400mf": (4_344_144, 0.402),
    "resnet101": (44_549_160, 7.801),
    "resnet152": (60_192_808, 11.514),
    "resnet18": (11_689_512, 1.814),
    "resnet34": (21_797_672, 3.664),
    "resnet50": (25_557_032, 4.089),
    "resnext101_32x8d": (88_791_336, 16.414),
    "resnext50_32x4d": (25_028_904, 4.23),
    "shufflenet_v2_x0_5": (1_366_792, 0.04),
    "shufflenet_v2_x1_0": (2_278_604, 0.145),
    "shufflenet_v2_x1_5": (3_503_624, 0.296),
    "shufflenet_v2_x2_0": (7_393_996, 0.583),
    "squeezenet1_0": (1_248_424, 0.819),
    "squeezenet1_1": (1_235_496, 0.349),
    "ssdlite320_mobilenet_v3_large": (3_440_060, 0.583),
    "swin_t": (28_288_354, 4.491),
    "vgg11": (132_863_336, 7.609),
    "vgg11_bn": (132_868_840, 7.609),
    "vgg13": (133_047_848, 11.308),
    "vgg13_bn": (133_053_736, 11.308),
    "vgg16": (138_357_544, 15.47),
    "vgg16_bn": (138_365_992, 15.47),
    "vgg19": (143_667_240, 19.632),
    "vgg19_bn": (143_678_248, 19.632),
    "vit_b_16": (86_567_656, 17.564),
    "wide_resnet101_2": (126_886_696, 22.753),
    "wide_resnet50_2": (68_883_240, 11.398),
}

WAVEFORM_PARAMETERS = {"m3": 0.2e6, "m5": 0.5e6, "m11": 1.8e6, "m18": 3.7e6, "m34_res": 4e6}
"""Source: table 1 of arXiv:1610.00087, as it rounds them."""

M5_MULTIPLY_ADDS = 80 * 128 * 8000 + 3 * 128 * 128 * 2000 + 3 * 128 * 256 * 500 + 3 * 256 * 512 * 125 + 512 * 10
"""Source: lengths in the same table."""

UNET_PARAMETERS = 31_030_658
"""Source: what tf_unet (J. Akeret et al., arXiv:1609.09077) has with five layers and 64 features."""

UNET_MULTIPLY_ADDS = (
    9 * (570**2 * 1 + 568**2 * 64) * 64
    + 9 * (282**2 * 64 + 280**2 * 128) * 128
    + 9 * (138**2 * 128 + 136**2 * 256) * 256
    + 9 * (66**2 * 256 + 64**2 * 512) * 512
    + 9 * (30**2 * 512 + 28**2 * 1024) * 1024
    + 4 * 28**2 * 1024 * 512
    + 9 * (54**2 * 1024 + 52**2 * 512) * 512
    + 4 * 52**2 * 512 * 256
    + 9 * (102**2 * 512 + 100**2 * 256) * 256
    + 4 * 100**2 * 256 * 128
    + 9 * (198**2 * 256 + 196**2 * 128) * 128
    + 4 * 196**2 * 128 * 64
    + 9 * (390**2 * 128 + 388**2 * 64) * 64
    + 388**2 * 64 * 2
)
"""Source: extents and channels in figure 1 of arXiv:1505.04597, stage by stage."""

DCGAN_PARAMETERS = 3_576_704
"""Source: the generator of the PyTorch tutorial on DCGAN, as torchsummary counts it."""

DCGAN_MULTIPLY_ADDS = 16 * (1 * 100 * 512 + 4**2 * 512 * 256 + 8**2 * 256 * 128 + 16**2 * 128 * 64 + 32**2 * 64 * 3)
"""Source: extents and channels in dcgan.torch, https://github.com/soumith/dcgan.torch."""

UNET_3D_PARAMETERS = 19_069_955 + 2 * 2336
"""Source: arXiv:1606.06650, section 2, which leaves out scales and shifts of the normalisations."""

CONVNEXT_V2_PARAMETERS = 28_635_496
"""Source: timm 1.0, ``convnextv2_tiny``."""

BERT_PARAMETERS = 109_482_240 - (768 * 768 + 768) - (512 - 128 + 2 - 1) * 768
"""Source: transformers 4, ``BertModel`` of ``bert-base-uncased``, without its pooler and rows that are never read."""

FASTER_RCNN_PARAMETERS = 41_755_286 + 53_120 - (256 * 256 * 9 + 256 + 256 * 15 + 15)
"""Source: torchvision 0.29.2, which leaves out normalisations; without its network that proposes."""

YOLO_PARAMETERS = 3_157_200 - 16
"""Source: Ultralytics 8.3, ``yolov8n``, which counts the numbers from 0 to 15."""

CRNN_PARAMETERS = 8_331_301
"""Source: crnn.pytorch, for 36 characters; arXiv:1507.05717 rounds to 8.3 millions."""

CONV_TASNET_PARAMETERS = 4_984_881
"""Source: torchaudio 2.8, ``conv_tasnet_base``; table II of arXiv:1809.07454 has 5.1 millions."""

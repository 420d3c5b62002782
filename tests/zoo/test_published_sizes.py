"""Networks have as many parameters, and do as much work, as has been published of them."""

from __future__ import annotations

import pytest

from blocklayout import zoo
from tests.zoo import published


@pytest.mark.parametrize("name", published.TORCHVISION)
def test_networks_are_those_of_torchvision(name: str) -> None:
    parameters, billions = published.TORCHVISION[name]
    info = zoo.info(name)
    assert info.parameters == parameters
    assert info.multiply_adds / 1e9 == pytest.approx(billions, abs=0.0011)  # some are cut, not rounded


@pytest.mark.parametrize("name", published.WAVEFORM_PARAMETERS)
def test_networks_for_sound_have_the_papers_parameters(name: str) -> None:
    assert zoo.info(name).parameters == pytest.approx(published.WAVEFORM_PARAMETERS[name], abs=0.1e6)


def test_m5_takes_the_papers_steps() -> None:
    assert zoo.info("m5").multiply_adds == published.M5_MULTIPLY_ADDS


def test_unet_is_that_of_the_paper() -> None:
    info = zoo.info("unet")
    assert (info.parameters, info.multiply_adds) == (published.UNET_PARAMETERS, published.UNET_MULTIPLY_ADDS)
    assert zoo.build("unet", seed=None).to_graph().shape("y") == (1, 2, 388, 388)


def test_the_generator_is_that_of_dcgan() -> None:
    info = zoo.info("dcgan_generator")
    assert (info.parameters, info.multiply_adds) == (published.DCGAN_PARAMETERS, published.DCGAN_MULTIPLY_ADDS)
    assert zoo.build("dcgan_generator", seed=None).to_graph().shape("y") == (1, 3, 64, 64)


OTHERS = {
    "bert_base": published.BERT_PARAMETERS,
    "conv_tasnet": published.CONV_TASNET_PARAMETERS,
    "convnext_v2_tiny": published.CONVNEXT_V2_PARAMETERS,
    "crnn": published.CRNN_PARAMETERS,
    "faster_rcnn_resnet50_fpn": published.FASTER_RCNN_PARAMETERS,
    "unet_3d": published.UNET_3D_PARAMETERS,
    "yolo_v8n": published.YOLO_PARAMETERS,
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_have_the_parameters_that_others_count(name: str) -> None:
    assert zoo.info(name).parameters == OTHERS[name]


def test_of_every_network_something_was_published() -> None:
    known = {*published.TORCHVISION, *published.WAVEFORM_PARAMETERS, *OTHERS, "unet", "dcgan_generator"}
    assert set(zoo.names()) == known

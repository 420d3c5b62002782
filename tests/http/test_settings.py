"""Settings come from flags, the environment and a file, in this order, and what is wrong is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import blocklayout as bl

pytest.importorskip("pydantic_settings", reason="the extra serve is not installed")

from blocklayout.http.settings import Settings


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "serve.toml"
    path.write_text('models = ["a.onnx", "zoo:resnet50"]\nmax_waiting = 7\nmax_body = "2MiB"\nport = 1\n')
    return path


def test_flags_precede_the_environment_and_that_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOCKLAYOUT_SERVE_MAX_WAITING", "8")
    monkeypatch.setenv("BLOCKLAYOUT_SERVE_PORT", "2")
    settings = Settings.read(file, port="3")
    assert (settings.port, settings.max_waiting, settings.max_body, settings.max_batch) == (3, 8, 2 << 20, 1)
    assert settings.sources == {"a": "a.onnx", "resnet50": "zoo:resnet50"}


def test_a_file_alone_and_none_at_all(file: Path) -> None:
    assert Settings.read(file).max_waiting == 7
    assert Settings.read(models=["b/c.onnx"]).sources == {"c": "b/c.onnx"}


def test_a_list_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOCKLAYOUT_SERVE_MODELS", "a.onnx, b.onnx")
    monkeypatch.setenv("BLOCKLAYOUT_SERVE_NAME", "one,two")
    assert Settings.read().sources == {"one": "a.onnx", "two": "b.onnx"}


def test_options_of_a_load() -> None:
    assert Settings.read(models="a.onnx").load_options["batching"] is None
    options = Settings.read(models="a.onnx", max_batch="4", max_delay_ms="1", dtype="bf16", layout="nhwc").load_options
    assert (options["batching"], options["dtype"], options["layout"]) == ((4, 1.0), "bf16", "nhwc")


@pytest.mark.parametrize(
    ("flags", "refusal"),
    [
        ({}, "models: Field required"),
        ({"models": "a.onnx", "port": "70000"}, "port: should be less than or equal to 65535, got '70000'"),
        ({"models": "a.onnx", "max_waiting": "0"}, "max_waiting: should be greater than 0"),
        ({"models": "a.onnx", "dtype": "f64"}, "dtype: should be 'f32', 'bf16' or 'f16', got 'f64'"),
        ({"models": "a.onnx", "max_body": "lots"}, "max_body: could not parse"),
        ({"models": "a.onnx", "name": "a,b"}, "2 of them for 1 models"),
        ({"models": "x/a.onnx,y/a.onnx"}, "'a' is empty, there twice"),
        ({"models": "a.onnx", "name": "a/b"}, "'a/b' is empty, there twice, or has a slash"),
        ({"models": "a.onnx", "nonsense": 1}, "nonsense: Extra inputs are not permitted"),
    ],
)
def test_what_is_wrong_is_named(flags: dict[str, Any], refusal: str) -> None:
    with pytest.raises(bl.InputError, match=refusal):
        Settings.read(**flags)


def test_a_setting_of_the_environment_that_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOCKLAYOUT_SERVE_MAX_WAITNG", "8")
    with pytest.raises(bl.InputError, match=r"BLOCKLAYOUT_SERVE_MAX_WAITNG: no such setting; did you mean '.*WAITING'"):
        Settings.read(models="a.onnx")


@pytest.mark.parametrize(
    ("text", "refusal"), [("max_waiting = 'x'", "max_waiting"), ("=", "serve.toml"), ("colour = 1", "colour")]
)
def test_a_file_that_is_wrong(file: Path, text: str, refusal: str) -> None:
    file.write_text(f'{text}\nmodels = ["a.onnx"]\n')
    with pytest.raises(bl.InputError, match=refusal):
        Settings.read(file)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(bl.InputError, match=r"--config absent\.toml: no such file"):
        Settings.read("absent.toml", models="a.onnx")

"""Recipes from Python, JSON and TOML, and the answers to wrong ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import blocklayout as bl
from blocklayout.quantizing.recipe import Otherwise, QuantizationRecipe

if TYPE_CHECKING:
    from pathlib import Path

OTHERWISE = st.builds(
    Otherwise,
    weights=st.sampled_from([None, "channel", "tensor"]),
    activations=st.sampled_from([None, "minmax", "entropy"]),
    percentile=st.none() | st.floats(51, 100),
)
RECIPES = st.builds(
    QuantizationRecipe,
    operators=st.lists(st.sampled_from(["Conv", "Gemm", "Add", "Mul"]), unique=True).map(tuple),
    weights=st.sampled_from(["channel", "tensor"]),
    activations=st.sampled_from(["minmax", "mean-minmax", "percentile", "mse", "entropy"]),
    percentile=st.floats(51, 100),
    zero_point=st.sampled_from(["zero", "any"]),
    equalisation=st.booleans(),
    bias_correction=st.booleans(),
    exceptions=st.dictionaries(st.text(), st.just("f32") | OTHERWISE, max_size=3),
)


@given(RECIPES)
def test_a_recipe_survives_json(recipe: QuantizationRecipe) -> None:
    assert QuantizationRecipe.of(recipe.model_dump_json()) == recipe
    assert QuantizationRecipe.of(recipe.model_dump()) == recipe


def test_a_recipe_from_files(tmp_path: Path) -> None:
    expected = QuantizationRecipe(
        activations="percentile", percentile=99.5, exceptions={"fc": "f32", "layer1.*": Otherwise(weights="tensor")}
    )
    toml = tmp_path / "recipe.toml"
    toml.write_text(
        'activations = "percentile"\npercentile = 99.5\n[exceptions]\nfc = "f32"\n"layer1.*" = { weights = "tensor" }\n'
    )
    json = tmp_path / "recipe.json"
    json.write_text(expected.model_dump_json())
    assert QuantizationRecipe.of(toml) == QuantizationRecipe.of(str(json)) == expected
    assert QuantizationRecipe.of(None) == QuantizationRecipe()
    assert QuantizationRecipe.of(expected) is expected


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"weights": "chanel"}, "weights: input should be 'channel' or 'tensor', not 'chanel'"),
        ({"percentil": 99}, "percentil: no such field; did you mean 'percentile'?"),
        ({"percentile": 101}, "percentile: input should be less than or equal to 100, not 101"),
        ({"operators": ["Conv", "Softmax"]}, "operators.1: input should be 'Conv', "),
        ({"exceptions": {"fc": "int8"}}, "exceptions.fc: input should be 'f32', not 'int8' or "),
        ({"exceptions": {"fc": {"wights": "tensor"}}}, "exceptions.fc.wights: no such field; did you mean 'weights'?"),
        (
            {"weights": 1, "bias_correction": "x"},
            "weights: input should be .*; bias_correction: input should be a valid",
        ),
        ("{", "invalid JSON"),
        ("recipe.yaml", "recipe.yaml is neither a .json nor a .toml file"),
        ("absent.toml", "absent.toml: No such file"),
        (3, "int; give a recipe, its fields, JSON, or a file's path"),
    ],
)
def test_a_wrong_recipe_is_answered_by_field_in_one_line(wrong: Any, said: str) -> None:
    with pytest.raises(bl.InputError, match=rf"^recipe: {said}") as error:
        QuantizationRecipe.of(wrong)
    assert "\n" not in str(error.value)


def test_wrong_files_name_themselves(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text("a = ")
    with pytest.raises(bl.InputError, match=r"recipe.toml: no TOML: "):
        QuantizationRecipe.of(path)
    path.write_text("percentile = 1")
    with pytest.raises(bl.InputError, match=r"recipe.toml: percentile: input should be greater than 50, not 1"):
        QuantizationRecipe.of(path)
    path.write_bytes(b"\xff")
    with pytest.raises(bl.InputError, match="no UTF-8 text"):
        QuantizationRecipe.of(path)


def test_a_name_precedes_a_pattern_and_a_pattern_a_type() -> None:
    by_name, by_pattern = Otherwise(weights="tensor"), Otherwise(activations="minmax")
    recipe = QuantizationRecipe(exceptions={"Conv": "f32", "a*": by_pattern, "ab": by_name})
    assert recipe.otherwise(["ab"], "Conv") == by_name
    assert recipe.otherwise(["ac"], "Conv") == by_pattern
    assert recipe.otherwise(["b"], "Conv") == "f32"
    assert recipe.otherwise(["b"], "Gemm") == Otherwise()


def test_an_exception_that_selects_nothing() -> None:
    recipe = QuantizationRecipe(exceptions={"Gemm": "f32", "conv_*": "f32", "cnov_1": "f32"})
    with pytest.raises(bl.InputError, match=r"recipe: exceptions: 'cnov_1' is no node, .*; did you mean 'conv_1'\?"):
        recipe.check_names(["conv_1"], ["Conv"])

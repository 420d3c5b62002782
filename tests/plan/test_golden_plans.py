"""Plans of whole networks, by the cost model of a committed machine, as they were last looked at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from blocklayout import dnnl

GOLDEN = Path(__file__).parent / "golden"
NETWORKS = ("squeezenet1_1", "mobilenet_v2", "resnet18")
LEVELS = ("SSE41", "AVX2", "AVX512_CORE")


def planned(network: str, environ: dict[str, str]) -> str:
    return subprocess.run(
        [sys.executable, "-m", "tests.plan.goldens", network],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
    ).stdout


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("network", NETWORKS)
def test_the_plan_is_the_golden_one(
    network: str, level: str, tree_environ: dict[str, str], *, update_golden: bool
) -> None:
    if not dnnl.has_isa(level.lower()):
        pytest.skip(f"needs a CPU with {level.lower()}; this one runs {dnnl.isa()}")
    file = GOLDEN / f"{network}.{level.lower()}.txt"
    if not update_golden and not file.exists():
        pytest.skip(f"{file.name} was not written yet; a CPU with {level.lower()} writes it with --update-golden")
    text = planned(network, tree_environ | {"ONEDNN_MAX_CPU_ISA": level})
    if update_golden:
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_a_plan_is_the_same_byte_for_byte_under_any_hash_seed(tree_environ: dict[str, str]) -> None:
    environ = tree_environ | {"ONEDNN_MAX_CPU_ISA": "SSE41", "BLOCKLAYOUT_TEST_JSON": "1"}
    texts = {planned("squeezenet1_1", environ | {"PYTHONHASHSEED": seed}) for seed in ("0", "4711")}
    assert len(texts) == 1


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda path: path.name)
def test_a_golden_file_is_small_and_names_its_origin(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    network, level, _ = path.name.split(".")
    assert text.startswith(f"# zoo:{network} ")
    assert f"ONEDNN_MAX_CPU_ISA={level.upper()}" in text.splitlines()[0]
    assert len(text) < 40_000

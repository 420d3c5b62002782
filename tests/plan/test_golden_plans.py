"""Plans of whole networks, by the cost model of a committed machine, as they were last looked at."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from blocklayout import dnnl
from tests.plan.goldens import END

GOLDEN = Path(__file__).parent / "golden"
NETWORKS = ("squeezenet1_1", "mobilenet_v2", "resnet18")
LEVELS = (("SSE41", "f32"), ("AVX2", "f32"), ("AVX512_CORE", "f32"), ("AVX512_CORE_AMX", "bf16"))


def planned(networks: Sequence[str], environ: dict[str, str], dtype: str = "f32") -> dict[str, str]:
    """What one process prints of each network."""
    printed = subprocess.run(
        [sys.executable, "-m", "tests.plan.goldens", dtype, *networks],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=Path(__file__).parents[2],
    ).stdout
    *texts, _ = printed.split(END)
    return dict(zip(networks, texts, strict=True))


@pytest.mark.parametrize(("level", "dtype"), LEVELS)
def test_the_plans_are_the_golden_ones(
    level: str, dtype: str, tree_environ: dict[str, str], *, update_golden: bool
) -> None:
    if not dnnl.has_isa(level.lower()):
        pytest.skip(f"needs a CPU with {level.lower()}; this one runs {dnnl.isa()}")
    files = {network: GOLDEN / f"{network}.{level.lower()}.{dtype}.txt" for network in NETWORKS}
    texts = planned(NETWORKS, tree_environ | {"ONEDNN_MAX_CPU_ISA": level}, dtype)
    for network, text in texts.items() if update_golden else ():
        files[network].write_text(text, encoding="utf-8")
    assert texts == {network: file.read_text(encoding="utf-8") for network, file in files.items()}


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda path: path.name)
def test_a_golden_file_is_small_and_names_its_origin(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    network, level, dtype, _ = path.name.split(".")
    assert text.startswith(f"# zoo:{network} ")
    assert f"ONEDNN_MAX_CPU_ISA={level.upper()}" in text.splitlines()[0]
    assert f", {dtype}, 2 threads" in text.splitlines()[1]
    assert len(text) < 40_000

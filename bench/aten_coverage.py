"""How many of ATen's core operators of inference are lowered, and right, on PyTorch's own samples of its operators?

Each sample is traced, decomposed to core ATen, lowered, planned by modelled prices, run, and compared with eager
PyTorch. An overload is lowered if a sample of it is, and right if none of these is wrong. Left out of core ATen are
gradients, random numbers, ``out=`` forms and sizes as symbols.

    python bench/aten_coverage.py
    python bench/aten_coverage.py --samples 10 --all
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

# Run as a script, it finds its neighbours beside it.
sys.path.insert(0, str(Path(__file__).parent.parent))

import torch

from blocklayout.show.output import print_table
from blocklayout.torch.aten_writer import TABLE
from tests.torch.opinfo import Outcome, outcome, outcomes_by_overload
from tests.torch.single import singles

NOT_OF_INFERENCE = ("backward", ".rand", ".out", ".sym_", "native_dropout", "_local_scalar_dense", "resize_")
"""Parts of names of core overloads that no graph of a network in inference has."""


def core_overloads() -> list[str]:
    """Core ATen, but what is not of inference."""
    names = set()
    for packet in (getattr(torch.ops.aten, name) for name in dir(torch.ops.aten)):
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            found = getattr(packet, overload)
            if torch.Tag.core in found.tags and not any(part in str(found) for part in NOT_OF_INFERENCE):
                names.add(str(found))
    return sorted(names)


def status(name: str, found: list[tuple[str, Outcome]]) -> str:
    """What became of an overload's samples."""
    if any(each.error for _, each in found):
        return "wrong"
    if any(not each.refused for _, each in found):
        return "right"
    if name not in TABLE:
        return "falls back"
    return "refused" if found else "no sample"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=3, help="of each operator and data type")
    parser.add_argument("--all", action="store_true", help="list each overload")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    outcomes = outcomes_by_overload(n_samples=args.samples)
    for name, graph, tensors, expected in singles():
        outcomes.setdefault(f"aten.{name}", []).append((name, outcome(graph, tensors, expected)))
    core = core_overloads()
    named = {"core of inference": core, "others lowered": sorted(set(TABLE) - set(core))}
    rows = []
    for what, names in named.items():
        statuses = [status(name, outcomes.get(name, [])) for name in names]
        counts = [statuses.count(each) for each in ("right", "wrong", "refused", "no sample", "falls back")]
        rows.append([what, str(len(names)), *map(str, counts)])
    print_table(["overloads", "in all", "right", "wrong", "refused", "no sample", "falls back"], rows)
    for name in (*core, *named["others lowered"]):
        found = outcomes.get(name, [])
        became = status(name, found)
        if args.all or became != "right":
            why = next((each.error or each.refused for _, each in found if each.error or each.refused), "")
            print(f"{became:10} {name}  {'' if became == 'right' else why}")


if __name__ == "__main__":
    main()

"""Which cases of ONNX's own test suite pass, natively, in numpy or by the reference, and in which layouts?

python bench/conformance.py              # writes docs/reference/conformance.md
python bench/conformance.py --failing    # prints what does not pass, with the reasons
python bench/conformance.py --reference  # prints what onnx.reference computes, with the reasons
python bench/conformance.py --case test_relu
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

import onnx

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.onnx_suite import (
    FOLDED,
    KINDS,
    NATIVE,
    NUMPY,
    PASSED,
    PLAIN,
    UNSUPPORTED,
    WRONG,
    Case,
    cases,
    networks,
    verdict_on,
)
from bench.onnx_suite_layouts import VIEW, layouts_in_networks, layouts_of

TABLE = Path(__file__).parent.parent / "docs" / "reference" / "conformance.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the table, or print what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--failing", action="store_true", help="print what does not pass, with the reasons")
    parser.add_argument("--reference", action="store_true", help="print what onnx.reference computes, and why")
    parser.add_argument("--case", help="run this case alone")
    args = parser.parse_args(argv)
    if args.case:
        [case] = [case for case in cases() if case.name == args.case]
        sys.stdout.write(f"{verdict_on(case)}\n")
        return 0
    if args.failing or args.reference:
        _print_cases({PLAIN} if args.reference else {UNSUPPORTED, WRONG})
        return 0
    TABLE.write_text(table())
    return 0


def _print_cases(outcomes: Collection[str]) -> None:
    for case in cases():
        verdict = verdict_on(case)
        if verdict.outcome in outcomes:
            sys.stdout.write(f"{verdict.outcome} {'goal' if case.in_goal else '-'} {case.name}: {verdict.reason}\n")
    sys.stdout.write(f"{summary_rows()}\n")


def summary_rows() -> list[tuple[str, ...]]:
    """A row for each part of the suite but the light models: cases, and how they ended."""
    rows = []
    for kind in KINDS:
        for in_goal in (True, False):
            own = [case for case in cases() if (case.kind, case.in_goal) == (kind, in_goal)]
            if own:
                rows.append(_summary(kind if in_goal else f"{kind}, out of scope", own))
    return rows


def networks_row() -> tuple[str, ...]:
    """The row of the light models, which takes a minute."""
    return _summary("light models", networks())


def _summary(title: str, own: Sequence[Case]) -> tuple[str, ...]:
    ends = Counter(verdict_on(case).outcome for case in own)
    counts = (ends[outcome] for outcome in (NATIVE, NUMPY, PLAIN, FOLDED, UNSUPPORTED, WRONG))
    passed = sum(ends[outcome] for outcome in PASSED)
    return title, str(len(own)), *map(str, counts), f"{passed / len(own):.1%}"


def _by_operator() -> dict[str, list[Case]]:
    """Node cases of a single node, by its operator, in alphabetical order."""
    found: dict[str, list[Case]] = defaultdict(list)
    for case in cases():
        if case.kind == "node" and len(case.model.graph.node) == 1:
            found[case.op_type].append(case)
    return dict(sorted(found.items()))


def counts() -> list[tuple[str, tuple[str, ...]]]:
    """Of each operator: how many cases ended natively, in numpy, by the reference, folded and unsupported."""
    return [(op_type, _counts(own)) for op_type, own in _by_operator().items()]


def _counts(own: Sequence[Case]) -> tuple[str, ...]:
    ends = Counter(verdict_on(case).outcome for case in own)
    return tuple(str(ends[outcome] or "") for outcome in (NATIVE, NUMPY, PLAIN, FOLDED, UNSUPPORTED))


def _line(op_type: str, own: Sequence[Case]) -> str:
    verdicts = {case: verdict_on(case) for case in own}
    native = [case for case, verdict in verdicts.items() if verdict.outcome == NATIVE]
    found = layouts_in_networks().get(op_type, set()).union(*map(layouts_of, native))
    layouts = sorted(found - {VIEW} or found)
    reasons = dict.fromkeys(
        _short_reason(v.reason) for v in verdicts.values() if v.outcome in (NUMPY, PLAIN, UNSUPPORTED)
    )
    cells = (op_type, *_counts(own), ", ".join(layouts), "; ".join(reasons))
    return as_line(cells)


_SHORT_REASONS = {
    "no primitive computes": "no primitive",
    "nothing of tensors without elements": "no elements",
    "of the operator set": "another operator set",
    "runs its subgraph": "runs a subgraph",
    "runs a subgraph": "runs a subgraph",
    "what is no tensor": "sequence or optional",
    " is a sequence": "sequence or optional",
    " is a optional": "sequence or optional",
    "ImageDecoder failed: ImportError": "Pillow is not installed",
    "its zero point": "weights or zero points computed at run time",
    "takes one number for all": "several zero points",
    "are read": "further results are read",
    "depend on data": "extents depend on data",
    "primitives compute it in": "not a float of up to 32 bits",
    "element type": "strings, complex numbers, types below one byte",
    "FLOAT8": "strings, complex numbers, types below one byte",
}


def _short_reason(reason: str) -> str:
    """A reason without the names and numbers of one case."""
    for part, text in _SHORT_REASONS.items():
        if part in reason:
            return text
    text = re.sub(r"^(node '[^']*'|\w+ '[^']*'): ", "", reason.partition("; nor can the reference")[0])
    return re.sub(r"\[[-\d, ]*\]|\d+ to \d+|'[^']*'|\([\w.]+\)|\d+", "…", text).split(";")[0].strip()


_HEADER = """# Conformance

The `onnx` package carries a test suite: single operators, small networks, and networks converted from PyTorch. Here is
how each case of `onnx` VERSION ends. The tables are written by `python bench/conformance.py`, and a test compares them
with what happens.

- *native*: oneDNN's primitives compute it, or it is a view that moves no byte;
- *numpy*: some node is computed by its operator's function in numpy, since no primitive does the same;
- *reference*: some node is left to `onnx.reference`, and shown in the plan as a plain kernel;
- *folded*: every output follows from constants and extents, and is known when the plan is made;
- *unsupported*: `UnsupportedError`, with the reason. Nothing ends in any other way.

In scope are tensors of floats of 16 and 32 bits, integers of 8 to 64 and booleans, sequences and optionals of them, and
ONNX's own operators, without training and random numbers. A test asserts, from the plan, that the convolutional
operators run natively in the suite's own 32-bit cases, and names the exceptions. Subgraphs, sequences, and nodes whose
extents follow from data are computed between plans ([how](../how-to/free-shapes.md#data)): by numpy, and their
subgraphs by plans of their own.

"""

_OPERATORS = """
## Operators

Node cases of a single node, in scope or not. The layouts are those in which primitives compute them that are not the
library's reference implementations, also at larger extents and in networks; a view moves no byte wherever its source is
dense in the right way.

"""


def as_line(cells: Sequence[str]) -> str:
    """A row of a table."""
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def table() -> str:
    """The whole document."""
    lines = [
        "| part | cases | native | numpy | reference | folded | unsupported | wrong | passed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [as_line(row) for row in (*summary_rows(), networks_row())]
    lines += _OPERATORS.splitlines()
    lines += [
        "| operator | native | numpy | reference | folded | unsupported | layouts | why not native |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_line(op_type, own) for op_type, own in _by_operator().items()]
    return _HEADER.replace("VERSION", onnx.__version__) + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())

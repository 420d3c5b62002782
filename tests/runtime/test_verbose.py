"""The plan against what oneDNN itself says it executed."""

from __future__ import annotations

import json
import subprocess
import sys

from blocklayout.dnnl import own
from blocklayout.plan import POLICIES

SCRIPT = """
import json, sys
import blocklayout as bl
from tests import nets
for policy in sys.argv[1:]:
    session = bl.load(nets.residual(), layout=policy)
    feed = {info.name: nets.random_input(info.shape) for info in session.get_inputs()}
    session.run(None, feed)
    print("RUN", flush=True)
    session.run(None, feed)
    rows = [("reorder", "") for entry in session.plan.entries if entry.is_reorder]
    rows += [(step.spec.kind, step.spec.impl) for step in session.plan.steps]
    print("PLAN" + json.dumps(rows), flush=True)
"""


def test_every_step_of_the_plan_that_is_the_librarys_is_what_it_executes(tree_environ: dict[str, str]) -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, *POLICIES],
        env=tree_environ | {"ONEDNN_VERBOSE": "2"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    _, *parts = result.stdout.split("RUN\n")
    assert len(parts) == len(POLICIES)
    for policy, part in zip(POLICIES, parts, strict=True):
        before, after = part.split("PLAN")
        executed = [_kind_and_impl(line) for line in before.splitlines() if ",exec," in line]
        planned = [(kind, impl) for kind, impl in json.loads(after.splitlines()[0]) if not own.implementation(impl)]
        assert [kind for kind, _ in executed] == [kind for kind, _ in planned], policy
        for (_, impl), (_, planned_impl) in zip(executed, planned, strict=True):
            assert impl == planned_impl or not planned_impl


def _kind_and_impl(line: str) -> tuple[str, str]:
    """``onednn_verbose,exec,cpu,convolution,jit:avx2,...`` -> ``("convolution", "jit:avx2")``."""
    fields = line.split(",")
    start = fields.index("exec")
    return fields[start + 2], fields[start + 3]

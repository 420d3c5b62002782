"""Operators as post-ops of a convolution give what they give after it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.errors import UnimplementedError
from blocklayout.ir import LAYOUT_NAMES, PostOpUse, Wish
from blocklayout.layout import MemoryDesc
from tests.ops import test_binary, test_clip, test_eltwise, test_nary, test_prelu
from tests.ops.broadcasts import IMAGE
from tests.ops.cases import OpCase, Weights, problem_of
from tests.ops.harness import TOLERANCES, assert_close, assert_padding_is_zero, resolved, run_step


@dataclasses.dataclass(frozen=True, eq=False)
class Fused:
    """A convolution whose result a second node reads, and that node as its post-op.

    Attributes:
        operand: What a binary post-op reads.
    """

    producer: OpCase
    follower: OpCase
    use: PostOpUse
    post_op: dnnl.PostOp
    operand: np.ndarray | None

    @classmethod
    def of(cls, case: OpCase) -> Fused | None:
        """``case`` behind a convolution; ``None`` if it is no post-op of one."""
        if IMAGE not in case.inputs or case.lowered().operator.role == "view":
            return None
        follower = dataclasses.replace(case)
        fed = f"in_{follower.inputs.index(IMAGE)}"
        low = 0.1 if case.low > 0 else -1.0
        shape = (IMAGE[0], 8, *IMAGE[2:])
        producer = OpCase("Conv", (shape, Weights((IMAGE[1], 8, 1, 1), low)), low=low, seed=1)
        follower.feeds[fed][:] = producer.expected
        lowered = follower.lowered()
        arg = next(arg for arg, value in lowered.sources.items() if value.name == fed)
        use = lowered.operator.as_post_op(arg, problem_of(lowered, IMAGE))
        if use is None or use.post_op is None:
            return None
        arrays = {arg: follower.feeds[value.name] for arg, value in lowered.sources.items()} | dict(lowered.constants)
        return cls(producer, follower, use, use.post_op, arrays[use.operand] if use.operand else None)

    def __str__(self) -> str:
        return f"Conv and {self.follower}"

    def check(self, layout: str, *, in_place: bool) -> bool:
        """Compare with the two nodes in a row; False if the library has no such convolution."""
        lowered, wish = self.producer.lowered(), Wish(layout, layout)
        problem = problem_of(lowered, IMAGE)
        attr = dnnl.Attr((dnnl.Sum() if in_place else self._post_op(wish.dst_desc(problem.dst)),))
        recipe = lowered.operator.lower(problem, wish, attr)
        assert recipe is not None
        try:
            step = resolved(recipe.steps[0])
        except UnimplementedError:
            return False
        arrays = {"src": self.producer.feeds["in_0"], **lowered.constants}
        buffers: dict[str, tuple[MemoryDesc, np.ndarray]] = {}
        if in_place and self.operand is not None:
            dst = step.spec.memory_desc("dst")
            buffers["dst"] = dst, dst.pack(self.operand)
        elif self.operand is not None:
            arrays |= dict.fromkeys(("post_op_0_src_1", "post_op_0_weights"), self.operand)
        run_step(step, arrays, buffers)
        desc, buffer = buffers["dst"]
        assert_padding_is_zero(desc, buffer)
        assert_close(desc.unpack(buffer), self.follower.expected, TOLERANCES["f32"], f"{self} as {layout}")
        return True

    def _post_op(self, dst: dnnl.Desc) -> dnnl.PostOp:
        if self.operand is None or not isinstance(self.post_op, dnnl.Binary):
            return self.post_op
        if self.operand.shape == dst.dims and isinstance(dst, MemoryDesc):
            return dnnl.Binary(self.post_op.algorithm, dst)
        return dnnl.Binary(self.post_op.algorithm, MemoryDesc(self.operand.shape))


FOLLOWERS = [*test_eltwise.CASES, *test_clip.CASES, *test_binary.CASES, *test_nary.CASES, *test_prelu.CASES]
ALL = [fused for fused in map(Fused.of, FOLLOWERS) if fused is not None]


@pytest.mark.parametrize("fused", ALL, ids=str)
def test_fused_equals_separate(fused: Fused) -> None:
    ran = [fused.check(layout, in_place=False) for layout in LAYOUT_NAMES]
    assert any(ran)


@pytest.mark.parametrize("fused", [fused for fused in ALL if fused.use.is_sum], ids=str)
def test_added_in_place_equals_separate(fused: Fused) -> None:
    ran = [fused.check(layout, in_place=True) for layout in LAYOUT_NAMES]
    assert any(ran)

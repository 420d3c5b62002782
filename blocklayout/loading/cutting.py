"""From a model that no single plan can compute to its pieces: plan books, and calls of the nodes between them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from blocklayout import model
from blocklayout.errors import PlanError, closest
from blocklayout.forking import Lock
from blocklayout.layout import MemoryDesc
from blocklayout.plan.plan import FREE
from blocklayout.resource_limits import check_time
from blocklayout.runtime.pieces import MAX_QUICK_NBYTES, Call, Pieces, Straight, SubgraphInfo
from blocklayout.tensor import Tensor, reorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from blocklayout.ir import Demands
    from blocklayout.loading.signature import Opened
    from blocklayout.model import Node, OnnxModel
    from blocklayout.model.cutting import Cut
    from blocklayout.model.graph import Branch
    from blocklayout.runtime import InputInfo, OutputInfo, PlanBook
    from blocklayout.runtime.pieces import Values


class Inner(Struct, frozen=True):
    """Formats of values that no caller sees: between pieces, and around subgraphs that run again and again.

    Attributes:
        formats: By name, ``any`` where plans choose.
        carried: Results of a subgraph, by the arguments as which they come the next time; plans choose for both.
    """

    formats: Mapping[str, str] = field(default_factory=dict)
    carried: Mapping[str, str] = field(default_factory=dict)

    def of(self, cut: Cut, cuts: Sequence[Cut], passed: Collection[str]) -> Inner:
        """Those of a piece: of values that it alone computes and reads again, that are passed on, or given so.

        ``passed`` are the names of values that one piece writes and one other reads.
        """
        elsewhere = {name for each in cuts if each is not cut for name in each.inputs}
        carried = {
            name: result
            for name, result in self.carried.items()
            if name in cut.inputs and result in cut.outputs and not elsewhere & {name, result}
        }
        given = self.formats.keys() - {*self.carried, *self.carried.values()}
        ends = [name for name in cut.inputs if name in given or name in passed]
        ends += [name for name in cut.outputs if name in passed]
        return Inner(dict.fromkeys((*carried, *carried.values(), *ends), FREE), carried)

    def fed(self, values: Values) -> Inner:
        """With the formats in which values come that nothing here computes; row-major where they are arrays."""
        formats = dict(self.formats)
        for name in (name for name in values if name in formats and name not in self.carried):
            value = values[name]
            tag = value.desc.canonical_tag if isinstance(value, Tensor) else None
            if tag is None:
                del formats[name]
            else:
                formats[name] = tag
        return replace(self, formats=formats)


class Cutter(Struct, frozen=True, eq=False):
    """Makes the pieces of a model.

    Attributes:
        open: Makes the plan book of a piece or subgraph, with formats within, and at the caller's border.
        inputs: The model's, as its caller holds them.
        outputs: Likewise.
        inner: Formats that were meant for the model as a whole.
    """

    opened: Opened
    open: Callable[..., PlanBook]
    inputs: Sequence[InputInfo]
    outputs: Sequence[OutputInfo]
    inner: Inner
    demands: Demands

    def pieces(self, error: model.DependsOnDataError | None) -> Pieces:
        """The model in pieces, cut at its standing cuts, and where ``error`` says that only data settle extents."""
        whole = model.open_model(self.opened)
        if not isinstance(whole, model.OnnxModel):
            raise error or TypeError(whole)
        reasons = model.always_cut(whole)
        if error is not None:
            reasons |= model.reasons_of(whole, error.origin, str(error).partition(";")[0])
        cuts = model.pieces_of(whole, reasons)
        if error is not None and not any(cut.reason for cut in cuts):
            raise error
        outputs = {info.name for info in whole.signature.outputs}
        quick = [self._by_arrays(whole, cut) for cut in cuts]
        passed = {name for name, place in model.passed_on(cuts, outputs).items() if quick[place] is None}
        pieces = []
        for number, (cut, by_arrays) in enumerate(zip(cuts, quick, strict=True), 1):
            call = self._call(whole, cut, is_alone=len(cuts) == 1) if cut.reason else None
            name, inner = f"{whole.name}, piece {number}", self.inner.of(cut, cuts, passed)
            pieces.append(call or self._straight(whole, cut, name, inner, by_arrays))
        self._check_demands(whole, [piece for piece in pieces if isinstance(piece, NodeCall)])
        read = {name for cut in cuts if cut.reason for name in cut.nodes[0].inputs}
        constants = {name: array for name, array in whole.constants.items() if name in read | outputs}
        return Pieces(whole.name, self.inputs, self.outputs, constants, pieces)

    def _check_demands(self, whole: OnnxModel, calls: Sequence[NodeCall]) -> None:
        called = {each.node.outputs for each in calls}
        planned = [node for node in whole.nodes if node.outputs not in called]
        planned += [
            inner for each in calls for branch in model.branches_of(each.node).values() for inner in branch.nodes
        ]
        names = model.NodeNames.of(planned, (info.name for info in whole.signature.inputs))
        for option, key, wanted in self.demands.by_key():
            if names.has(key):
                continue
            if model.NodeNames.of([each.node for each in calls]).has(key):
                raise PlanError(f"{option} {key}={wanted}: no plan computes it, since the model is cut there")
            known = closest(key, (*names.names, *names.op_types))
            raise PlanError(f"{option} {key}={wanted}: no kernel, node or value of that name, and no operator; {known}")

    def _call(self, whole: OnnxModel, cut: Cut, *, is_alone: bool) -> NodeCall | None:
        """The call of the node that the model is cut at; ``None`` where it is planned for the contents it is fed."""
        [node] = cut.nodes
        node = node if node.name else node.replace(name=f"{node.op_type} of {' '.join(filter(None, cut.outputs))}")
        by = "onnx.reference" if model.function_of(node, whole.opset, {}) is None else "numpy"
        if by == "onnx.reference" and not is_alone:
            return None
        subgraphs = {
            key: self._subgraph(whole, _with_constants(branch, whole), node, f"{node.name}.{key}")
            for key, branch in model.branches_of(node).items()
        }
        return NodeCall(
            name=node.name,
            inputs=node.inputs,
            outputs=node.outputs,
            reason=cut.reason,
            by=by,
            node=node,
            opset=whole.opset,
            subgraphs=subgraphs,
            captured=model.captured_by(node),
        )

    def _subgraph(self, whole: OnnxModel, branch: Branch, node: Node, name: str) -> Subgraph:
        written = {each for inner in branch.nodes for each in inner.outputs}
        names = dict.fromkeys(each for inner in branch.nodes for each in inner.inputs if each)
        read = tuple(each for each in names if each not in written and each not in branch.constants)
        pairs = model.carried_in(node, whole.opset, branch).items()
        carried = {each: result for each, result in pairs if each in read}
        lasting = tuple(each for each in read if branch.inputs and each not in branch.inputs)
        inner = Inner(dict.fromkeys((*carried, *carried.values(), *lasting), FREE), carried)
        about = SubgraphInfo(
            inputs=branch.inputs,
            outputs=branch.outputs,
            read=read,
            computed=tuple(each for each in dict.fromkeys(branch.outputs) if each in written),
            constants={each: branch.constants[each] for each in branch.outputs if each in branch.constants},
            results=branch.results,
            carried=carried,
            lasting=lasting,
        )
        return Subgraph(about, lambda inputs: self.open(model.body_model(branch, inputs, whole, name), inner))

    def _by_arrays(self, whole: OnnxModel, cut: Cut) -> model.NodeByNode | None:
        """Computes a piece whose extents data settle node by node; ``None`` where that would not be quick."""
        if cut.reason or self._is_first(cut):
            return None
        selects = model.NodeNames.of(cut.nodes).has
        is_demanded = self.demands.among(selects) or whole.demands.among(selects)
        return None if is_demanded else model.by_arrays(cut, whole, MAX_QUICK_NBYTES)

    def _is_first(self, cut: Cut) -> bool:
        return {info.name for info in self.inputs} >= {*cut.inputs}

    def _straight(
        self, whole: OnnxModel, cut: Cut, name: str, inner: Inner, by_arrays: model.NodeByNode | None
    ) -> Straight:
        cut = replace(cut, outputs=tuple(filter(None, cut.outputs)))
        declared = {info.name: info for info in (*whole.signature.outputs, *whole.signature.inputs)}
        borders = {info.name: info.border for info in (*self.outputs, *self.inputs)}
        crossing = {name: borders.get(name) for name in (*cut.inputs, *cut.outputs)}
        formats = {name: border for name, border in crossing.items() if border is not None}

        def start(values: Values) -> PlanBook:
            inputs = [model.info_of(each, values.get(each), declared.get(each)) for each in cut.inputs]
            opened = model.straight_model(whole, cut, inputs, name)
            return self.open(opened, inner.fed(values), formats, is_first=self._is_first(cut))

        outputs = {info.name for info in whole.signature.outputs}
        return Straight(
            name=name,
            inputs=cut.inputs,
            outputs=cut.outputs,
            reason=cut.reason,
            open=start,
            by_arrays=by_arrays,
            inner=tuple(each for each in cut.outputs if each not in outputs),
        )


def _with_constants(branch: Branch, whole: OnnxModel) -> Branch:
    """A subgraph to which constants of the graph around it are constants, too: they are packed once.

    Results that are copies are the values themselves, such as a condition that nothing changes.
    """
    branch = model.without_copies(branch)
    around = {name: whole.constants[name] for name in branch.captured if name in whole.constants}
    return replace(branch, constants={**branch.constants, **around})


class NodeCall(Call, eq=False, kw_only=True, dict=True):
    """A node at which a model is cut; its last inputs are ``captured`` by its subgraphs."""

    node: Node
    opset: int
    subgraphs: Mapping[str, Subgraph]
    captured: tuple[str, ...]

    def compute(self, given: Sequence[Any]) -> list[Any]:
        """Its results, row-major, of its inputs in order."""
        captured = dict(zip(reversed(self.captured), reversed(given), strict=False))
        function = self._function_on(captured) if self.subgraphs else self._function

        def row_major(*arguments: Any) -> tuple[Any, ...]:
            results = function(*arguments)
            return tuple(map(_row_major, results if isinstance(results, tuple) else (results,)))

        return model.checked_call(self.node, row_major, given[: len(given) - len(captured)])

    @cached_property
    def _function(self) -> Callable[..., Any]:
        return self._function_on({})

    def _function_on(self, captured: Values) -> Callable[..., Any]:
        bound = {key: _Bound(subgraph, captured) for key, subgraph in self.subgraphs.items()}
        return model.function_of(self.node, self.opset, bound) or model.by_reference(self.node, self.opset)

    @property
    def books(self) -> list[PlanBook]:
        """Those of its subgraphs that there are by now."""
        return [book for subgraph in self.subgraphs.values() for book in subgraph.books]

    @property
    def notes(self) -> list[str]:
        """Lines about the layouts of values that subgraphs keep from one run to the next."""
        return [note for subgraph in self.subgraphs.values() for note in subgraph.notes()]


def _row_major(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return np.asarray(reorder(value, MemoryDesc(value.shape, value.dtype)))


class Subgraph:
    """A subgraph as a function: a plan book for each kind of its inputs.

    Where it runs again and again, its plans choose the layouts of values that are carried from one run to the next, and
    of those that it reads of the graph around it.
    """

    def __init__(
        self,
        info: SubgraphInfo,
        open_: Callable[[Sequence[model.DeclaredValue]], PlanBook],
        books: Sequence[PlanBook] = (),
    ) -> None:
        """Open no plan book yet; ``open_`` makes one for inputs of certain types, ``books`` are there already."""
        self.info = info
        self._open = open_
        self._known = [(_kinds(book.signature.inputs), book) for book in books]
        self._by_kind: dict[tuple[Any, ...], PlanBook] = {}
        self._lock = Lock()

    @property
    def books(self) -> list[PlanBook]:
        """Those that there are by now."""
        return [book for _, book in self._known]

    def notes(self) -> Iterator[str]:
        """The layouts that values keep from one run to the next, by the plan that ran last."""
        carried = self.info.carried
        for plan in (plan for book in self.books if book.pieces is None for plan in book.plans[-1:]):
            free = {name for name, layout in plan.config.io_layout if layout == FREE}
            for name, desc in plan.inputs:
                layout = desc.named("src")
                if name in free and name in carried:
                    yield f"{name} comes as {carried[name]} was written the time before: {layout}"
                elif name in free and name in self.info.lasting:
                    yield f"{name} is brought to {layout} once, since every run reads it so"

    def run(self, given: Values) -> list[Any]:
        """Its results, for values by name."""
        check_time(f"the subgraph that gives {', '.join(self.info.outputs)}")
        values = {**self.info.constants, **given}
        if self.info.computed:
            fed = {name: values[name] for name in self.info.read}
            values.update(zip(self.info.computed, self._book(fed).run(None, fed), strict=True))
        return [values[name] for name in self.info.outputs]

    def as_planned(self, given: Values) -> dict[str, Tensor]:
        """The values that last, in the layouts that a plan for these values wants, as far as that chooses them."""
        fed = {name: given[name] for name in self.info.read if name in given}
        book = self._book(fed)
        if book.pieces is None:
            plan = book.prepare({name: np.shape(value) for name, value in fed.items()}, fed)
        if book.pieces is not None:
            return {}
        free = {name for name, layout in plan.config.io_layout if layout == FREE}.intersection(self.info.lasting)
        wanted = {name: desc for name, desc in plan.inputs if name in free and not desc.is_plain}
        return {name: reorder(fed[name], desc, threads=plan.config.n_threads) for name, desc in wanted.items()}

    def _book(self, fed: Values) -> PlanBook:
        kind = tuple([type(each) if each is None or type(each) is list else each.dtype for each in fed.values()])
        with self._lock:
            if kind not in self._by_kind:
                inputs = [model.info_of(name, value) for name, value in fed.items()]
                kinds = _kinds(inputs)
                book = next((book for each, book in self._known if each == kinds), None)  # a Tensor's is an array's
                if book is None:
                    book = self._open(inputs)
                    self._known.append((kinds, book))
                self._by_kind[kind] = book
            return self._by_kind[kind]


def _kinds(inputs: Sequence[model.DeclaredValue | InputInfo]) -> list[tuple[str, str, str]]:
    """Equal where one plan book takes both."""
    return [(info.name, info.dtype, info.container) for info in inputs]


class _Bound:
    """A subgraph with the values that it reads of the graph around it, for one call of its node."""

    def __init__(self, subgraph: Subgraph, captured: Values) -> None:
        self._subgraph = subgraph
        self._captured = captured
        self._has_run = not subgraph.info.lasting
        self.results = subgraph.info.results

    def __call__(self, *arguments: Any) -> list[Any]:
        given = {**self._captured, **dict(zip(self._subgraph.info.inputs, arguments, strict=True))}
        if not self._has_run:
            self._has_run = True
            lasting = self._subgraph.as_planned(given)  # for all later ones, too
            given |= lasting
            self._captured = {**self._captured, **lasting}
        return self._subgraph.run(given)

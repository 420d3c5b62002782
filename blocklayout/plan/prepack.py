"""Pack constants: each is reordered once, several at a time, and held as long as a plan uses it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from blocklayout import dnnl
from blocklayout.dtypes import from_numpy
from blocklayout.errors import BlockLayoutError
from blocklayout.model.origins import origin_of
from blocklayout.side_by_side import side_by_side
from blocklayout.tensor import as_memory
from blocklayout.tensor.reordering import bytes_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blocklayout.ir import MadeWeights
    from blocklayout.layout import MemoryDesc
    from blocklayout.model.origins import Origin
    from blocklayout.plan.plan import PackedConstant, Plan

_Key = tuple[str, "MemoryDesc", "MadeWeights | None"]


class _Pack(Struct, frozen=True):
    """A packed constant that some plan may still use; it holds neither its bytes nor their source."""

    source: weakref.ref[np.ndarray]
    packed: weakref.ref[np.ndarray]
    origin: Origin | None


class PackedWeights(Struct):
    """Packed constants by name, layout and the function that makes them, shared among the plans of one model.

    A plan's constants may be computed for it, as weights are that a normalisation was folded into: the same
    ones are other arrays in the next plan. So their origin in the model's file decides, and where they have none,
    bytes: results equal to those before are held once.
    Callers of :meth:`pack` hold them: they go with the last plan that has them.
    """

    _packs: dict[_Key, list[_Pack]] = field(default_factory=dict)

    def pack(
        self, plan: Plan, take: Callable[[str], np.ndarray], given: Mapping[int, np.ndarray] | None = None
    ) -> dict[int, np.ndarray]:
        """Every packed constant of a plan as raw bytes, by buffer.

        Args:
            plan: Names them and their layouts.
            take: Returns a constant by name; called once for each, by several threads. It need not outlive its packing.
            given: The bytes of some, which are not packed.
        """
        self._forget_the_dead()
        items: dict[str, list[PackedConstant]] = {}
        packed: dict[int, np.ndarray] = dict(given or {})
        for item in plan.constants:
            if item.buffer not in packed:
                items.setdefault(item.constant, []).append(item)

        def pack_constant(name: str) -> None:
            source = take(name)
            try:
                for item in items[name]:
                    packed[item.buffer] = self._one(item, source)
            except BlockLayoutError as error:
                error.add_note(f"while packing the constant {name!r}")
                raise

        largest_first = sorted(items, key=lambda name: -items[name][0].desc.nbytes)
        with side_by_side(pack_constant, largest_first, plan.config.n_threads):
            pass
        return packed

    def _one(self, item: PackedConstant, source: np.ndarray) -> np.ndarray:
        alike = self._packs.setdefault((item.constant, item.desc, item.made), [])
        origin = origin_of(source)
        for pack in alike:
            packed = pack.packed()
            if packed is not None and (pack.source() is source or (origin is not None and pack.origin == origin)):
                return packed
        made = _packed(item.contents(source), item.desc)
        for pack in alike:
            packed = pack.packed()
            if packed is not None and np.array_equal(packed, made):
                return packed
        alike.append(_Pack(weakref.ref(source), weakref.ref(made), origin))
        return made

    def _forget_the_dead(self) -> None:
        living = {key: [pack for pack in packs if pack.packed() is not None] for key, packs in self._packs.items()}
        self._packs = {key: packs for key, packs in living.items() if packs}


def _packed(array: np.ndarray, desc: MemoryDesc) -> np.ndarray:
    given = from_numpy(array.dtype)
    # The library has no reorder from f64, and f16's needs a CPU that has it.
    source = array.astype(np.float32) if given in ("f64", "f16") and desc.dtype != given else array
    if from_numpy(source.dtype) == desc.dtype and desc.extra is None:
        made = dnnl.aligned_empty(desc.nbytes)
        desc.pack(source.reshape(desc.dims), made)  # as fast as the library, which would first make a primitive
        return made
    src, buffer = as_memory(np.require(source, requirements="A").reshape(desc.dims))  # views of a file begin anywhere
    # One thread: there are as many tensors on their way as there are threads.
    return bytes_in(src, buffer, desc, 1, is_kept=False)

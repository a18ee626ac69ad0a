"""A pretended GPU: tensors of the CPU that claim to lie on `cuda`, under rules that are checked.

Inside `pretended_gpu()` a tensor that was sent to `cuda` says that it is there. What it really is
on is its storage's label, so views, gradients and tensors inside `torch.func` keep it.

* An operation on tensors of two devices raises `MixedDevices`, with the exceptions that torch makes
  itself (numbers without dimension; CPU indices).
* A hidden sync is recorded with the place in fedsynth that made it: a number, a list or a copy read
  back from the GPU, a choice of rows by a mask, a comparison that decides something.

What it cannot show: kernels that a GPU lacks, its rounding, its speed, its memory.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from cached import cleared
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import fedsynth
from fedsynth.experiment import server_session
from fedsynth.methods.gs_wgan import gs_wgan
from fedsynth.methods.pate.datalens import teachers
from fedsynth.nn import compute_dtype

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
MOVES = str(Path(fedsynth.__file__).parent / "core" / "device.py")  # on behalf of its callers
PACKAGE = str(Path(fedsynth.__file__).parent)
_READS = {  # operations whose result the CPU waits for
    "aten._local_scalar_dense.default",
    "aten.nonzero.default",
    "aten.masked_select.default",
    "aten._unique2.default",
    "aten.unique_dim.default",
    "aten.unique_consecutive.default",
    "aten.equal.default",
    "aten.is_nonzero.default",
    "aten.repeat_interleave.Tensor",
    "aten.bincount.default",
    "aten._linalg_check_errors.default",
}
_CHECKED_ON_CPU = {"one_hot"}  # looks at its numbers on a CPU only
_INDEXED = {"aten.index.Tensor", "aten.index_put_.default", "aten.index_put.default"}
_MASKS = (torch.bool, torch.uint8)
_LABELS: dict[int, StorageWeakRef] = {}  # of storages on the GPU; kept, as caches keep tensors


class MixedDevices(RuntimeError):
    """An operation on tensors of two devices."""


class Pretended:
    """What happened on the pretended GPU."""

    def __init__(self) -> None:
        self.syncs: Counter[str] = Counter()  # by "module:function"
        self.operations = 0  # with a tensor on the GPU

    def on_gpu(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies on the pretended GPU."""
        storage = _storage(tensor)
        if storage is None:
            return False
        known = _LABELS.get(storage._cdata)
        return known is not None and not known.expired()

    def put(self, result: Any) -> Any:
        """Label every tensor in a result as on the GPU."""
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and (storage := _storage(tensor)) is not None:
                _LABELS[storage._cdata] = StorageWeakRef(storage)
        return result

    def take(self, result: Any) -> Any:
        """Remove the labels of fresh CPU results, whose memory may have been labelled before."""
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and (storage := _storage(tensor)) is not None:
                _LABELS.pop(storage._cdata, None)
        return result

    def sync(self, what: str) -> None:
        """Record a sync and the place in fedsynth that made it."""
        self.syncs[f"{_place()} ({what})"] += 1

    def places(self) -> set[str]:
        """The functions that made a sync."""
        return {place.partition(" ")[0] for place in self.syncs}


def _storage(tensor: torch.Tensor) -> Any:
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    if tensor.layout is not torch.strided or tensor.is_meta:
        return None
    with torch._C.DisableTorchFunction():
        return tensor.untyped_storage()


def _place() -> str:
    frame: Any = sys._getframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(PACKAGE) and file != MOVES:
            module = Path(file).relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
            return f"{module}:{_function(frame.f_code.co_qualname)}"
        frame = frame.f_back
    return "outside:fedsynth"


def _function(name: str) -> str:
    """The name of a function without those of expressions inside it."""
    return ".".join(part for part in name.split(".") if not part.startswith("<"))


class _Dispatch(TorchDispatchMode):
    """Below autograd: checks the devices of each operation and labels its results."""

    def __init__(self, seen: Pretended) -> None:
        super().__init__()
        self.seen = seen
        self.moving: str | None = None  # the device of results while a tensor is moved or made
        self.inside = False  # a function of torch that was given tensors on the GPU
        self.silent = False  # a function that waits for numbers on a CPU only

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, seen = kwargs or {}, self.seen
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        known = {id(x): seen.on_gpu(x) for x in tensors}
        gpu = [x for x in tensors if known[id(x)]]
        name = str(func)
        before = {s._cdata for x in tensors if (s := _storage(x)) is not None}
        result = func(*args, **kwargs)
        if self.moving is None and gpu:
            self._check(name, args, tensors, known)
        if self.moving is None:
            to_gpu = bool(gpu) or (self.inside and not tensors)
        else:
            to_gpu = self.moving == "cuda"
        for x in tree_leaves(result):
            if not isinstance(x, torch.Tensor):
                continue
            storage = _storage(x)
            if storage is None or storage._cdata in before:
                continue  # a view or the same tensor keeps its label
            (seen.put if to_gpu else seen.take)(x)
        return result

    def _check(
        self, name: str, args: Any, tensors: list[torch.Tensor], known: dict[int, bool]
    ) -> None:
        seen = self.seen
        seen.operations += 1
        if name in _READS and not self.silent:
            seen.sync(name.split(".")[1])
        if name == "aten.copy_.default":
            target, source = args[0], args[1]
            if known[id(source)] and not known[id(target)]:
                seen.sync("copy to the CPU")
            return
        others = [x for x in tensors if not known[id(x)] and x.dim() and not x.is_meta]
        if name in _INDEXED:
            indices = [x for x in args[1] if x is not None]
            if any(x.dtype in _MASKS for x in indices):
                seen.sync("rows by a mask")
            if known[id(args[0])]:
                if any(not known[id(x)] for x in indices):
                    seen.sync("rows by an index on the CPU")
                others = [x for x in others if not any(x is index for index in indices)]
        if others:
            where = ["cuda" if known[id(x)] else "cpu" for x in tensors]
            raise MixedDevices(f"{name}: tensors on {where} in {_place()}")


class _Functions(TorchFunctionMode):
    """Above autograd: answers questions about devices, and moves and makes tensors."""

    def __init__(self, dispatch: _Dispatch) -> None:
        super().__init__()
        self.dispatch, self.seen = dispatch, dispatch.seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        answer = self._question(func, args)
        if answer is not NotImplemented:
            return answer
        name = getattr(func, "__name__", "")
        if name in ("to", "cpu", "cuda") and isinstance(args[0], torch.Tensor):
            return self._moved(func, name, args, kwargs)
        if name in ("tolist", "numpy", "__array__") and self.seen.on_gpu(args[0]):
            if name != "tolist":
                raise TypeError(f"can't convert cuda:0 device type tensor to numpy in {_place()}")
            self.seen.sync("tolist")
            with torch._C.DisableTorchFunction():
                return func(*args, **kwargs)
        wanted = kwargs.get("device")
        if wanted is not None and torch.device(wanted).type in ("cuda", "cpu"):
            generator = kwargs.get("generator")
            if torch.device(wanted).type == "cuda" and generator is not None:
                raise MixedDevices(f"{name}: a CPU generator for numbers on cuda in {_place()}")
            kwargs["device"] = CPU
            with self._moving(torch.device(wanted).type):
                result = func(*args, **kwargs)
            return (self.seen.put if torch.device(wanted).type == "cuda" else self.seen.take)(
                result
            )
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        with self._inside(any(map(self.seen.on_gpu, tensors)), name):
            return func(*args, **kwargs)

    @contextlib.contextmanager
    def _inside(self, with_gpu: bool, name: str) -> Iterator[None]:
        dispatch = self.dispatch
        before = dispatch.inside, dispatch.silent
        dispatch.inside = dispatch.inside or with_gpu
        dispatch.silent = dispatch.silent or name in _CHECKED_ON_CPU
        try:
            yield
        finally:
            dispatch.inside, dispatch.silent = before

    def _question(self, func: Any, args: Any) -> Any:
        if getattr(func, "__name__", "") != "__get__":
            return self._device_number(func, args)
        with torch._C.DisableTorchFunction():
            attribute = func.__self__.__name__
            if attribute not in ("device", "is_cuda", "is_cpu") or not self.seen.on_gpu(args[0]):
                return NotImplemented
        return {"device": GPU, "is_cuda": True, "is_cpu": False}[attribute]

    def _device_number(self, func: Any, args: Any) -> Any:
        if getattr(func, "__name__", "") == "get_device" and self.seen.on_gpu(args[0]):
            return 0
        return NotImplemented

    @contextlib.contextmanager
    def _moving(self, device: str) -> Iterator[None]:
        before, self.dispatch.moving = self.dispatch.moving, device
        try:
            yield
        finally:
            self.dispatch.moving = before

    def _moved(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        tensor, rest = args[0], list(args[1:])
        wanted = {"cpu": CPU, "cuda": GPU}.get(name) or kwargs.pop("device", None)
        if name == "to":
            if rest and isinstance(rest[0], str | torch.device | int):
                wanted = rest.pop(0)
            elif rest and isinstance(rest[0], torch.Tensor):
                other = rest.pop(0)
                wanted = GPU if self.seen.on_gpu(other) else other.device
                rest.insert(0, other.dtype)
            elif rest and rest[0] is None:
                rest.pop(0)
        wanted = None if wanted is None else torch.device(wanted)
        if wanted is not None and wanted.type not in ("cpu", "cuda"):
            return func(*args, **kwargs, **({"device": wanted} if name == "to" else {}))
        here = self.seen.on_gpu(tensor)
        there = here if wanted is None else wanted.type == "cuda"
        if tensor.is_meta:
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        if here and not there:
            self.seen.sync("copy to the CPU")
        options = {k: v for k, v in kwargs.items() if k not in ("memory_format",)}
        if here != there:
            with self._moving("cuda" if there else "cpu"):
                tensor = tensor.clone()
        rest = [r for r in rest if isinstance(r, torch.dtype)]
        dtype = options.pop("dtype", None) or (rest[0] if rest else None)
        copy = bool(options.pop("copy", False)) and here == there
        if dtype is not None or copy:
            tensor = torch.Tensor.to(tensor, dtype or tensor.dtype, copy=copy)
        return tensor


class _InThisThread:
    """An executor without threads: what is pretended holds in one thread."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> _InThisThread:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[..., Any], *items: Any) -> list[Any]:
        """Run the function on all items now."""
        return list(map(function, *items))

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run the function now."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


@contextlib.contextmanager
def pretended_gpu(*, bfloat16: bool = False) -> Iterator[Pretended]:
    """Pretend that this machine has one GPU, in this thread."""
    seen = Pretended()
    dispatch = _Dispatch(seen)
    with (
        mock.patch.object(torch.cuda, "is_available", return_value=True),
        mock.patch.object(torch.cuda, "device_count", return_value=1),
        mock.patch.object(torch.cuda, "is_bf16_supported", return_value=bfloat16),
        mock.patch.object(server_session, "ThreadPoolExecutor", _InThisThread),
        mock.patch.object(gs_wgan, "ThreadPoolExecutor", _InThisThread),
        mock.patch.object(teachers, "ThreadPoolExecutor", _InThisThread),
        mock.patch.dict(os.environ),
        cleared(compute_dtype, "_has_bfloat16"),
        _arithmetic_restored(),
        dispatch,
        _Functions(dispatch),
    ):
        yield seen


@contextlib.contextmanager
def _arithmetic_restored() -> Iterator[None]:
    """Put back torch's settings of this process, which a run on a GPU changes."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    flags = cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    strict = torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(strict)
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = flags

# SPDX-License-Identifier: Apache-2.0
"""save(), wait(), marker(), prepare(): the calls of a training program."""
from __future__ import annotations

import ctypes
import errno
import os
import pickle
import sys
import time
from typing import IO, Any, Iterable

import torch

from . import _levels, _process, _records, _track
from . import _library as lib
from ._save import ON_ERROR, Save, below, level_of, saved
from ._start import FAULTS, FOR_TORCH, Plan, Range, milliseconds, start

def save(
    obj: Any, path: str | os.PathLike[str] | IO[bytes], *, lazy: bool | str = True, format: str | None = None, mode: int = 0o666,
    track: Any = None, on_error: str = "warn", max_block: float | None = None, refer: bool | None = None, pickle_module: Any = pickle,
    pickle_protocol: int = 2
) -> Save:  # fmt: skip
    """Saves as torch.save does, and returns at once: parameters and optimizer state are copied beside the next forward and backward.
    Returns a Save, whose result() waits until the file is there, and raises OSError if it failed. Raises what torch.save raises of an
    object or a path. To an open file (io.BytesIO) torch.save writes, before this returns.

    lazy: True: tensors of a known optimizer are copied later, all else before this returns. "all": everything is copied later, and the
    caller calls fence() before any of it changes. False: returns when the file is there.
    format: "torch" or "safetensors" (obj: a dict of tensors); None: by the suffix of `path`.
    track: a module, optimizer or tensors which also change only in an optimizer's step.
    on_error: "warn", or "raise" at the next call of this package, the next step included.
    max_block: seconds that a fence may wait for this save before it fails.
    refer: take unchanged tensors from the last file of this pattern of path; None: where much of the state is frozen.
    mode: permissions of the file, less the umask (0o666). pickle_module, pickle_protocol: as of torch.save.
    """
    if on_error not in ON_ERROR:
        raise ValueError(f"on_error is {on_error!r}, not one of {', '.join(ON_ERROR)}")
    if format not in (None, "torch", "safetensors"):
        raise ValueError(f"format is {format!r}, not torch or safetensors")
    if lazy not in (True, False, "all"):
        raise ValueError(f'lazy is {lazy!r}, not True, False or "all"')
    _process.current().tell()
    if hasattr(path, "write"):
        if format == "safetensors":
            raise TypeError(f"safetensors are saved to a path, not to a {type(path).__name__}")
        _records.plain_save(obj, path, pickle_module, pickle_protocol)
        return saved(path, on_error)
    if format == "safetensors" or format is None and str(os.fspath(path)).endswith(".safetensors"):
        from . import safetensors

        return safetensors.save(obj, path, lazy=lazy, mode=mode, track=track, on_error=on_error, max_block=max_block, refer=refer)
    plan = Plan(lazy, mode, track, on_error, max_block, refer)
    return save_torch(obj, path, plan, pickle_module, pickle_protocol)


def save_torch(obj, path, plan, pickle_module=pickle, pickle_protocol=2, disable_byteorder_record=False):
    arguments = (pickle_module, pickle_protocol, True, disable_byteorder_record)
    try:
        lib.library()
        target = _records.text_of(path)
        archive = _records.archive_name(target)
        records = _records.records_of(obj, pickle_module, pickle_protocol, disable_byteorder_record)
        records = [(name, data if isinstance(data, bytes) else Range(data)) for name, data in records]
    except (_records.NotCovered, lib.NoLibrary) as why:
        return save_plainly(why, obj, path, arguments, plan)
    try:
        return start(target, plan, records, lambda *given: begin_zip(archive, records, *given))
    except OSError as error:
        if error.errno not in FOR_TORCH:
            raise
        return save_plainly(error, obj, path, arguments, plan)


def save_plainly(why, obj, path, arguments, plan):
    return _records.save_plainly(why, lambda: _records.plain_save(obj, path, *arguments), path, plan.on_error)


def begin_zip(archive, items, path, sources, options, handle):
    records = (lib.ZipRecord * len(sources))()
    names = [key.encode() for key, _ in items]
    for record, name, source in zip(records, names, sources):
        record.name, record.source = name, source
    if not _records.with_crc():
        options.flags |= lib.SAVE_NO_CRC
    zip_options = lib.ZipOptions(archive=archive.encode(), alignment=_records.alignment())
    code = lib.library().cairn_save_zip(
        _process.current().open(), os.fsencode(path), records, len(sources), zip_options, options, ctypes.byref(handle)
    )
    lib.check(code, path)


def marker(
    path: str | os.PathLike[str], data: str | bytes, after: Iterable[Save] | None = None, *, replace: bool = True, mode: int = 0o666,
    on_error: str = "warn", max_block: float | None = None
) -> Save:  # fmt: skip
    """Writes a small file when the saves that it speaks of have their names: `latest`, a ".metadata", "done". Returns a Save at once; its
    result() raises OSError if the marker, or one of these saves, failed. When all ranks are to have saved: each rank calls result() of its
    own saves, then torch.distributed.barrier(), and one rank calls marker().

    after: Save objects; None: every save of this process that is under way, or failed below the marker's directory since it was last
    written. One of them fails: so does the marker, and an older one stays. replace=False: fails if the name is there.
    max_block: seconds that this call may wait for the filesystem.
    """
    process = _process.current()
    process.tell()
    path = os.fspath(path)
    if "\0" in os.fsdecode(path):
        raise ValueError("embedded null byte")
    data = data.encode() if isinstance(data, str) else bytes(data)
    after = process.before_marker(path) if after is None else list(after)
    result = Save(path, on_error, max_block)
    result.is_marker = True
    broken = next((save for save in after if save.error is not None and save.handle is None), None)
    handles = [save.handle for save in after if save.handle is not None]
    try:
        if broken is not None:
            raise OSError(errno.ECANCELED, f"{broken.path} was not saved: {broken.error.strerror}", path)
        array = (ctypes.c_void_p * len(handles))(*handles)
        flags, limit = 0 if replace else lib.SAVE_EXCLUSIVE, milliseconds(max_block)
        flags |= lib.SAVE_CLEAN if process.is_first_marker_in(os.path.dirname(result.place)) else 0
        options = lib.SaveOptions(mode=mode, flags=flags, after=array, after_count=len(handles), max_block_ms=limit)
        code = lib.library().cairn_save_marker(process.open(), os.fsencode(path), data, len(data), options, ctypes.byref(result.slot))
        lib.check(code, path)
    except lib.NoLibrary as why:
        return _records.save_plainly(why, lambda: write_marker(os.fsdecode(path), data, replace, mode), path, on_error)
    except OSError as error:
        if error.errno not in FAULTS | {errno.ECANCELED}:
            raise
        result.fail(error)
        process.end(result)
        return result
    result.begun()
    result.keep = after
    process.add(result)
    return result


def write_marker(path, data, replace, mode):
    """Without the library: the saves that it speaks of are there."""
    hidden = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.cairn-{os.getpid()}-0")
    with open(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(data)
    try:
        (os.replace if replace else os.link)(hidden, path)
    finally:
        if os.path.lexists(hidden):
            os.unlink(hidden)


def wait(path: str | os.PathLike[str] | None = None, level: str = "published", timeout: float | None = None) -> None:
    """Waits for the saves of this process (below `path`: a file or a directory; None: all of them) to reach the level: "copied",
    "published", "nvme" (power loss does not take it), "remote" (in the object store). A progress bar is shown on a terminal.
    TimeoutError: `timeout` seconds have passed. Raises what a save below `path` failed with, if no call has raised it yet (a warning is
    none) and no later save of that name has succeeded."""
    wanted = level_of(level)
    process = _process.current()
    deadline = None if timeout is None else time.monotonic() + timeout
    with _process.lock():
        saves = [save for save in process.pending if save.is_below(path)]
        saved = [name for name in process.saved if below(name, path)]
    bar = _levels.Bar(lambda: _levels.line_of_saves(saves)) if sys.stderr.isatty() else None
    try:
        reached = _process.wait_all(saves, min(wanted, lib.PUBLISHED), deadline, bar and bar.show)
    finally:
        if bar:
            bar.end()
    if not reached:
        raise TimeoutError(errno.ETIMEDOUT, f"not there after {timeout} s",
                           next(save.path for save in saves if not save.over(lib.PUBLISHED)))
    raise_first(process, path)
    if wanted > lib.PUBLISHED:
        _levels.wait_stored([*(save.place for save in saves), *saved], path, wanted, deadline)


def raise_first(process, path):
    with _process.lock():
        failed = [save for save in process.unraised.values() if save.is_below(path)]
        for save in failed:
            save.told = True
            process.forget_error(save)
    if failed:
        raise failed[0].error


def prepare(*sources: torch.nn.Module | torch.optim.Optimizer | torch.Tensor | int) -> None:
    """prepare(model, optimizer): takes the memory that device tensors pass through, once and before the training, so that no save has to.
    A number: that many bytes. What optimizers come to hold with their first step (two more copies for Adam) is counted."""
    process = _process.current()
    need = 0
    for source in sources:
        if isinstance(source, int):
            need += source
            continue
        seen = {}
        for tensor in _track.plain_tensors(source):
            if tensor.device.type == "cuda":
                seen[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        factor = 2 if isinstance(source, torch.optim.Optimizer) and not source.state else 1
        need += factor * sum(seen.values())
    lane = process.open()
    if need:
        _process.wait_all(list(process.pending), lib.PUBLISHED, None)
        lib.check(lib.library().cairn_lane_prepare(lane, need))


def stats() -> dict[str, int]:
    """The figures of the lane: a dict (see cairn_lane_stats in <cairn/cairn.h>)."""
    found = lib.LaneStats()
    if _process.current().lane is not None:
        lib.check(lib.library().cairn_lane_stats(_process.current().lane, ctypes.byref(found)))
    return {name: getattr(found, name) for name, _ in lib.LaneStats._fields_ if name != "size"}

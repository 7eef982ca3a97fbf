# SPDX-License-Identifier: Apache-2.0
"""The fence: waits until no lazy save reads its sources, before they change. It is called by itself in all the places of install()."""
from __future__ import annotations

import atexit
import errno
import functools
import multiprocessing.util
import os
import signal
import threading
import time

import torch
from torch.optim.optimizer import _global_optimizer_pre_hooks, register_optimizer_step_pre_hook

from . import _library as lib
from . import _log, _process, _track

# Functions besides step() that change parameters or state: the fence runs before each.
WAITS = (
    (torch.optim.Optimizer, "load_state_dict"),
    (torch.nn.Module, "load_state_dict"),
    (torch.nn.Module, "_apply"),
    (torch.utils, "swap_tensors"),  # later writes to the memory of a parameter raise the version of another tensor
)
# These free or move the memory of a storage that we hold a reference to, or write to it, and raise no version of a tensor.
MOVES = (
    (torch.UntypedStorage, "resize_"),
    (torch.UntypedStorage, "_share_fd_cpu_"),
    (torch.UntypedStorage, "_share_filename_cpu_"),
    (torch.UntypedStorage, "copy_"),
    (torch.UntypedStorage, "fill_"),
    (torch.UntypedStorage, "__setitem__"),
    (torch.Tensor, "resize_"),
    (torch.Tensor, "resize_as_"),
    (torch.Tensor, "set_"),
)

_installed = False


def fence(timeout: float | None = None) -> None:
    """Returns when the parameters and the optimizer's state may change: the copies of all lazy saves are done, or (CUDA) what comes on the
    current streams is ordered behind them. A save that is not that far after its max_block fails, and the fence returns.
    TimeoutError: `timeout` seconds have passed, and sources are still read. Errors of saves are told here."""
    process = _process.current()
    if process.reading:
        run_fence(process, None if timeout is None else time.monotonic() + timeout)
    process.tell()


def run_fence(process, deadline):
    begin = time.monotonic()
    with _process.lock():
        while process.reading:
            saves = [save for save in process.pending if save.reading]
            code = one_fence(process, saves)
            if code == 0:
                for save in saves:
                    save.settle()
                process.look()
                return
            if code not in (-errno.ETIMEDOUT, -errno.EBUSY):
                raise lib.error_of(code)
            give_up_late(saves, time.monotonic() - begin)
            process.look()
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, "lazy saves still read their sources")


def one_fence(process, saves):
    """A slice of waiting: 0 when no source is read any more, or coming work of the streams is ordered behind."""
    streams = current_streams(saves)
    code = lib.library().cairn_lane_fence(process.lane, streams, len(streams), int(_process.SLICE * 1000))
    if code == -errno.EBUSY:  # the graph that is captured now runs later, without a hook
        process.captured = True
        _log.once("a CUDA graph captures the update: its replays call no fence, so saves are made at once from now on")
        waited = [save.wait_slice(lib.COPIED) for save in saves]
        code = 0 if all(waited) else code
    return code


def current_streams(saves):
    """The streams that an update is enqueued on, for each device that is read."""
    devices = sorted({device for save in saves for device in save.devices})
    return (lib.Stream * len(devices))(*((device, torch.cuda.current_stream(device).cuda_stream) for device in devices))


def give_up_late(saves, seconds):
    for save in saves:
        if save.reading and seconds >= save.max_block:
            save.give_up(f"its copy kept the training for more than {save.max_block} s")


def before_step(optimizer, args, kwargs):
    """The global pre-hook of optimizers. A closure is given back with a fence behind it."""
    _track.note_step(optimizer)
    process = _process.current()
    given = behind_closure(args, kwargs)
    if (process.reading or process.untold) and not (given and changes_nothing_before_closure(optimizer)):
        fence()
    return given


def changes_nothing_before_closure(optimizer):
    """So the fence may come behind the closure, where forward and backward run (those of Lightning always do). Of optimizers that are not
    torch's, and of hooks that come after ours, that is not known."""
    hooked = optimizer._optimizer_step_pre_hooks or len(_global_optimizer_pre_hooks) > 1
    return type(optimizer).__module__.startswith("torch.optim.") and not hooked


def behind_closure(args, kwargs):
    """The arguments of step() with a fence at the end of the closure; None: there is no closure."""
    if len(args) > 1 and callable(args[1]):
        return (args[0], waiting_behind(args[1]), *args[2:]), kwargs
    if callable(kwargs.get("closure")):
        return args, {**kwargs, "closure": waiting_behind(kwargs["closure"])}
    return None


def waiting_behind(closure):
    @functools.wraps(closure)
    def wrapper(*args, **kwargs):
        result = closure(*args, **kwargs)
        process = _process.current()
        if process.reading or process.untold:
            fence()
        return result

    return wrapper


# a compiled step calls it each time; as torch.compiler.disable() sets it, without importing dynamo
before_step._torchdynamo_disable = True


def waiting(original):
    """The function, with a fence before it."""

    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        if _process.current().reading:
            fence()
        return original(*args, **kwargs)

    return wrapper


def moving(original):
    """The function of a storage or a tensor, with a fence before it if a save reads that memory."""

    @functools.wraps(original)
    def wrapper(self, *args, **kwargs):
        process = _process.current()
        if process.reading and is_read(process, self):
            copied_by_host(process)
        return original(self, *args, **kwargs)

    return wrapper


def is_read(process, subject):
    if isinstance(subject, torch.Tensor):
        if type(subject) not in (torch.Tensor, torch.nn.Parameter):
            return True
        subject = subject.untyped_storage()
    with _process.lock():
        return any(subject._cdata in save.storages for save in process.pending if save.reading)


def copied_by_host(process):
    """Waits until the copies are done: the memory is freed now, not in the order of a stream."""
    with _process.lock():
        saves = [save for save in process.pending if save.reading]
    _process.wait_all(saves, lib.COPIED, None)


def before_fork():
    if _process.current().reading:
        run_fence(_process.current(), None)


def on_sigterm(number, frame):
    """As without a handler, but that the saves get their names first."""
    _process.at_exit()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def watch_end():
    """Called by each save. SIGTERM: only where the program has no handler of its own, which may know better. A child of multiprocessing
    that was forked ends without atexit."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, on_sigterm)
    process = _process.current()
    if not process.finalizer and multiprocessing.parent_process() is not None:
        process.finalizer = multiprocessing.util.Finalize(None, _process.at_exit, exitpriority=0)


def install():
    """Once a process, when the package is imported."""
    global _installed
    if _installed:
        return
    _installed = True
    register_optimizer_step_pre_hook(before_step)
    for owner, name in WAITS:
        setattr(owner, name, waiting(getattr(owner, name)))
    for owner, name in MOVES:
        setattr(owner, name, moving(getattr(owner, name)))
    os.register_at_fork(before=before_fork, after_in_child=_process.after_fork)
    atexit.register(lambda: _process.at_exit())

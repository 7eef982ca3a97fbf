# SPDX-License-Identifier: Apache-2.0
"""Wrappers that call the gate for acts without an audit event. They are put in place once, on the classes and modules where all callers
look, and do nothing while the gate is off."""
import functools
import multiprocessing.connection
import multiprocessing.queues
import multiprocessing.synchronize
import os
import socket
import ssl
import stat as kinds

import torch

from . import _gate, _job, _process

STANDARD = (1, 2)  # prints are not held back
_installed = False


def told(owner, name, tell):
    """The function, behind tell(*its arguments)."""
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        tell(*args, **kwargs)
        return original(*args, **kwargs)

    wrapper.cairnfs_original = original
    setattr(owner, name, wrapper)


def gated(*args, **kwargs):
    return _gate._on and _gate.is_concerned()


# --- files


def may_wait(path, dir_fd, changes):
    return _gate._on and not getattr(_process.quiet, "on", False) and not _gate.is_free(path, dir_fd, changes) and _gate.is_concerned()


def look(path, *args, dir_fd=None, **kwargs):
    if may_wait(path, dir_fd, False):
        _gate.before(path, _gate.HERE if dir_fd is None else dir_fd, changes=False)


def change(path, *args, dir_fd=None, **kwargs):
    if isinstance(path, (str, bytes, os.PathLike)) and may_wait(path, dir_fd, True):
        _gate.before(path, _gate.HERE if dir_fd is None else dir_fd, changes=True)


def change_by_method(self, path=None, *args, **kwargs):
    change(path)


def opened(original):
    """os.open: its event does not tell `dir_fd`."""

    @functools.wraps(original)
    def wrapper(path, flags, mode=0o777, *, dir_fd=None):
        changes = bool(flags & _gate.WRITES)
        if may_wait(path, dir_fd, changes):
            _gate.before(path, _gate.HERE if dir_fd is None else dir_fd, changes=changes)
        with _process.quietly():
            return original(path, flags, mode, dir_fd=dir_fd)

    return wrapper


def written(number, *args):
    if gated() and number not in STANDARD:
        mode = os.fstat(number).st_mode
        if kinds.S_ISFIFO(mode) or kinds.S_ISSOCK(mode):
            _gate.before_message()


def ended(*args):
    """os._exit runs nothing else."""
    _process.wait_before_end()


# --- messages


def message(*args, **kwargs):
    _gate.before_message()


def meeting(*args, **kwargs):
    _gate.before_meeting()


def regrouping(owner, name):
    """What init_process_group() calls when the group is there, and destroy_process_group() first, by whichever name a program calls them."""
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def wrapper(group):
        original(group)
        if group is None:
            _job.group_is_gone()
        elif _gate._on:
            _job.group_is_new()

    setattr(owner, name, wrapper)


def quiet(owner, name):
    """Messages that this function sends do not wait: they carry no news of a save."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        with _process.quietly():
            return original(*args, **kwargs)

    setattr(owner, name, wrapper)


def install():
    """Once a process."""
    global _installed
    if _installed:
        return
    _installed = True
    watch_files()
    watch_messages()
    if torch.distributed.is_available():
        watch_ranks(torch._C._distributed_c10d)


def watch_files():
    for name in ("stat", "lstat", "access", "readlink"):
        told(os, name, look)
    for name in ("mknod", "mkfifo"):
        told(os, name, change)
    os.open = opened(os.open)
    told(os, "_exit", ended)
    for name in ("write", "writev"):
        told(os, name, written)
    told(torch._C.PyTorchFileWriter, "__init__", change_by_method)
    for owner in (torch._C.ScriptModule, torch._C.ScriptFunction):
        for name in ("save", "_save_for_mobile"):
            told(owner, name, change_by_method)
    told(torch, "from_file", change)
    told(torch.UntypedStorage, "from_file", change)


def watch_messages():
    for name in ("send", "sendall", "sendto", "sendmsg", "sendfile", "connect"):
        told(socket.socket, name, message)
    for name in ("send", "sendall", "write"):
        told(ssl.SSLSocket, name, message)
    told(multiprocessing.connection.Connection, "_send_bytes", message)
    for owner, name in ((multiprocessing.queues.Queue, "put"), (multiprocessing.queues.JoinableQueue, "put"),
                        (multiprocessing.synchronize.Event, "set"), (multiprocessing.synchronize.Condition, "notify")):
        told(owner, name, message)
    # Workers of a DataLoader get indices of samples, each step.
    quiet(torch.utils.data.dataloader._MultiProcessingDataLoaderIter, "_try_put_index")


def watch_ranks(c10d):
    """Methods of torch's classes: it does not matter by which name a program calls them."""
    for name in ("add", "append", "barrier", "compare_set", "delete_key", "multi_set", "queue_push", "set"):
        told(c10d.Store, name, message)
    for name in ("TCPStore", "FileStore"):
        told(getattr(c10d, name), "__init__", message)
    told(c10d.ProcessGroup, "barrier", meeting)
    told(c10d.ProcessGroup, "monitored_barrier", meeting)
    regrouping(torch.distributed.distributed_c10d, "_update_default_pg")
    if hasattr(c10d, "ProcessGroupGloo"):
        told(c10d.ProcessGroupGloo, "monitored_barrier", meeting)

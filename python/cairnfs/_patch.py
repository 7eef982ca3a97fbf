# SPDX-License-Identifier: Apache-2.0
"""install(): torch.save and torch.load go through the lane, with no line of the program changed."""
from __future__ import annotations

import os
import pickle

import torch

from . import _api, _gate, _imports, _load, _log, _process, _records, _settle
from . import _library as lib

_installed = None  # "eager" or "lazy"
_load_of_torch = _load.plain_load


def save(
    obj, f, pickle_module=pickle, pickle_protocol=torch.serialization.DEFAULT_PROTOCOL, _use_new_zipfile_serialization=True,
    _disable_byteorder_record=False
):  # fmt: skip
    """torch.save through the lane of CairnFS: https://pytorch.org/docs/stable/generated/torch.save.html"""
    if not isinstance(f, (str, os.PathLike)) or not _use_new_zipfile_serialization:
        _records.plain_save(obj, f, pickle_module, pickle_protocol, _use_new_zipfile_serialization, _disable_byteorder_record)
        return
    lazy = _installed == "lazy"
    if lazy:
        _process.current().raise_untold(lambda save: True)
        why = _gate.must_wait(f)
        if why:
            lazy = False
            _log.once(f"torch.save returns when the file is there: {why}")
    plan = _api.Plan(lazy=lazy, on_error="order")
    _api.save_torch(obj, f, plan, pickle_module, pickle_protocol, _disable_byteorder_record)


def load(f, map_location=None, pickle_module=None, *, weights_only=None, mmap=None, **pickle_load_args):
    """torch.load, read by several threads: https://pytorch.org/docs/stable/generated/torch.load.html"""
    if isinstance(f, (str, os.PathLike)) and pickle_module is None and not pickle_load_args and not maps_by_default(mmap):
        known = is_weights_only(weights_only)
        if known is not None:
            return _load.load(f, map_location, weights_only=known)
    return _load.plain_load(f, map_location, pickle_module, weights_only=weights_only, mmap=mmap, **pickle_load_args)


def maps_by_default(mmap):
    if mmap is not None:
        return mmap
    config = getattr(getattr(torch.utils, "serialization", None), "config", None)
    return bool(config is not None and config.load.mmap)


def is_weights_only(given):
    """None: torch decides, and warns of it."""
    forced = [os.environ.get(f"TORCH_FORCE_{kind}WEIGHTS_ONLY_LOAD", "").lower() in _load.FORCE for kind in ("", "NO_")]
    if forced[1] and (given is None or forced[0]):
        return None
    if given is None:
        decide = getattr(torch.serialization, "_default_to_weights_only", None)  # torch 2.6
        return decide(None) if decide else None
    return bool(given)


def install(lazy: bool | None = None) -> None:
    """torch.load reads by several threads (cairnfs.load). torch.save returns when the file is there (eager). lazy, or CAIRN_LAZY=1: it
    returns at once, and later acts of the program on files wait for it (see docs/lazy-saves.md). The same for other ways to save:
    safetensors, Lightning and the Trainer of transformers, now or when they are imported. Where nodes went back because another one was
    lost (-o nodes), it first waits until this node takes changes. OSError: libcairn cannot be loaded, or that takes too long; nothing is
    changed then."""
    global _installed
    lib.library()
    if _installed is None:
        _settle.settle()
    if lazy is None:
        lazy = os.environ.get("CAIRN_LAZY", "") not in ("", "0")
    _installed = "lazy" if lazy else "eager"
    torch.save = torch.serialization.save = save
    torch.load = torch.serialization.load = load
    _gate.turn(bool(lazy))
    _imports.turn(bool(lazy))


def uninstall() -> None:
    """torch.save and torch.load are torch's own again. Fences stay: saves may be under way."""
    global _installed
    if _installed is None:
        return
    _installed = None
    torch.save = torch.serialization.save = _records.plain_save
    torch.load = torch.serialization.load = _load_of_torch
    _gate.turn(False)
    _imports.turn(None)

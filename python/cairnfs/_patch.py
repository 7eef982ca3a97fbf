# SPDX-License-Identifier: Apache-2.0
"""install(): torch.save goes through the lane, with no line of the program changed."""
from __future__ import annotations

import os
import pickle

import torch

from . import _api, _gate, _imports, _log, _process, _records
from . import _library as lib

_installed = None  # "eager" or "lazy"


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


def install(lazy: bool | None = None) -> None:
    """torch.save returns when the file is there (eager). lazy, or CAIRN_LAZY=1: it returns at once, and later acts of the program on
    files wait for it (see docs/lazy-saves.md). The same for other ways to save: safetensors, Lightning and the Trainer of transformers,
    now or when they are imported. OSError: libcairn cannot be loaded; nothing is changed then."""
    global _installed
    lib.library()
    if lazy is None:
        lazy = os.environ.get("CAIRN_LAZY", "") not in ("", "0")
    _installed = "lazy" if lazy else "eager"
    torch.save = torch.serialization.save = save
    _gate.turn(bool(lazy))
    _imports.turn(bool(lazy))


def uninstall() -> None:
    """torch.save is torch's own again. Fences stay: saves may be under way."""
    global _installed
    if _installed is None:
        return
    _installed = None
    torch.save = torch.serialization.save = _records.plain_save
    _gate.turn(False)
    _imports.turn(None)

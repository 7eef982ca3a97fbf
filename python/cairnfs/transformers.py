# SPDX-License-Identifier: Apache-2.0
"""The Trainer of transformers through the lane: cairnfs.transformers.install() before it, or
Trainer(callbacks=[cairnfs.transformers.Callback()]).

While a checkpoint is saved, torch.save and safetensors' save_file are lazy. trainer_state.json is a marker behind all of its files: a
directory without one is no checkpoint, and the newest that has one is resumed from. Older checkpoints are removed when it is there.
"""
import contextlib
import functools
import os
import shutil
import sys
import tempfile
import threading

import safetensors.torch as safetensors_torch
import torch
import transformers
import transformers.trainer as theirs
from transformers.trainer_callback import TrainerCallback, TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint, sort_checkpoints

from . import _later, _process, _ranks
from . import safetensors as ours
from ._api import marker, save

STATE = "trainer_state.json"
TRAINER = ("_save_checkpoint", "_load_best_model", "_finalize_training", "train")
MODULE = ("rotate_checkpoints", "get_last_checkpoint")

_later_acts = _later.make()
_one = threading.RLock()  # held by the thread that saves a checkpoint: meanwhile functions of other modules are replaced
_originals = {}
_options = {}


class Callback(TrainerCallback):
    """install() of a program's own: options of cairnfs.save()."""

    def __init__(self, **options):
        install(**options)


def install(**options):
    """Every Trainer saves through the lane. options: of cairnfs.save()."""
    _options.update(options)
    if _originals:
        return
    missing = [name for name in TRAINER if not hasattr(theirs.Trainer, name)] + [name for name in MODULE if not hasattr(theirs, name)]
    if missing:
        raise ImportError(f"transformers {transformers.__version__} has no {', '.join(missing)} in its trainer: see docs/lazy-saves.md for a version")
    for name in TRAINER:
        _originals[name] = getattr(theirs.Trainer, name)
    theirs.Trainer._save_checkpoint = save_checkpoint
    for name in TRAINER[1:3]:
        setattr(theirs.Trainer, name, settled(_originals[name], before=True))
    theirs.Trainer.train = settled(_originals["train"], before=False)
    rename("get_last_checkpoint", get_last_checkpoint, last_checkpoint)


def uninstall():
    for name, original in _originals.items():
        setattr(theirs.Trainer, name, original)
    if _originals:
        rename("get_last_checkpoint", last_checkpoint, get_last_checkpoint)
    _originals.clear()
    _options.clear()


def rename(name, old, new):
    """In all modules that have imported it."""
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is old and module.__name__ != __name__:
            setattr(module, name, new)


def settled(original, before):
    """The function looks at checkpoints, or its caller does: all names are waited for."""

    @functools.wraps(original)
    def wrapper(*arguments, **keywords):
        if before:
            settle()
        result = original(*arguments, **keywords)
        if not before:
            settle()
            _process.current().tell()
        return result

    return wrapper


def settle():
    """Waits until all saves of this process, and the markers that it owes for all ranks, have their names or have failed, and does what
    comes after."""
    _later_acts.settle()
    _ranks.wait()
    _later_acts.settle()


def is_whole(directory):
    return os.path.exists(os.path.join(directory, STATE))


def last_checkpoint(directory):
    """The newest checkpoint below `directory` that is whole, or None."""
    settle()
    numbers = {}
    for name in os.listdir(directory):
        prefix, _, number = name.rpartition("-")
        if prefix == PREFIX_CHECKPOINT_DIR and number.isdigit() and is_whole(os.path.join(directory, name)):
            numbers[int(number)] = name
    return os.path.join(directory, numbers[max(numbers)]) if numbers else None


def save_checkpoint(self, model, trial, *arguments, **keywords):
    """In place of Trainer._save_checkpoint()."""
    original = _originals["_save_checkpoint"]
    if self.is_deepspeed_enabled or self.is_fsdp_enabled or self.args.push_to_hub:
        return original(self, model, trial, *arguments, **keywords)
    directory = os.path.join(self._get_output_dir(trial=trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
    if not self.args.should_save:
        result = original(self, model, trial, *arguments, **keywords)
        if not self.args.save_on_each_node:  # of this rank there is a state of its random numbers
            _ranks.marker_behind_all(os.path.join(directory, STATE), b"", saves_below(directory))
        return result
    with _one, _process.quietly():
        withdraw(directory)
        with lazily(directory, _ranks.marker_behind_all if not self.args.save_on_each_node else marker_behind):
            return original(self, model, trial, *arguments, **keywords)


def marker_behind(path, data, saves, then):
    marker(path, data, after=saves).add_done_callback(then)


def saves_below(directory):
    return [one for one in list(_process.current().pending) if one.is_below(directory)]


def withdraw(directory):
    """A checkpoint that is to be written over is none from now on."""
    if is_under_way(directory):
        settle()
    with contextlib.suppress(FileNotFoundError):
        os.remove(os.path.join(directory, STATE))


def is_under_way(directory):
    """Files of it have no name yet, or trainer_state.json waits for those of other ranks."""
    return bool(saves_below(directory)) or _ranks.owes(os.path.join(directory, STATE)) and not is_whole(directory)


@contextlib.contextmanager
def lazily(directory, write_behind):
    """What this thread saves is saved lazily, trainer_state.json behind it."""
    thread, saves = threading.get_ident(), []
    modules = ours.importers(safetensors_torch.save_file)
    plain = torch.save, safetensors_torch.save_file, TrainerState.save_to_json, theirs.rotate_checkpoints

    def lazy_torch(obj, f, *arguments, **keywords):
        if threading.get_ident() != thread or not isinstance(f, (str, os.PathLike)) or arguments or keywords:
            return plain[0](obj, f, *arguments, **keywords)
        saves.append(save(obj, f, format="torch", **_options))

    def lazy_file(tensors, filename, metadata=None):
        if threading.get_ident() != thread:
            return plain[1](tensors, filename, metadata)
        saves.append(ours.save(tensors, filename, metadata=metadata, **_options))

    def state_as_marker(state, path):
        if threading.get_ident() != thread or os.path.abspath(path) != os.path.abspath(os.path.join(directory, STATE)):
            return plain[2](state, path)
        with tempfile.NamedTemporaryFile() as file:
            plain[2](state, file.name)
            others = [one for one in saves_below(directory) if one not in saves]
            write_behind(path, file.read(), [*saves, *others], _later_acts.coming())

    def rotate_later(*arguments, **keywords):
        if threading.get_ident() != thread:
            return plain[3](*arguments, **keywords)
        _later_acts.do(lambda: rotate(*arguments, **keywords))

    torch.save, TrainerState.save_to_json, theirs.rotate_checkpoints = lazy_torch, state_as_marker, rotate_later
    ours.replace(plain[1], lazy_file, modules)
    try:
        yield
    finally:
        torch.save, _, TrainerState.save_to_json, theirs.rotate_checkpoints = plain
        ours.replace(lazy_file, plain[1], modules)


def rotate(output_dir, save_total_limit=None, best_model_checkpoint=None, use_mtime=False, checkpoint_prefix=PREFIX_CHECKPOINT_DIR):
    """As transformers' rotate_checkpoints(), but that the newest whole one stays, those under way are left alone, and what a death or
    a failure left goes first."""
    if save_total_limit is None or save_total_limit <= 0:
        return
    directories = [path for path in sort_checkpoints(output_dir, checkpoint_prefix, use_mtime) if not is_under_way(path)]
    whole = [path for path in directories if is_whole(path)]
    if not whole:
        return
    kept = {os.path.abspath(path) for path in (whole[-1], best_model_checkpoint) if path is not None}
    left = [path for path in directories[: directories.index(whole[-1])] if not is_whole(path)]
    surplus = len(directories) - max(save_total_limit, len(kept))
    for path in [path for path in [*left, *whole] if os.path.abspath(path) not in kept][: max(0, surplus)]:
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(path, STATE))  # first: half a directory is no checkpoint
        shutil.rmtree(path, ignore_errors=True)

# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed through the lane: engine, *_ = deepspeed.initialize(...); cairnfs.deepspeed.attach(engine).

engine.save_checkpoint() returns when all is laid out; the copy goes on beside the next forward and backward, and the next update waits for
it. `latest` is a marker: rank 0 writes it when the files of all ranks have their names.
"""
import functools
import os

import torch
from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointEngine as Base
from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine

from . import _fence, _process, _ranks
from . import _library as lib
from ._api import save


class CheckpointEngine(Base):
    """What DeepSpeed saves and loads with. For DeepSpeed it is decoupled: the state does not change between save_checkpoint() and the next
    update, before which DeepSpeed asks for what is to be committed; and `latest` is not DeepSpeed's affair."""

    def __init__(self, track=None, lazy=True, **options):
        """track: a module that changes only in the engine's updates. lazy and options: of cairnfs.save()."""
        super().__init__()
        self.name = "CairnCheckpointEngine"
        self.options = {**options, "track": track, "lazy": lazy}
        self.info, self.saves = None, []

    def create(self, info):
        self.commit(self.info)
        self.info = info

    def save(self, state_dict, path):
        self.saves.append(save(state_dict, path, format="torch", **self.options))

    def load(self, path, map_location=None):
        self.wait()
        return torch.load(path, map_location=map_location, weights_only=False)

    def commit(self, info):
        """All files of the checkpoint were handed to save(). Does not wait for them."""
        saves, self.saves, self.info = self.saves, [], None
        if info is not None and info.save_latest:
            _ranks.marker_behind_all(os.path.join(info.save_dir, "latest"), info.tag, saves)
        return True

    def is_decoupled(self):
        return True

    def get_commit_info(self):
        """DeepSpeed is about to update. It would commit what this returns, with a barrier and a `latest` of its own."""
        self.commit(self.info)
        _fence.fence()

    def wait(self):
        """Until all files of this rank, and `latest` on rank 0, have their names or have failed."""
        self.commit(self.info)
        process = _process.current()
        _process.wait_all(list(process.pending), lib.PUBLISHED, None)
        _ranks.wait()

    def cleanup(self):
        if not _process.current().ending:
            self.wait()


def attach(engine, **options):
    """`engine`, whose checkpoints are saved lazily from now on. options: of cairnfs.save()."""
    if type(engine.checkpoint_engine) is not TorchCheckpointEngine:
        raise ValueError(f"the config of DeepSpeed asks for a {type(engine.checkpoint_engine).__name__}: leave that out")
    _ranks.job_store()
    if getattr(engine, "zenflow", False):  # another process updates beside the training
        options["lazy"] = False
    if not engine._config.hybrid_engine.enabled:  # which folds adapters into the parameters and out of them between updates
        options.setdefault("track", engine.module)
    ours = engine.checkpoint_engine = CheckpointEngine(**options)
    engine.save_checkpoint = committing(engine.save_checkpoint, ours)
    engine.load_checkpoint = behind_saves(engine.load_checkpoint, ours)
    return engine


def committing(save_checkpoint, ours):
    """So that `latest` need not wait for the next update."""

    @functools.wraps(save_checkpoint)
    def wrapper(*args, **kwargs):
        result = save_checkpoint(*args, **kwargs)
        ours.commit(ours.info)
        return result

    return wrapper


def behind_saves(load_checkpoint, ours):
    """`latest`, and the files of other ranks, are there when this process looks for them."""

    @functools.wraps(load_checkpoint)
    def wrapper(*args, **kwargs):
        ours.wait()
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
        return load_checkpoint(*args, **kwargs)

    return wrapper

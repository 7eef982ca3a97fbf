# SPDX-License-Identifier: Apache-2.0
"""Lightning and its Fabric through the lane: Trainer(plugins=[cairnfs.lightning.CheckpointIO()]), or cairnfs.lightning.install().

A checkpoint is copied beside the next step. The one that it takes the place of is removed, and a link is set to it, when it has its name.
Works with the packages lightning, and pytorch_lightning and lightning_fabric, whichever the program has imported.
"""
import functools
import importlib
import os
import sys

from . import _fence, _later, _process
from . import _library as lib
from ._api import save

FABRICS = ("lightning.fabric", "lightning_fabric")
TRAINERS = ("lightning.pytorch", "pytorch_lightning")
# another process reads them next: that of a job that is queued anew, and the one that launched this one
AT_ONCE = ("hpc_ckpt_", ".temp.ckpt")

_later_acts = _later.make()
_originals = {}  # (class, name of a function): the function of before


def save_checkpoint(original, options, self, checkpoint, path, storage_options=None):
    if storage_options is not None or "://" in str(path):
        return original(self, checkpoint, path, storage_options)
    path = os.path.abspath(os.fspath(path))
    if os.path.basename(path).startswith(AT_ONCE):
        options = {**options, "lazy": False}
    with _process.quietly():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _later_acts.forget(path)
        _later_acts.begun(save(checkpoint, path, format="torch", **options))


def load_checkpoint(original, options, self, path, *arguments, **keywords):
    if "://" not in str(path):
        _process.wait_all(of_path(os.path.abspath(os.fspath(path))), lib.PUBLISHED, None)
        _process.current().tell()
    return original(self, path, *arguments, **keywords)


def remove_checkpoint(original, options, self, path):
    if "://" in str(path):
        return original(self, path)
    path = os.path.abspath(os.fspath(path))

    def remove():
        for one in of_path(path):  # a newer one has its name
            one.cancel()
            one.exception()
        original(self, path)

    _later_acts.do(remove, path)


def teardown(original, options, self):
    _later_acts.settle()
    _process.current().tell()
    original(self)


def of_path(path):
    """Saves of it that are under way."""
    with _process.lock():
        return [one for one in _process.current().pending if path in one.places]


def file_exists(original, options, self, filepath, trainer):
    """ModelCheckpoint looks for a free name: saves under way get their names first, and pending removals are done."""
    path = os.path.abspath(os.fspath(filepath))
    if of_path(path) or _later_acts.about(path):
        _later_acts.settle()
    return original(self, filepath, trainer)


def link_checkpoint(original, options, trainer, filepath, linkpath):
    """save_last="link": the link goes on pointing at the older checkpoint until the newer one is there."""
    target, link = os.path.abspath(filepath), os.path.abspath(linkpath)
    if not of_path(target) or os.path.isdir(link) and not os.path.islink(link):
        return original(trainer, filepath, linkpath)
    if trainer.is_global_zero and target != link:
        _later_acts.do(lambda: set_link(os.path.relpath(target, os.path.dirname(link)), link))
    trainer.strategy.barrier()


def set_link(target, link):
    new = os.path.join(os.path.dirname(link), f".{os.path.basename(link)}.new")
    if os.path.lexists(new):
        os.remove(new)
    os.symlink(target, new)
    os.replace(new, link)


def fenced(original, options, *arguments, **keywords):
    """It writes to parameters outside of an optimizer's step, and some of it without their version being counted."""
    _fence.fence()
    return original(*arguments, **keywords)


TORCH_IO = {
    "save_checkpoint": save_checkpoint, "load_checkpoint": load_checkpoint, "remove_checkpoint": remove_checkpoint, "teardown": teardown,
}  # fmt: skip
# {module below that of the trainer: {class: {function: ours}}}
BESIDE = {
    "callbacks.model_checkpoint": {"ModelCheckpoint": {"file_exists": file_exists, "_link_checkpoint": link_checkpoint}},
    "callbacks.weight_averaging": {"WeightAveraging": {"_swap_models": fenced, "_copy_average_to_current": fenced}},
    "callbacks.stochastic_weight_avg": {"StochasticWeightAveraging": {"transfer_weights": fenced}},
}


def patch(owner, functions, options):
    for name, ours in functions.items():
        if (owner, name) in _originals or not hasattr(owner, name):
            continue
        own = vars(owner).get(name)  # None: inherited
        wrapper = wrapping(ours, getattr(owner, name), options)
        setattr(owner, name, staticmethod(wrapper) if isinstance(own, staticmethod) else wrapper)
        _originals[owner, name] = own


def wrapping(ours, original, options):
    @functools.wraps(original)
    def wrapper(*arguments, **keywords):
        return ours(original, options, *arguments, **keywords)

    return wrapper


def patch_beside():
    """What of Lightning looks at checkpoints itself, or writes to parameters."""
    for package in TRAINERS:
        for name, classes in BESIDE.items():
            module = sys.modules.get(f"{package}.{name}")
            for kind, functions in classes.items():
                if hasattr(module, kind):
                    patch(getattr(module, kind), functions, {})


def install(**options):
    """Every trainer and Fabric saves through the lane, if it has no CheckpointIO of its own. options: of cairnfs.save()."""
    for base in torch_ios(only_imported=True):
        patch(base, TORCH_IO, options)
    patch_beside()


def uninstall():
    for (owner, name), original in _originals.items():
        delattr(owner, name) if original is None else setattr(owner, name, original)
    _originals.clear()


def torch_ios(only_imported=False):
    """The classes TorchCheckpointIO of the packages that are imported; else of the first that is installed."""
    names = [f"{package}.plugins.io.torch_io" for package in FABRICS]
    found = [sys.modules[name] for name in names if hasattr(sys.modules.get(name), "TorchCheckpointIO")]
    if not found and not only_imported:
        for name in names:
            try:
                found = [importlib.import_module(name)]
                break
            except ModuleNotFoundError as error:
                missing = error
        else:
            raise missing
    return [module.TorchCheckpointIO for module in found]


def __getattr__(name):
    """CheckpointIO is made when it is asked for: of the modules that the program has imported by then."""
    if name != "CheckpointIO":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return checkpoint_io(tuple(torch_ios()))


@functools.cache
def checkpoint_io(bases):
    plain = {name: _originals.get((bases[0], name)) or getattr(bases[0], name) for name in TORCH_IO}

    class CheckpointIO(*bases):
        """CheckpointIO(**options): a plugin of Trainer and Fabric. options: of cairnfs.save()."""

        def __init__(self, **options):
            super().__init__()
            self.options = options
            patch_beside()

    def method(name):
        def call(self, *arguments, **keywords):
            return TORCH_IO[name](plain[name], self.options, self, *arguments, **keywords)

        return functools.wraps(plain[name])(call)

    for name in TORCH_IO:
        setattr(CheckpointIO, name, method(name))
    return CheckpointIO

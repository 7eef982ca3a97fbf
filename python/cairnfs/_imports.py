# SPDX-License-Identifier: Apache-2.0
"""Adapters for the imports of a program: install() of this package is called before the program's own imports, and has no line of the
program."""
import importlib
import sys
import threading

from . import _log

# {module: adapter}: when the module has been imported, the adapter's install() is called.
LAZY = {
    "lightning.fabric.plugins.io.torch_io": "lightning",
    "lightning_fabric.plugins.io.torch_io": "lightning",
    "lightning.pytorch.callbacks.model_checkpoint": "lightning",
    "pytorch_lightning.callbacks.model_checkpoint": "lightning",
    "lightning.pytorch.callbacks.weight_averaging": "lightning",
    "pytorch_lightning.callbacks.weight_averaging": "lightning",
    "lightning.pytorch.callbacks.stochastic_weight_avg": "lightning",
    "pytorch_lightning.callbacks.stochastic_weight_avg": "lightning",
    "transformers.trainer": "transformers",
    "safetensors.torch": "safetensors",
}
# Where torch.save returns when the file is there, nothing is to be told of markers: only what does not save by torch.save to a path.
EAGER = {name: adapter for name, adapter in LAZY.items() if adapter != "transformers"}
OPTIONS = {"lightning": lambda lazy: {"lazy": lazy}, "transformers": lambda lazy: {}, "safetensors": lambda lazy: {}}

_busy = threading.local()
_lazy = None  # None: off
_installed = set()


class Finder:
    """In sys.meta_path: finds nothing itself, but sees each import."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if _lazy is None or name not in (LAZY if _lazy else EAGER) or getattr(_busy, "on", False):
            return None
        _busy.on = True
        try:
            specs = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not Finder
                     and hasattr(finder, "find_spec"))
            spec = next((spec for spec in specs if spec is not None), None)
        finally:
            _busy.on = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            call_behind(spec.loader, name)
        return spec


def call_behind(loader, name):
    original = loader.exec_module

    def exec_module(module):
        original(module)
        imported(name)

    loader.exec_module = exec_module


def imported(name):
    adapter = (LAZY if _lazy else EAGER).get(name)
    if _lazy is None or adapter is None:
        return
    try:
        importlib.import_module(f"{__package__}.{adapter}").install(**OPTIONS[adapter](_lazy))
        _installed.add(adapter)
    except ImportError as why:
        _log.once(f"{why}; it saves as without an adapter")


def turn(lazy):
    """True, False: as install(lazy); None: off."""
    global _lazy
    _lazy = lazy
    if lazy is None:
        for adapter in _installed:
            importlib.import_module(f"{__package__}.{adapter}").uninstall()
        _installed.clear()
        return
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)
    for name in LAZY if lazy else EAGER:
        if name in sys.modules:
            imported(name)

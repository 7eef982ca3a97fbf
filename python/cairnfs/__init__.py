# SPDX-License-Identifier: Apache-2.0
"""CairnFS for PyTorch: saves that return at once, while the copy goes on beside the next step.

    import cairnfs
    cairnfs.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "/mnt/ckpt/step1000.pt")
    cairnfs.marker("/mnt/ckpt/latest", "step1000.pt")

The files are those of torch.save, read by plain torch.load. See docs/lazy-saves.md of CairnFS.
"""
try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as _why:
    if _why.name != "torch":
        raise
    raise ModuleNotFoundError("cairnfs needs PyTorch 2.4 or later, and this Python has none: pip install torch", name="torch") from None

from . import _fence
from ._api import marker, prepare, save, stats, wait
from ._fence import fence
from ._interval import Interval
from ._load import load
from ._patch import install, uninstall
from ._process import SaveWarning
from ._save import Save

__version__ = "0.3.0"
__all__ = ["Interval", "Save", "SaveWarning", "fence", "install", "load", "marker", "prepare", "save", "stats", "uninstall", "wait"]

_fence.install()

# SPDX-License-Identifier: Apache-2.0
"""install() settles: where a node was lost, all others went back to an earlier state, and each takes no changes for the time of a lease.
A program that starts in that time waits here until its node takes them, and counts as begun then.

The mount decides, by when the process group of this program began: what began earlier may rely on what was set aside. It cannot know what
other processes told this one since. So nothing is asked once the ranks have met (torch.distributed is initialized), and install() is to be
called before.
"""
import errno
import os
import time

import torch

from . import _ask, _mounts
from ._log import logger

ATTRIBUTE = "user.cairn.settle"
WAIT = float(os.environ.get("CAIRN_SETTLE_WAIT", "600"))  # seconds for all mounts; 0: none is asked
ANSWER = 60.0  # seconds for the answer of one mount: its next daemon may just start
POLL = 1.0  # seconds
SILENT = {errno.ENODATA, errno.EOPNOTSUPP, errno.EACCES, errno.ENOTCONN, errno.ENOENT}  # none of ours, an older version, or gone


def settle():
    """TimeoutError: a mount takes no changes after WAIT seconds."""
    if WAIT == 0 or torch.distributed.is_available() and torch.distributed.is_initialized():
        return
    deadline = time.monotonic() + WAIT
    for place in _mounts.places():
        settle_on(place, deadline)


def settle_on(place, deadline):
    is_said = False
    while wait := ask(place):
        if time.monotonic() + wait > deadline:
            raise TimeoutError(errno.ETIMEDOUT, f"a node was lost, and this one takes changes in {wait:.0f} s: longer than CAIRN_SETTLE_WAIT", place)
        if not is_said:
            logger.warning("%s: a node was lost, and all went back to an earlier state: waiting %.0f s, until this one takes changes", place, wait)
            is_said = True
        time.sleep(min(wait, POLL))


def read_answer(place):
    """Empty for a mount that this user may not change: nothing here relies on it, and others' jobs may have it."""
    return os.getxattr(place, ATTRIBUTE).decode() if os.access(place, os.W_OK) else ""


def ask(place):
    """Seconds until it is worth asking again; 0: never."""
    try:
        answer = _ask.ask(place, lambda: read_answer(place), time.monotonic() + ANSWER)
    except TimeoutError:
        logger.warning("%s does not answer: what is saved there may fail", place)
        return 0
    except OSError as error:
        if error.errno not in SILENT:
            logger.warning("%s: %s", place, error.strerror)
        return 0
    if answer == "1 old":
        logger.warning("%s takes no changes of this program, since its process group (leader %d) began before all nodes went back to an earlier "
                       "state, and may rely on what is set aside. Start it anew; or put 'cairn nodes settle %s' before it in its script",
                       place, os.getpgrp(), place)
    word, _, number = answer.removeprefix("1 ").partition("=")
    return max(0.001, int(number) / 1000) if word == "wait_ms" else 0

# SPDX-License-Identifier: Apache-2.0
"""C++ code of torch frees memory that a lazy save copies: the save fails, and not the process."""
import errno
import os
import warnings

import pytest
import torch

from training import Training, check_loaded


def enlarge_by_out(training):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of an output that has elements
        torch.cat([torch.zeros(20 << 20)], out=training.model.weight.data)


# C++ code that frees the memory of a storage, and calls nothing of Python's.
MOVES = {
    "out": enlarge_by_out,
    "aten": lambda training: torch.ops.aten.resize_(training.model.weight.data, [20 << 20]),
}


@pytest.mark.parametrize("lazy", [True, "all"])
@pytest.mark.parametrize("way", MOVES)
def test_memory_that_is_freed_during_the_copy(stall, lane, way, lazy):
    """The training goes on with its own bytes; the save fails and the older version stays."""
    training, path = Training(), os.path.join(stall.mount.mnt, "state.pt")
    lane.save({"old": 1}, path).result()
    before = training.copy()
    save = stall.save(lane, training.state(), path, lazy=lazy)
    MOVES[way](training)
    stall.go()
    error = save.exception()
    # The place may have other bytes by then: new memory lies there.
    assert error.errno in (errno.EFAULT, errno.EBADMSG) and "while it was copied" in str(error)
    assert torch.load(path) == {"old": 1} and os.listdir(stall.mount.mnt) == ["state.pt"]
    if way == "aten":
        assert torch.equal(training.model.weight, before["model"]["weight"])
    training.step()
    lane.save(training.state(), path).result()
    check_loaded(path, training.state())

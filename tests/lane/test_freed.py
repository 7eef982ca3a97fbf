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


def hold_back(training):
    """The allocator keeps the memory as it is: neither a read nor a sample tells."""
    torch.ops.aten.resize_(training.small.data, [60_000])


@pytest.mark.parametrize("lazy", [True, "all"])
def test_memory_that_is_freed_and_still_there(stall, lane, lazy):
    training, path = Training(), os.path.join(stall.mount.mnt, "state.pt")
    training.small = torch.nn.Parameter(torch.zeros(20_000))
    training.optimizer.add_param_group({"params": [training.small]})
    training.small.grad = torch.ones_like(training.small)
    training.step()
    lane.save({"old": 1}, path).result()
    save = stall.save(lane, [training.state(), training.small], path, lazy=lazy)
    hold_back(training)
    stall.go()
    error = save.exception()
    assert error.errno == errno.EBADMSG and "a storage of 80000 bytes was resized" in str(error)
    assert torch.load(path) == {"old": 1} and os.listdir(stall.mount.mnt) == ["state.pt"]


@pytest.mark.parametrize("lazy", [True, "all"])
def test_memory_that_goes_away_before_the_call_has_read_it(lane, directory, lazy):
    """A file that is mapped and cut off: the save fails, at the call where its sources are read then, and the training goes on."""
    mapped, path = os.path.join(directory, "mapped"), os.path.join(directory, "state.pt")
    weight = torch.nn.Parameter(torch.from_file(mapped, shared=True, size=1 << 20))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    os.truncate(mapped, 0)
    with warnings.catch_warnings(record=True):
        save = lane.save([weight], path, lazy=lazy)
        error = save.exception()
    assert error.errno == errno.EFAULT and not os.path.exists(path)
    os.truncate(mapped, 4 << 20)
    optimizer.step()
    lane.save([weight], path).result()
    assert torch.equal(torch.load(path)[0], weight)

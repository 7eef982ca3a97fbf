# SPDX-License-Identifier: Apache-2.0
"""A small training for the tests of lazy saves."""
import copy
import importlib.util

import pytest
import torch


class Training:
    """Some 100 MB of parameters and momentum that an optimizer steps on."""

    def __init__(self, size=12 << 20, kind=None):
        self.model = torch.nn.Linear(1, 1)
        self.model.weight = torch.nn.Parameter(torch.arange(size, dtype=torch.float32).view(1024, -1))
        self.optimizer = (kind or torch.optim.SGD)(self.model.parameters(), lr=0.5, momentum=0.9)
        self.step()
        self.step()

    def step(self):
        for parameter in self.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        self.optimizer.step()

    def state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def copy(self):
        return copy.deepcopy(self.state())


def check_loaded(path, state):
    loaded = torch.load(path)
    assert torch.equal(loaded["model"]["weight"], state["model"]["weight"])
    for key, value in state["optimizer"]["state"].items():
        for name, tensor in value.items():
            assert torch.equal(loaded["optimizer"]["state"][key][name], tensor), name


def needs(*modules):
    """For a test with a framework that is not installed everywhere."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"skipped: {name} is not installed")

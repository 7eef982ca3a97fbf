# SPDX-License-Identifier: Apache-2.0
"""A model that is mostly frozen: what did not change since the version before is taken from that file."""
import os

import pytest
import torch

pytestmark = pytest.mark.needs_mount
FROZEN, TRAINED, VERSIONS = 9, 1, 6  # matrices of 2 MiB
SIZE = (FROZEN + TRAINED) * (2 << 20)


@pytest.mark.parametrize("kind", ["pt", "safetensors", "pt, all held by the optimizer"])
def test_frozen_model(lane, cairn, kind):
    """90 % unchanged: at most 12 % of the bytes are written again, and every version is right. It is seen by itself where no optimizer
    holds what is frozen."""
    cairn.mount(writeback_delay="100ms")
    torch.manual_seed(0)
    model = torch.nn.ParameterList(torch.nn.Parameter(torch.randn(1024, 512), requires_grad=index >= FROZEN)
                                   for index in range(FROZEN + TRAINED))
    held = "held" in kind
    optimizer = torch.optim.SGD([value for value in model if held or value.requires_grad], lr=0.1)
    suffix, saved = kind.partition(",")[0], []
    for version in range(VERSIONS):
        model[FROZEN].grad = torch.randn(1024, 512)
        optimizer.step()
        state = {f"layer.{index}": value.detach() for index, value in enumerate(model)}
        lane.save(state, os.path.join(cairn.mnt, f"step-{version}.{suffix}"), refer=True if held else None).result()
        saved.append({name: value.clone() for name, value in state.items()})
    written = cairn.status()["mount"]["written_bytes_total"]
    print(f"{written} bytes were written for {VERSIONS} versions of {SIZE}")
    assert SIZE <= written <= SIZE * (1 + (VERSIONS - 1) * 0.12), f"{written / SIZE:.2f} times the state was written"
    for version, state in enumerate(saved):
        path = os.path.join(cairn.mnt, f"step-{version}.{suffix}")
        found = torch.load(path) if suffix == "pt" else __import__("safetensors.torch").torch.load_file(path)
        assert found.keys() == state.keys() and all(torch.equal(found[name], state[name]) for name in state), path

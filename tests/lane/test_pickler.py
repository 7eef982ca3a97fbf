# SPDX-License-Identifier: Apache-2.0
"""The pickle of plain tensors: byte for byte torch's, and torch's own where a tensor is anything else."""
import copyreg
import pickle
from collections import OrderedDict

import pytest
import torch
from test_format import OBJECTS


@pytest.fixture
def records(lane, monkeypatch):
    """The module that makes records, as if the program had just begun."""
    from cairnfs import _records

    monkeypatch.setattr(_records, "_all_plain", True)
    return _records


def theirs(records, value, protocol=2):
    return records.pickled_by_torch(value, pickle, protocol, False)


def expect_same(records, value, protocol=2):
    ours, expected = records.pickled(value, pickle_protocol=protocol), theirs(records, value, protocol)
    assert [name for name, _ in ours] == [name for name, _ in expected]
    assert all(map(records.is_same, ours, expected))


def test_this_torch_is_one_that_is_known(records):
    """It is found out without a change of what the program sees: random numbers, default device."""
    before = torch.get_rng_state()
    with torch.device("meta"):
        assert records.records_between.__wrapped__(2, False, records.alignment()) is not None
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("name", OBJECTS)
def test_the_records_are_those_of_torch(records, name, protocol):
    value = OBJECTS[name]()
    try:
        theirs(records, value, protocol)
    except records.NotCovered:
        pytest.skip("skipped: not covered by the lane at all")
    expect_same(records, value, protocol)


def test_plain_states_are_pickled_here(records):
    model = torch.nn.Sequential(torch.nn.Linear(30, 50), torch.nn.BatchNorm1d(50), torch.nn.Linear(50, 7))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 30)).sum().backward()
    optimizer.step()
    whole = torch.randn(40, 30)
    value = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "parameter": model[0].weight,
             "views": [whole, whole.t(), whole[3:, ::2], whole], "rng": torch.get_rng_state(), "text": ["storage", "cpu", "0", 1.5, None]}
    data, storages = records._pickler.pickled(value, 2)
    assert data == theirs(records, value)[0][1] and len(storages) > 10
    expect_same(records, value)
    assert records._all_plain


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_dicts_that_keep_their_order(records, protocol):
    """Those of tensors' hooks are empty, and pickled by ourselves: the caller's are as pickle writes them."""
    noted, shared = OrderedDict(), OrderedDict()
    noted.note = "kept"
    value = [OrderedDict(), noted, shared, shared, OrderedDict(a=torch.ones(2)), Kind(), torch.ones(3)]
    expect_same(records, value, protocol)
    assert records._all_plain


class Kind(OrderedDict):
    pass


class Own(torch.Tensor):
    pass


def with_state():
    tensor = torch.ones(3)
    tensor.note = "kept"
    return tensor


def two_types():
    storage = torch.zeros(4).untyped_storage()
    return [torch.tensor([], dtype=kind).set_(storage) for kind in (torch.float32, torch.int32)]


OTHERS = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "compressed": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.randn(5, 2), 0.1, 3, torch.qint8),
    "conjugated": lambda: torch.ones(3, dtype=torch.complex64).conj(),
    "negated": lambda: torch.ones(3, dtype=torch.complex64).conj().imag,
    "subclass": lambda: torch.ones(3).as_subclass(Own),
    "state": with_state,
    "meta": lambda: torch.empty(3, device="meta"),
    "new kind": lambda: torch.zeros(3, dtype=torch.uint8).view(torch.float8_e4m3fn),
    "storage": lambda: torch.ones(3).untyped_storage(),
    "typed storage": lambda: torch.ones(3)._typed_storage(),
    "nested": lambda: torch.nested.nested_tensor([torch.randn(3, 4), torch.randn(5, 4)], layout=torch.jagged),
    "two types": two_types,
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.filterwarnings("ignore")
def test_what_is_not_plain_is_left_to_torch(records, name):
    value = {"plain": torch.ones(5), "other": OTHERS[name]()}
    with pytest.raises(records._pickler.NotPlain):
        records._pickler.pickled(value, 2)
    try:
        expected = theirs(records, value)
    except (RuntimeError, records.NotCovered) as error:
        with pytest.raises(type(error)) as found:
            records.pickled(value)
        assert str(found.value) == str(error)
        return
    assert records.pickled(value)[0][1] == expected[0][1]
    assert not records._all_plain  # the next save does not try


def test_a_program_that_pickles_tensors_its_own_way_is_followed(records, monkeypatch):
    value = {"a": torch.ones(3)}
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "__reduce_ex__", lambda self, protocol: (list, ((1, 2),)))
        assert b"list" in records.pickled(value)[0][1]
    records._all_plain = True
    with monkeypatch.context() as patch:
        patch.setitem(copyreg.dispatch_table, torch.Tensor, lambda tensor: (list, ((1, 2),)))
        assert b"list" in records.pickled(value)[0][1]


def test_a_torch_that_writes_otherwise_is_left_alone(records, monkeypatch):
    """The comparison before the first use sees that one byte, or one storage, is another."""
    original = records._pickler.pickled
    for change in (lambda data, storages: (data[:-1] + b"!", storages), lambda data, storages: (data, storages[::-1])):
        monkeypatch.setattr(records._pickler, "pickled", lambda value, protocol, change=change: change(*original(value, protocol)))
        assert records.records_between.__wrapped__(2, False, records.alignment()) is None

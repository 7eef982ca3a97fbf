# SPDX-License-Identifier: Apache-2.0
"""What torch.save would write, record by record, without the bytes of the tensors being copied.

torch's own code (torch.serialization._save) pickles and names the records; only the writer that it writes to is ours. So names, order,
location tags and exceptions are those of the torch that runs. A state of plain tensors alone is pickled by _pickler, where this torch was
seen to write the same. What torch adds when it closes the archive is learnt from a small archive that it makes.
"""
import functools
import io
import os
import pickle
import random
import zipfile

import torch

from . import _log, _pickler
from ._save import saved

plain_save = torch.serialization.save  # before anything is patched
_all_plain = True  # no state had a tensor that _pickler leaves to torch


class NotCovered(Exception):
    """This save is one for plain torch.save; the text says why."""


class Records:
    """Takes the place of torch._C.PyTorchFileWriter."""

    def __init__(self):
        self.items = []  # (name, bytes or UntypedStorage)
        self.storages = {}  # name of record: storage, as the pickler saw it
        self.skip = None

    def write_record(self, name, data, size):
        if isinstance(data, str):
            data = data.encode()
        if isinstance(data, int):  # an address: torch before 2.1
            data = self.storages[name]
        if isinstance(data, torch.storage.TypedStorage):
            data = data._untyped_storage
        if not isinstance(data, (bytes, torch.UntypedStorage)):
            raise NotCovered(f"torch writes a record from a {type(data).__name__}")
        if not isinstance(data, bytes):
            check_memory(data, size)
        self.items.append((name, data))
        if name == "data.pkl":
            self.leave_devices_alone()

    def write_record_metadata(self, name, size):
        self.items.append((name, self.storages[name]))

    def leave_devices_alone(self):
        """All is pickled. torch copies a storage of a device into new host memory before it writes it, but not if it is to skip data."""
        kinds = {storage.device.type for storage in self.storages.values()} - {"cpu"}
        if kinds == {"cuda"} and not torch.version.hip and skip_data_flag() is False:
            self.skip = torch.serialization._serialization_tls
            self.skip.skip_data = True

    def close(self):
        if self.skip is not None:
            self.skip.skip_data = False


def check_memory(storage, size):
    if storage.device.type != "cpu" or storage.nbytes() != size or size and not storage.data_ptr():
        raise NotCovered(f"a storage of {storage.device.type} that has no memory of its own")


def skip_data_flag():
    """torch.serialization.skip_data() is on; None: this torch has none."""
    return getattr(getattr(torch.serialization, "_serialization_tls", None), "skip_data", None)


def recording_module(pickle_module, records):
    """The pickle module, with a Pickler that tells `records` of the storages: torch derives its own from it. The pickler asks for each
    object of the state whether it is a storage; of exact types that are none, torch's code is not asked."""
    storages = records.storages

    class Module:
        class Pickler(pickle_module.Pickler):
            def __init_subclass__(cls):
                inner = cls.persistent_id

                def persistent_id(self, obj):
                    if type(obj) in _pickler.NO_STORAGES:
                        return None
                    found = inner(self, obj)
                    if found is not None:
                        storages["data/" + found[2]] = obj._untyped_storage if isinstance(obj, torch.storage.TypedStorage) else obj
                    return found

                cls.persistent_id = persistent_id

    return Module


def pickled(obj, pickle_module=pickle, pickle_protocol=2, disable_byteorder_record=False):
    """The records that torch writes for `obj`: [(name, bytes or storage)]. Exceptions of the pickler pass."""
    if skip_data_flag():
        raise NotCovered("torch.serialization.skip_data() is on")
    check_dill = getattr(torch.serialization, "_check_dill_version", None)
    if check_dill:
        check_dill(pickle_module)
    if pickle_module is pickle:
        found = pickled_here(obj, pickle_protocol, disable_byteorder_record)
        if found is not None:
            return found
    return pickled_by_torch(obj, pickle_module, pickle_protocol, disable_byteorder_record)


def pickled_by_torch(obj, pickle_module, pickle_protocol, disable_byteorder_record):
    records = Records()
    module = recording_module(pickle_module, records)
    try:
        torch.serialization._save(obj, records, module, pickle_protocol, disable_byteorder_record)
    finally:
        records.close()
    return records.items


def pickled_here(obj, pickle_protocol, disable_byteorder_record):
    """As pickled(), by _pickler, if all tensors are plain ones. None: torch must pickle. After the first None it is not tried again: a
    program that saves other tensors now will save them again."""
    global _all_plain
    if not _all_plain:
        return None
    between = records_between(pickle_protocol, disable_byteorder_record, alignment())
    if between is None:
        return None
    try:
        data, storages = _pickler.pickled(obj, pickle_protocol)
    except _pickler.NotPlain:
        _all_plain = False
        return None
    return [("data.pkl", data), *between, *((f"data/{number}", storage) for number, storage in enumerate(storages))]


@functools.cache
def records_between(pickle_protocol, disable_byteorder_record, _alignment):
    """Those that torch writes between the pickle and the storages; None: this torch pickles tensors otherwise than _pickler does."""
    try:
        probe = _pickler.probe()
        theirs = pickled_by_torch(probe, pickle, pickle_protocol, disable_byteorder_record)
        data, storages = _pickler.pickled(probe, pickle_protocol)
    except Exception:  # this torch lacks it, or a mode that tensors are made in now
        return None
    between = [item for item in theirs[1:] if not item[0].startswith("data/")]
    ours = [("data.pkl", data), *between, *((f"data/{number}", storage) for number, storage in enumerate(storages))]
    same = [name for name, _ in ours] == [name for name, _ in theirs] and all(is_same(*pair) for pair in zip(ours, theirs))
    return between if same else None


def is_same(ours, theirs):
    return ours[1] == theirs[1] if isinstance(ours[1], bytes) else ours[1]._cdata == getattr(theirs[1], "_cdata", None)


@functools.cache
def closing_records():
    """[(name, bytes or None)] that torch adds at the end; None: the serialization id. NotCovered: this torch writes otherwise than we
    know."""
    probe = {"a": torch.arange(3), "b": torch.ones(2, dtype=torch.bfloat16)}
    buffer = io.BytesIO()
    plain_save(probe, buffer)
    ours = pickled(probe)
    with zipfile.ZipFile(buffer) as archive:
        there = sorted(archive.infolist(), key=lambda info: info.header_offset)
        names = [info.filename.partition("/")[2] for info in there]
        if names[: len(ours)] != [name for name, _ in ours] or sorted(names[len(ours) :]) != [".data/serialization_id", "version"]:
            raise NotCovered(f"torch {torch.__version__} writes the records {names}")
        for info, (name, data) in zip(there, ours):
            if archive.read(info) != (data if isinstance(data, bytes) else bytes(data.tolist())):
                raise NotCovered(f"torch {torch.__version__} writes another {name}")
        return [(name, None if name.startswith(".data/") else archive.read(info))
                for name, info in zip(names[len(ours) :], there[len(ours) :])]


def serialization_id(items):
    """torch's is made of all names and checksums, so it is not known before the bytes are copied. Only that it differs matters."""
    names = hash(tuple(name for name, _ in items)) % 10**20
    return f"{names:020d}{random.SystemRandom().randrange(10**20):020d}".encode()


def records_of(obj, *arguments):
    """All records of the archive of `obj`."""
    closing = closing_records()
    items = pickled(obj, *arguments)
    return items + [(name, serialization_id(items) if data is None else data) for name, data in closing]


def archive_name(path):
    """As torch's writer names it: the file's name without its last suffix, and "archive" where it is not ASCII."""
    if not path.isascii():
        return "archive"
    name = path.replace("\\", "/").rpartition("/")[2]
    stem, dot, _ = name.rpartition(".")
    name = stem if dot else name
    if not name:
        raise NotCovered("a file whose name is only a suffix")
    return name


def alignment():
    get = getattr(torch.serialization, "_get_storage_alignment", None)
    return get() if get else 64


def with_crc():
    get = getattr(torch.serialization, "get_crc32_options", None)
    return get() if get else True


def text_of(path):
    """The path as the library takes it. NotCovered: torch is to raise its own error."""
    path = os.fspath(path)
    if not isinstance(path, str) or "\0" in path:
        raise NotCovered("a path that is no text")
    return path


def save_plainly(why, function, path, on_error):
    """For saves that the lane does not cover: function() writes the file as without us, and its exceptions pass."""
    _log.once(f"{why}: written without the lane")
    function()
    return saved(os.fspath(path), on_error)

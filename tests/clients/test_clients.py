# SPDX-License-Identifier: Apache-2.0
"""The programs that use the mount (P2, P10): byte-exact at once, after kill -9, after remount, without the stage."""
import contextlib
import gc
import os
import shutil
import sqlite3
import subprocess

import numpy
import pytest

import rig

torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")


def tensors(seed, count=6, rows=500):
    generator = torch.Generator().manual_seed(seed)
    kinds = (torch.float32, torch.bfloat16, torch.float64, torch.int64)
    made = {f"layer{i}.weight": torch.randn(rows, 301, generator=generator).to(kinds[i % 4]) for i in range(count)}
    made["scalar"] = torch.tensor(3.5)
    made["empty"] = torch.empty(0, 4)
    return made


def equal(left, right):
    assert left.keys() == right.keys()
    for name, tensor in right.items():
        assert torch.equal(left[name], tensor), name
    return True


class TorchZip:
    def make(self, directory):
        torch.save({"model": tensors(1), "step": 7}, os.path.join(directory, "a.pt"))
        torch.save({"model": tensors(2), "step": 8}, os.path.join(directory, "b.pt"))
        torch.save({"model": tensors(3), "step": 9}, os.path.join(directory, "b.pt"))

    def check(self, directory):
        for name, seed, step in (("a.pt", 1, 7), ("b.pt", 3, 9)):
            state = torch.load(os.path.join(directory, name))
            assert state["step"] == step and equal(state["model"], tensors(seed))


class TorchLegacy:
    def make(self, directory):
        torch.save(tensors(4), os.path.join(directory, "old.pt"), _use_new_zipfile_serialization=False)

    def check(self, directory):
        equal(torch.load(os.path.join(directory, "old.pt")), tensors(4))


class TorchMmap:
    def make(self, directory):
        torch.save(tensors(5), os.path.join(directory, "mapped.pt"))

    def check(self, directory):
        loaded = torch.load(os.path.join(directory, "mapped.pt"), mmap=True)
        equal(loaded, tensors(5))


class Safetensors:
    """Saves over an existing file too, which renames over it before it closes."""

    def make(self, directory):
        path = os.path.join(directory, "model.safetensors")
        safetensors_torch.save_file(tensors(6), path)
        safetensors_torch.save_file(tensors(7, count=4), path)
        safetensors_torch.save_file(tensors(8), os.path.join(directory, "other.safetensors"), metadata={"format": "pt"})

    def check(self, directory):
        equal(safetensors_torch.load_file(os.path.join(directory, "model.safetensors")), tensors(7, count=4))
        equal(safetensors_torch.load_file(os.path.join(directory, "other.safetensors")), tensors(8))
        assert sorted(os.listdir(directory)) == ["model.safetensors", "other.safetensors"]


class Dcp:
    def make(self, directory):
        from torch.distributed import checkpoint

        writer = checkpoint.FileSystemWriter(os.path.join(directory, "dcp"), thread_count=2)
        checkpoint.save({"model": tensors(9)}, storage_writer=writer, no_dist=True)

    def check(self, directory):
        from torch.distributed import checkpoint

        state = {"model": {name: torch.zeros_like(tensor) for name, tensor in tensors(9).items()}}
        reader = checkpoint.FileSystemReader(os.path.join(directory, "dcp"))
        checkpoint.load(state, storage_reader=reader, no_dist=True)
        equal(state["model"], tensors(9))


class NumpyMemmap:
    shape = (700, 1001)

    def wanted(self):
        return numpy.random.default_rng(10).standard_normal(self.shape)

    def make(self, directory):
        array = numpy.memmap(os.path.join(directory, "array"), dtype="f8", mode="w+", shape=self.shape)
        array[:] = self.wanted()
        array[5, :] = 0.5
        array.flush()
        numpy.save(os.path.join(directory, "saved.npy"), self.wanted())

    def check(self, directory):
        wanted = self.wanted()
        assert numpy.array_equal(numpy.load(os.path.join(directory, "saved.npy"), mmap_mode="r"), wanted)
        wanted[5, :] = 0.5
        array = numpy.memmap(os.path.join(directory, "array"), dtype="f8", mode="r", shape=self.shape)
        assert numpy.array_equal(array, wanted)


class Sqlite:
    mode = "DELETE"

    def make(self, directory):
        base = sqlite3.connect(os.path.join(directory, "base.db"))
        assert base.execute(f"pragma journal_mode={self.mode}").fetchone()[0] == self.mode.lower()
        base.execute("create table t (k integer primary key, v blob)")
        for number in range(20):
            with base:
                rows = ((number * 100 + i, rig.seeded_bytes(number * 100 + i, 200)) for i in range(100))
                base.executemany("insert into t values (?, ?)", rows)
        with base:
            base.execute("delete from t where k % 3 = 0")
        base.execute("begin")
        base.execute("delete from t")
        base.execute("rollback")
        base.close()

    def check(self, directory):
        base = sqlite3.connect(os.path.join(directory, "base.db"))
        with contextlib.closing(base):
            assert base.execute("pragma integrity_check").fetchone() == ("ok",)
            rows = base.execute("select k, v from t order by k").fetchall()
        assert rows == [(k, rig.seeded_bytes(k, 200)) for k in range(2000) if k % 3]


class SqliteWal(Sqlite):
    mode = "WAL"


class CopyTool:
    """A tree with files of all sizes, links, modes, times and attributes, copied by a tool."""

    commands = {
        "cp": 'cp -a "$1" "$2"',
        "rsync": 'rsync -aH "$1/" "$2"',
        "tar": 'mkdir "$2" && tar --format=pax -C "$1" -cf - . | tar -C "$2" -xpf - && tar --format=pax -C "$1" -cf "$2.tar" .',
    }

    def __init__(self, tool):
        self.tool = tool

    def make(self, directory):
        self.source = os.path.join(os.path.dirname(directory.rstrip("/")), "..", "source")
        self.source = os.path.abspath(self.source)
        if not os.path.isdir(self.source):
            make_tree(self.source)
        target = os.path.join(directory, "copy")
        run = subprocess.run(["bash", "-ec", self.commands[self.tool], "bash", self.source, target], capture_output=True, text=True)
        assert run.returncode == 0 and run.stderr == "", run.stderr

    def check(self, directory):
        assert picture(os.path.join(directory, "copy")) == picture(self.source)
        if self.tool == "tar":
            path = os.path.join(directory, "copy.tar")
            subprocess.run(["tar", "-df", path, "-C", self.source], check=True)


def make_tree(root):
    os.makedirs(os.path.join(root, "deep", "er"))
    for number, size in enumerate((0, 1, 4095, 4096, 16384, 16385, 300_000, 3_000_001)):
        path = rig.write_file(os.path.join(root, "deep", f"file-{number}"), rig.seeded_bytes(number, size))
        os.chmod(path, 0o600 + number)
        os.utime(path, ns=(10**18 + number, 10**18 + 123456789 + number))
    os.link(os.path.join(root, "deep", "file-3"), os.path.join(root, "hard"))
    os.symlink("deep/file-4", os.path.join(root, "soft"))
    os.symlink("nowhere", os.path.join(root, "dangling"))
    for name in ("soft", "dangling"):
        os.utime(os.path.join(root, name), ns=(10**18, 10**18 + 5), follow_symlinks=False)
    with open(os.path.join(root, "sparse"), "wb") as file:
        file.seek(5_000_000)
        file.write(b"end")
    os.utime(os.path.join(root, "deep", "er"), ns=(10**18, 10**18))


def picture(root):
    """Names, kinds, modes, times, links and contents of a tree."""
    result, first = {}, {}
    for directory, names, files in sorted(os.walk(root)):
        for name in sorted(names + files):
            path = os.path.join(directory, name)
            info = os.lstat(path)
            link = os.readlink(path) if os.path.islink(path) else None
            data = rig.read_file(path) if os.path.isfile(path) and link is None else None
            twin = first.setdefault(info.st_ino, os.path.relpath(path, root))
            times = None if os.path.isdir(path) and link is None and name == "deep" else info.st_mtime_ns
            result[os.path.relpath(path, root)] = (info.st_mode, times, info.st_nlink if data else 0, link, data, twin)
    return result


CLIENTS = {
    "torch": TorchZip,
    "torch-legacy": TorchLegacy,
    "torch-mmap": TorchMmap,
    "safetensors": Safetensors,
    "dcp": Dcp,
    "numpy-memmap": NumpyMemmap,
    "sqlite-rollback": Sqlite,
    "sqlite-wal": SqliteWal,
    "cp-a": lambda: CopyTool("cp"),
    "rsync-a": lambda: CopyTool("rsync"),
    "tar": lambda: CopyTool("tar"),
}


def check(client, directory):
    client.check(directory)
    gc.collect()  # no map of a file may outlive the mount


@pytest.mark.parametrize("name", CLIENTS)
def test_client(cairn, name):
    """P2, P10: what a client saved it loads, on every way to come back."""
    if name.startswith("rsync") and not shutil.which("rsync"):
        pytest.skip("skipped: rsync is not installed")
    client = CLIENTS[name]()
    cairn.mount()
    directory = rig.mkdir(os.path.join(cairn.mnt, "data"))
    client.make(directory)
    gc.collect()
    check(client, directory)
    cairn.crash()
    check(client, directory)
    cairn.remount()
    check(client, directory)
    client_again = rig.mkdir(os.path.join(cairn.mnt, "again"))
    client.make(client_again)
    gc.collect()
    cairn.wait(cairn.mnt)
    cairn.power_cycle()
    check(client, directory)
    check(client, client_again)
    cairn.umount_whole()

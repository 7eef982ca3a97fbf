# SPDX-License-Identifier: Apache-2.0
"""Reading what lies in the remote only; what is kept of it on NVMe; what leaves NVMe, and what does not."""
import json
import mmap
import os
import random
import threading
import time

import pytest

import processes
import remote as remotes
import rig

MIB = 1 << 20

pytestmark = pytest.mark.needs_mount


@pytest.fixture
def remote(directory):
    """In a directory: the client of S3 has the same contract, and its own tests."""
    return remotes.DirRemote(os.path.join(directory, "remotes"))


def put(mount, name, seed, size):
    data = rig.seeded_bytes(seed, size)
    path = os.path.join(mount.mnt, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    rig.write_file(path, data)
    return data


def published(mount, files):
    """The files on the remote, the node gone; a mount on another."""
    mount.mount()
    data = {name: put(mount, name, seed, size) for seed, (name, size) in enumerate(files.items())}
    mount.wait_remote()
    mount.umount()
    return mount.fresh().mount(), data


def fetched(mount):
    return mount.remote_status()["fetched_bytes_total"]


def kept(mount):
    return mount.status()["nvme"]["pack_bytes"]


def same(mount, data):
    return [name for name, bytes_ in data.items() if rig.read_file(os.path.join(mount.mnt, name)) != bytes_]


def test_fresh_node_reads_every_byte(mount):
    """P5, P8: small, large, many, sparse."""
    files = {"empty": 0, "one": 1, "inline": 3000, "dir/odd": 5 * MIB + 7, "big": 70 * MIB} | {f"many/{i}": 40_000 for i in range(50)}
    fresh, data = published(mount, files)
    assert same(fresh, data) == []
    assert fetched(fresh) < 1.15 * sum(files.values())


def test_part_of_a_file_costs_little(mount):
    fresh, data = published(mount, {"big": 200 * MIB})
    with open(os.path.join(fresh.mnt, "big"), "rb", buffering=0) as file:
        for at in (150 * MIB + 123, 20 * MIB):
            file.seek(at)
            assert file.read(5000) == data["big"][at : at + 5000]
    assert fetched(fresh) <= 6 * MIB


def test_sequential_reader_is_served_ahead(mount):
    """Few and large requests, nothing twice."""
    fresh, data = published(mount, {"big": 200 * MIB})
    before = fresh.remote_status()["requests_total"]
    assert same(fresh, data) == []
    assert fetched(fresh) <= 210 * MIB
    assert fresh.remote_status()["requests_total"] - before < 100


def test_mapped_file_is_served_ahead(mount):
    fresh, data = published(mount, {"big": 100 * MIB})
    with open(os.path.join(fresh.mnt, "big"), "rb") as file:
        view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        assert view[:] == data["big"]
        view.close()
    assert fetched(fresh) <= 110 * MIB


def test_several_readers_at_once(mount, rng):
    fresh, data = published(mount, {f"f{i}": 30 * MIB for i in range(6)})
    wrong = []

    def read(name, dice):
        path, whole = os.path.join(fresh.mnt, name), data[name]
        with open(path, "rb", buffering=0) as file:
            for _ in range(20):
                at = dice.randrange(len(whole) - 100_000)
                if os.pread(file.fileno(), 100_000, at) != whole[at : at + 100_000]:
                    wrong.append((name, at))
        if rig.read_file(path) != whole:
            wrong.append(name)

    processes.in_threads(lambda one: read(*one), [(name, random.Random(rng.random())) for name in list(data) * 2])
    assert wrong == []


@pytest.mark.noise  # counts bytes as long as they are raw
def test_what_was_fetched_is_kept(mount, remote):
    """After a clean end, and after a kill a moment later, the remote is not needed any more."""
    fresh, data = published(mount, {"big": 60 * MIB, "small": 50_000})
    assert same(fresh, data) == []
    rig.poll(lambda: kept(fresh) >= 60 * MIB, 10, "what was fetched to be kept")
    time.sleep(2.5)  # the last of it follows within a second or two
    fresh.kill9()
    os.rename(remote.path, remote.path + ".gone")
    fresh.options.pop("remote")
    fresh.mount()
    assert same(fresh, data) == []


def test_file_in_the_remote_only_says_so(mount):
    fresh, data = published(mount, {"big": 3 * MIB})
    fresh.umount()
    fresh.options.pop("remote")
    fresh.mount()
    with pytest.raises(OSError):
        rig.read_file(os.path.join(fresh.mnt, "big"))
    assert any("in the remote only" in item["what"] for item in fresh.status()["damage"])


def test_cap_is_kept_by_eviction(mount):
    """More passes through than NVMe holds, written and then read; every byte is right."""
    mount.mount(nvme="200M")
    data = {}
    for i in range(10):
        data[f"f{i}"] = put(mount, f"f{i}", i, 40 * MIB)
        mount.wait_remote()
        assert mount.status()["nvme"]["used_bytes"] <= 200 * MIB
    assert mount.status()["nvme"]["evicted_bytes_total"] > 0
    processes.drop_pages()
    assert same(mount, data) == []
    processes.drop_pages()
    assert same(mount, data) == []
    assert mount.status()["nvme"]["used_bytes"] <= 200 * MIB
    mount.umount_whole()


def free(mount):
    info = os.statvfs(mount.mnt)
    assert info.f_bavail <= info.f_blocks
    return info.f_bavail * info.f_frsize


@pytest.mark.noise  # counts bytes as long as they are raw
def test_statfs_counts_what_eviction_frees(mount):
    """P10: what is free may still be written: what the remote has counts as free, but not what is pinned, nor what it lacks."""
    small = {"nvme": "300M"}
    mount.mount(**small, remote=None, endpoint_url=None, region=None, lease=None)
    empty = free(mount)
    data = {"a": put(mount, "a", 1, 100 * MIB)}
    mount.wait()
    assert free(mount) < empty - 90 * MIB, "there is no remote that has it"
    mount.remount(**small)
    mount.wait_remote()
    rig.poll(lambda: free(mount) > empty - 60 * MIB, 30, "what is published to count as free")
    pinned = os.path.join(mount.mnt, "a")
    os.setxattr(pinned, "user.cairn.pin", b"1")
    rig.poll(lambda: free(mount) < empty - 90 * MIB, 30, "what is pinned to count as used")
    os.removexattr(pinned, "user.cairn.pin")
    rig.poll(lambda: free(mount) > empty - 60 * MIB, 30, "what is no longer pinned to count as free")
    status = mount.status()["nvme"]
    assert free(mount) > status["available_bytes"] + 50 * MIB and status["evictable_bytes"] > 50 * MIB
    assert "more after eviction" in mount.cairn("status", mount.mnt).stdout
    data["b"] = put(mount, "b", 2, free(mount) - 32 * MIB)  # all but a margin of a pack is taken
    assert same(mount, data) == []


def test_pinned_files_stay(mount):
    mount.mount(nvme="300M")
    data = {"run/pinned": put(mount, "run/pinned", 99, 50 * MIB)}
    os.setxattr(os.path.join(mount.mnt, "run"), "user.cairn.pin", b"1")
    mount.wait_remote()
    for i in range(6):
        data[f"f{i}"] = put(mount, f"f{i}", i, 60 * MIB)
        mount.wait_remote()
    processes.drop_pages()
    mount.remount(nvme="300M")
    before = fetched(mount)
    assert rig.read_file(os.path.join(mount.mnt, "run/pinned")) == data["run/pinned"]
    assert fetched(mount) == before
    assert "pinned" in mount.verb("evict", os.path.join(mount.mnt, "run"), code=1).stderr
    assert same(mount, data) == []


def disk_usage(store, directories):
    paths = (os.path.join(top, name) for directory in directories for top, _, names in os.walk(os.path.join(store, directory))
             for name in names)
    return sum(os.lstat(path).st_blocks * 512 for path in paths if os.path.exists(path))


def test_runs_take_room(mount):
    """P9: what is kept of the namespace for the next mount counts as used, too."""
    mount.mount()
    for i in range(300):
        path = rig.write_file(os.path.join(mount.mnt, f"f{i}"), b"x")
        os.setxattr(path, "user.noise", rig.seeded_bytes(i, 60_000))
    mount.wait_remote()
    assert disk_usage(mount.store, ["runs"]) > 16 * MIB

    def missing():
        return disk_usage(mount.store, ["packs", "journal", "view", "runs"]) - mount.status()["nvme"]["used_bytes"]

    rig.poll(lambda: abs(missing()) < 4 * MIB, 20, "all of it to be counted", 0.2)


@pytest.mark.parametrize("how", ["file", "directory", "moved"])
def test_a_pin_holds_at_once(mount, how):
    """Whatever is still on its way to NVMe."""
    mount.mount(writeback_delay="60s")
    path, run = os.path.join(mount.mnt, "file"), os.path.join(mount.mnt, "run")
    os.mkdir(run)
    os.setxattr(run, "user.cairn.pin", b"1" if how == "moved" else b"0")
    data = put(mount, "run/file" if how == "directory" else "file", 1, 8 * MIB)
    mount.wait_remote()
    if how == "moved":
        os.rename(path, os.path.join(run, "file"))
    else:
        os.setxattr(run if how == "directory" else path, "user.cairn.pin", b"1")
    path = path if how == "file" else os.path.join(run, "file")
    done = mount.cairn("evict", path, "--timeout", "20s")
    processes.drop_pages()
    before = fetched(mount)
    assert rig.read_file(path) == data
    assert fetched(mount) == before, done
    assert done.returncode == 1 and "pinned" in done.stderr, done


@pytest.mark.noise  # counts bytes as long as they are raw
def test_evict_and_warmup(mount):
    mount.mount()
    data = {f"dir/{i}": put(mount, f"dir/{i}", i, 20 * MIB) for i in range(3)} | {"other": put(mount, "other", 9, 20 * MIB)}
    mount.wait_remote()
    path = os.path.join(mount.mnt, "dir")
    done = mount.cairn("evict", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert kept(mount) < 40 * MIB
    mount.remount()
    processes.drop_pages()
    assert rig.read_file(os.path.join(mount.mnt, "other")) == data["other"]
    assert fetched(mount) == 0
    done = mount.cairn("warmup", "--json", path, os.path.join(mount.mnt, "other"))
    assert (done.returncode, done.stderr) == (0, "")
    results = {one.pop("path"): one for one in json.loads(done.stdout)}
    assert results[path]["complete"] and results[path]["done_bytes"] == results[path]["total_bytes"] >= 60 * MIB
    assert results[os.path.join(mount.mnt, "other")]["complete"] and len(results) == 2
    before = fetched(mount)
    assert before >= 60 * MIB and kept(mount) >= 80 * MIB
    assert same(mount, data) == []
    assert fetched(mount) == before


@pytest.mark.noise  # counts bytes as long as they are raw
def test_links_are_not_followed(mount, directory):
    """A snapshot of a Hugging Face cache has links to blobs beside it: warmup, pins and `cp -r` take the directory above, and say so."""
    mount.mount()
    model, blob = (os.path.join(mount.mnt, name) for name in ("models--a", "models--a/blobs/x"))
    snapshot = os.path.join(model, "snapshots/rev")
    os.makedirs(snapshot)
    data = {"models--a/blobs/x": put(mount, "models--a/blobs/x", 1, 8 * MIB)}
    os.symlink("../../blobs/x", os.path.join(snapshot, "model.safetensors"))
    mount.wait_remote()
    source = f"{mount.remote.url}:models--a"
    os.mkdir(os.path.join(directory, "copies"))
    mount.verb("cp", "-r", source + "/snapshots", source, os.path.join(directory, "copies"))
    assert os.readlink(os.path.join(directory, "copies/snapshots/rev/model.safetensors")) == "../../blobs/x"
    assert rig.read_file(os.path.join(directory, "copies/models--a/snapshots/rev/model.safetensors")) == data["models--a/blobs/x"]
    os.setxattr(snapshot, "user.cairn.pin", b"1")
    mount.remount()
    assert mount.cairn("evict", blob).returncode == 0, "it is not pinned"
    processes.drop_pages()
    mount.verb("warmup", snapshot)
    assert fetched(mount) == 0
    mount.verb("warmup", model)
    assert fetched(mount) >= 8 * MIB and same(mount, data) == []
    assert "Of a Hugging Face cache name\nthe whole models--* directory" in mount.verb("help", "warmup").stdout
    assert "symbolic links are kept" in mount.verb("help", "cp").stdout


def test_evict_says_what_is_not_in_the_remote(mount):
    mount.mount(upload_limit="64K")
    put(mount, "first", 1, 20 * MIB)
    # What comes after it has to wait for minutes. No reader waits for this one: that would lift the limit, and it would not count.
    first = os.path.join(mount.mnt, "first")
    rig.poll(lambda: os.getxattr(first, "user.cairn.level") == b"remote", 60, "the first file in the remote", 0.1)
    put(mount, "big", 2, 20 * MIB)
    mount.wait()
    done = mount.verb("evict", "--json", os.path.join(mount.mnt, "big"), "--timeout", "20s", code=1)
    [result] = json.loads(done.stdout)
    assert not result["complete"] and not result["timed_out"] and result["unpublished_bytes"] + result["busy_bytes"] > 0
    assert "the remote does not have them yet" in done.stderr or "in use" in done.stderr


def test_evict_and_warmup_without_a_remote(request, mount_factory, directory):
    mount = mount_factory(directory, request=request)
    mount.mount()
    for verb in ("evict", "warmup"):
        assert "no remote" in mount.verb(verb, mount.mnt, code=1).stderr
        assert mount.cairn(verb).returncode == 2
        assert mount.cairn(verb, "/proc").returncode == 2
    mount.umount()


def spoil(directory):
    """All of every pack but its header and its index."""
    for name in os.listdir(directory):
        with open(os.path.join(directory, name), "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(4096)
            file.write(b"\x5a" * (size - 4096 - 16384))


def test_damaged_chunk_is_healed_from_the_remote(mount, remote):
    """P8: read from where it is good, and stored anew where it was not."""
    mount.mount()
    data = {"big": put(mount, "big", 1, 30 * MIB)}
    mount.wait_remote()
    mount.umount()
    spoil(os.path.join(mount.store, "packs"))
    assert mount.fsck().returncode != 0
    mount.mount()
    assert same(mount, data) == []
    assert mount.status()["damage"] == []
    rig.poll(lambda: mount.status()["nvme"]["healed_chunks_total"] > 0, 10, "healing")
    mount.umount()
    mount.drop_stage()
    assert mount.fsck().returncode == 0
    os.rename(remote.path, remote.path + ".gone")
    mount.options.pop("remote")
    mount.mount()
    assert same(mount, data) == []


def test_damage_in_the_remote_is_never_shown(mount, remote):
    """P8: EIO, never a wrong byte."""
    fresh, _ = published(mount, {"big": 8 * MIB})
    fresh.umount()
    fresh.wipe()
    spoil(os.path.join(remote.path, "packs"))
    fresh.mount()
    with open(os.path.join(fresh.mnt, "big"), "rb", buffering=0) as file, pytest.raises(OSError):
        file.read(MIB)
    assert fresh.status()["damage"]


@pytest.mark.timeout(300)
def test_killed_while_it_fetches(mount, rng, request):
    fresh, data = published(mount, {f"f{i}": 25 * MIB for i in range(4)})
    for _ in range(30 if request.config.getoption("--full") else 4):
        thread = threading.Thread(target=lambda: tolerate(lambda: same(fresh, data)))
        thread.start()
        time.sleep(rng.random() * 1.5)
        fresh.kill9()
        thread.join()
        fresh.mount()
    assert same(fresh, data) == []
    fresh.umount_whole()


def tolerate(function):
    try:
        function()
    except OSError:
        pass


@pytest.mark.timeout(300)
def test_killed_while_it_evicts(mount, rng, request):
    mount.mount(nvme="300M")
    data = {f"f{i}": put(mount, f"f{i}", i, 40 * MIB) for i in range(3)}
    mount.wait_remote()
    for turn in range(30 if request.config.getoption("--full") else 4):
        for name in [f"f{i}" for i in range(len(data), len(data) + 2)]:
            data[name] = put(mount, name, len(data), 40 * MIB)
        thread = threading.Thread(target=mount.cairn, args=("evict", mount.mnt, "--timeout", "5s"))
        thread.start()
        time.sleep(rng.random())
        mount.kill9()
        thread.join()
        mount.mount(nvme="300M")
    mount.wait_remote()
    assert same(mount, data) == []
    mount.umount_whole()

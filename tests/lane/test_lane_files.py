# SPDX-License-Identifier: Apache-2.0
"""The files that libcairn makes, on a mount and elsewhere: whole or not there, in order, whatever dies, stops or is full meanwhile."""
import contextlib
import errno
import json
import os
import shutil
import stat
import struct
import subprocess
import sys
import threading
import time
import zipfile

import pytest

import library
import rig
from checks import data_of, expect_error, read
from library import COPIED, HOLD, NVME, PUBLISHED, URGENT, LaneError
from rig import MIB

HERE = os.path.dirname(os.path.abspath(__file__))
OLD = b"the version of before"


@pytest.fixture
def lane(build):
    """No test leaves errors that were not reported."""
    lane = library.Lane(build)
    yield lane
    while lane.lane and lane.take_error():
        pass
    lane.close()


# --- content ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("now", (False, True))
def test_a_zip_is_what_torch_saves(lane, directory, now):
    torch = pytest.importorskip("torch")
    path, reference = os.path.join(directory, "x.pt"), os.path.join(directory, "reference", "x.pt")
    os.mkdir(os.path.dirname(reference))
    tensors = {"big": torch.randn(1 << 20), "odd": torch.randn(77777)[3:], "small": torch.randn(3), "none": torch.empty(0), "step": 5}
    torch.save(tensors, reference)
    with zipfile.ZipFile(reference) as archive:
        records = [(entry.filename.split("/", 1)[1], archive.read(entry)) for entry in archive.infolist()]
    lane.zip(path, records, now=now).wait()
    assert read(path) == read(reference)
    loaded = torch.load(path, mmap=True, weights_only=True)
    assert torch.equal(loaded["big"], tensors["big"]) and torch.equal(loaded["odd"], tensors["odd"])


def test_a_safetensors_file_is_read_by_its_library(lane, directory):
    load_file = pytest.importorskip("safetensors.torch").load_file
    torch = pytest.importorskip("torch")
    a, b = torch.randn(300, 1000), torch.arange(7, dtype=torch.int64)
    a_bytes, b_bytes = a.numpy().tobytes(), b.numpy().tobytes()
    header = {"a": {"dtype": "F32", "shape": [300, 1000], "data_offsets": [0, len(a_bytes)]},
              "b": {"dtype": "I64", "shape": [7], "data_offsets": [len(a_bytes), len(a_bytes) + len(b_bytes)]}}
    path = os.path.join(directory, "m.safetensors")
    lane.safetensors(path, json.dumps(header).encode(), [(0, a_bytes), (len(a_bytes), b_bytes)]).wait()
    loaded = load_file(path)
    assert torch.equal(loaded["a"], a) and torch.equal(loaded["b"], b)
    assert struct.unpack("<Q", read(path)[:8])[0] % 8 == 0
    expect_error(errno.EINVAL, lane.safetensors, path, b"[1]", [])


def test_pieces_in_any_order_with_holes(lane, directory):
    path, first, second = os.path.join(directory, "raw"), data_of(1, 3 * MIB + 5), data_of(2, 100)
    save = lane.begin(path, 8 * MIB)
    save.put(8 * MIB - 100, second, now=True)
    save.put(17, first)
    expect_error(errno.EINVAL, save.put, 8 * MIB - 99, second)
    save.commit()
    save.wait()
    expect_error(errno.EINVAL, save.put, 0, second)
    assert read(path) == bytes(17) + first + bytes(8 * MIB - 17 - len(first) - 100) + second


def test_memory_that_is_copied_now_may_change(lane, directory):
    for size in (1000, 2 * MIB):
        path = os.path.join(directory, f"now{size}")
        memory = bytearray(data_of(size, size))
        source = (library.ctypes.c_char * size).from_buffer(memory)
        before = bytes(memory)
        save = lane.begin(path, size)
        save.put(0, source, now=True)
        memory[:] = bytes(size)
        save.commit()
        save.wait()
        assert read(path) == before


# --- names --------------------------------------------------------------------------------------------------------------------------


def on_both(test):
    return pytest.mark.parametrize("place", ("mount", "directory"))(test)


@pytest.fixture
def where(request, place):
    return request.getfixturevalue("mnt") if place == "mount" else request.getfixturevalue("directory")


@on_both
def test_a_name_appears_with_the_last_byte(lane, where):
    path, data = os.path.join(where, "f"), data_of(1, 5 * MIB)
    rig.write_file(path, OLD)
    save = lane.begin(path, len(data))
    save.put(0, data[: 4 * MIB])
    save.wait(COPIED)
    assert read(path) == OLD and os.listdir(where) == ["f"], "the file before its last piece"
    save.put(4 * MIB, data[4 * MIB :])
    save.wait(COPIED)
    assert read(path) == OLD, "the file before commit"
    save.commit()
    save.wait()
    assert read(path) == data and os.listdir(where) == ["f"]


@on_both
def test_a_name_is_never_there_before_its_bytes(lane, where):
    """A reader that sees the name reads all of it, at whatever moment."""
    for i in range(5):
        path, data = os.path.join(where, f"f{i}"), data_of(i, 24 * MIB)
        save = lane.raw(path, data)
        rig.poll(lambda path=path: os.path.exists(path), what="the name", step=0)
        assert read(path) == data, "the name was there before the bytes"
        save.wait()


@on_both
def test_a_fence_waits_for_the_copies(lane, where):
    for i in range(5):
        path, memory = os.path.join(where, f"f{i}"), bytearray(data_of(i, 24 * MIB))
        before = bytes(memory)
        save = lane.raw(path, (library.ctypes.c_char * len(memory)).from_buffer(memory))
        lane.fence()
        memory[-MIB:] = bytes(MIB)  # the copy comes there last
        save.wait()
        assert read(path) == before, "the fence did not wait"


@on_both
def test_a_held_save_waits_for_its_commit(lane, where):
    path = os.path.join(where, "f.zip")
    save = lane.zip(path, [("a", data_of(1, 2 * MIB))], flags=HOLD)
    save.wait(COPIED)
    expect_error(errno.ETIMEDOUT, save.wait, PUBLISHED, timeout_ms=50)
    assert not os.path.exists(path)
    save.commit()
    save.wait()
    torn = lane.zip(path, [("a", data_of(2, 2 * MIB))], flags=HOLD)
    torn.fail(errno.EUCLEAN, b"the source changed")
    assert "the source changed" in lane.take_error()[1] and lane.take_error() is None
    with zipfile.ZipFile(path) as archive:
        assert archive.read("f/a") == data_of(1, 2 * MIB)


def flags_below(directory):
    """Of what this process has open there."""
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(f"/proc/self/fd/{fd}").startswith(directory + "/"):
                yield int(rig.read_file(f"/proc/self/fdinfo/{fd}").split()[3], 8)


@on_both
@pytest.mark.parametrize("flags", [0, URGENT], ids=["lazy", "urgent"])
def test_an_urgent_save_is_direct_on_a_mount(lane, place, where, flags):
    """Its threads write at once there; elsewhere O_DIRECT would refuse its pieces."""
    path, data = os.path.join(where, "f"), data_of(1, 3 * MIB + 17)
    save = lane.begin(path, len(data), flags=flags)
    save.put(3, data[3:])
    save.wait(COPIED)
    assert [bool(given & os.O_DIRECT) for given in flags_below(where)] == [flags == URGENT and place == "mount"]
    save.put(0, data[:3])
    save.commit()
    save.wait()
    assert read(path) == data


@on_both
def test_saves_of_one_name_keep_their_order(lane, where):
    path = os.path.join(where, "f")
    first = lane.begin(path, 3)
    others = [lane.raw(path, b"%03d" % i) for i in range(20)]
    others[-1].wait(COPIED)
    assert not os.path.exists(path), "a later save came first"
    first.put(0, b"one")
    first.commit()
    others[-1].wait()
    assert read(path) == b"019"


@on_both
def test_a_marker_comes_after_its_saves(lane, where):
    path, latest = os.path.join(where, "f"), os.path.join(where, "latest")
    rig.write_file(latest, OLD)
    save = lane.begin(path, 3)
    marker = lane.marker(latest, b"f", after=[save])
    expect_error(errno.ETIMEDOUT, marker.wait, timeout_ms=100)
    assert read(latest) == OLD, "the marker came before its save"
    save.put(0, b"abc")
    save.commit()
    marker.wait()
    assert read(latest) == b"f" and read(path) == b"abc"


@on_both
def test_a_failed_save_fails_its_marker(lane, where):
    path, latest = os.path.join(where, "f"), os.path.join(where, "latest")
    rig.write_file(latest, OLD)
    save = lane.begin(path, 3)
    marker = lane.marker(latest, b"f", after=[save])
    last = lane.marker(os.path.join(where, "last"), b"f", after=[marker])
    save.fail(errno.EUCLEAN, b"the source changed")
    number, text = last.error()
    assert number == errno.ECANCELED and "the source changed" in text
    assert marker.error()[0] == errno.ECANCELED
    assert read(latest) == OLD and os.listdir(where) == ["latest"]
    assert lane.take_error()[0] == errno.EUCLEAN and lane.take_error() is None
    number, text = lane.marker(os.path.join(where, "late"), b"f", after=[save]).error()
    assert number == errno.ECANCELED and "the source changed" in text


@on_both
def test_paths_lead_where_open_leads(lane, where, monkeypatch):
    for name in ("d", "other", "deep/directory"):
        os.makedirs(os.path.join(where, name))
    os.symlink("d/target", os.path.join(where, "link"))
    lane.raw(os.path.join(where, "link"), b"through a link").wait()
    assert read(os.path.join(where, "d/target")) == b"through a link" and os.path.islink(os.path.join(where, "link"))
    monkeypatch.chdir(os.path.join(where, "d"))
    save = lane.begin("relative", 4)
    monkeypatch.chdir(os.path.join(where, "other"))
    save.put(0, b"here")
    save.commit()
    save.wait(NVME)
    assert read(os.path.join(where, "d/relative")) == b"here" and os.listdir(".") == []
    for path, number in (("", errno.ENOENT), (where, errno.EISDIR), ("gone/x", errno.ENOENT), ("../link/x", errno.ENOTDIR),
                         ("n" * 256, errno.ENAMETOOLONG)):
        expect_error(number, lane.begin, path, 1)
    lane.raw(os.path.join(where, "l" * 255), OLD).wait()
    lane.raw(os.path.join(where, "l" * 255), b"again").wait()
    assert read(os.path.join(where, "l" * 255)) == b"again"


@on_both
def test_directories_that_go_and_come_meanwhile(lane, where):
    gone = rig.mkdir(os.path.join(where, "gone"))
    save = lane.begin(os.path.join(gone, "f"), 1)
    os.rmdir(gone)
    save.commit()
    number, text = save.error()
    assert number == errno.ENOENT and gone in text
    save = lane.begin(os.path.join(where, "f"), 1)
    os.mkdir(os.path.join(where, "f"))
    save.commit()
    assert save.error()[0] in (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST)
    assert os.listdir(where) == ["f"], "a hidden name stayed"


@on_both
def test_modes_and_exclusive_names(lane, where):
    path = os.path.join(where, "f")
    mask = os.umask(0o027)
    try:
        lane.raw(path, b"1").wait()
        lane.raw(os.path.join(where, "g"), b"1", mode=0o600).wait()
    finally:
        os.umask(mask)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640 and stat.S_IMODE(os.stat(os.path.join(where, "g")).st_mode) == 0o600
    number, _ = lane.raw(path, b"2", flags=library.EXCLUSIVE).error()
    assert number == errno.EEXIST and read(path) == b"1"
    lane.raw(os.path.join(where, "new"), b"2", flags=library.EXCLUSIVE).wait()
    assert sorted(os.listdir(where)) == ["f", "g", "new"]


def test_what_is_no_file(lane, directory):
    data = data_of(1, 2 * MIB)
    lane.raw("/dev/null", data).wait()
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode), "a device was replaced"
    save = lane.begin("/dev/full", len(data))
    save.put(0, data)
    assert save.error()[0] == errno.ENOSPC
    fifo, got = os.path.join(directory, "fifo"), []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: got.append(read(fifo)))
    reader.start()
    lane.raw(fifo, data).wait()
    reader.join()
    assert got == [data] and stat.S_ISFIFO(os.stat(fifo).st_mode)
    closing = threading.Thread(target=lambda: os.close(os.open(fifo, os.O_RDONLY)))
    closing.start()
    save = lane.begin(fifo, len(data))
    closing.join()
    save.put(0, data)
    expect_error(errno.EPIPE, save.commit)  # and no signal


# --- processes that end -------------------------------------------------------------------------------------------------------------

TRAINER = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
import library
lane = library.Lane(sys.argv[2])
path, data = sys.argv[3], bytes([7]) * (8 << 20)
save = lane.begin(path, 2 * len(data))
save.put(0, data)
save.wait(library.COPIED)
print("half", flush=True)
sys.stdin.readline()
for step in range(1000000):
    lane.zip(path + ".zip", [("a", bytes([step % 251]) * (4 << 20))], flags=library.CLEAN).wait()
    if step == 3:
        print("going", flush=True)
"""


def trainer(build, path):
    return subprocess.Popen([sys.executable, "-c", TRAINER, HERE, build, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def kill(process):
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


@on_both
def test_a_killed_trainer_leaves_what_was_there(build, where, rng):
    path = rig.write_file(os.path.join(where, "f"), OLD)
    process = trainer(build, path)
    assert process.stdout.readline() == b"half\n"
    kill(process)
    rig.poll(lambda: os.listdir(where) == ["f"], what="nothing of the file is left")
    assert read(path) == OLD
    for _ in range(4):
        process = trainer(build, path)
        assert process.stdout.readline() == b"half\n"
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"going\n"
        time.sleep(rng.random() * 0.2)
        kill(process)
        with zipfile.ZipFile(path + ".zip") as archive:
            data = archive.read("f/a")
        assert data == data[:1] * (4 << 20), "of two steps"
        assert read(path) == OLD


def test_what_killed_processes_left_is_taken_away(lane, directory):
    """By CAIRN_SAVE_CLEAN: hidden names of processes that are gone, but for those that are still open."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = [f".x.cairn-{dead.pid}-1", f".x.pt.cairn-{dead.pid}-22"]
    others = [f".x.cairn-{os.getpid()}-7", f".cairn-{dead.pid}", f".x.cairn-{dead.pid}-1x", f"x.cairn-{dead.pid}-1",
              f".x.cairn-{dead.pid}-9"]
    for name in left + others:
        rig.write_file(os.path.join(directory, name), OLD)
    with open(os.path.join(directory, others[-1]), "rb") as held:
        import fcntl

        fcntl.flock(held, fcntl.LOCK_EX)  # as its process does, in another container
        lane.raw(os.path.join(directory, "f"), b"1", flags=library.CLEAN).wait()
    assert sorted(os.listdir(directory)) == sorted(["f", *others])


def test_a_child_is_told_that_the_lane_is_not_its_own(lane, directory):
    save = lane.begin(os.path.join(directory, "f"), 2 * MIB)
    save.put(0, data_of(1, MIB))
    child = os.fork()
    if child == 0:
        errors = []
        for call in (lambda: lane.begin("x", 1), lambda: save.put(0, b"x"), save.commit, lane.fence, lane.stats, save.wait):
            try:
                call()
                errors.append(0)
            except LaneError as error:
                errors.append(error.errno)
        lane.lib.cairn_save_free(save.save)
        closed = lane.lib.cairn_lane_close(lane.lane)
        os._exit(0 if errors == [errno.ECHILD] * 6 and closed == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0
    save.put(MIB, data_of(2, MIB))
    save.commit()
    save.wait()
    assert read(os.path.join(directory, "f")) == data_of(1, MIB) + data_of(2, MIB)


def test_the_end_of_a_lane(build, directory):
    lane = library.Lane(build)
    saves = [lane.raw(os.path.join(directory, f"f{i}"), data_of(i, 3 * MIB)) for i in range(5)]
    held = lane.begin(os.path.join(directory, "held"), 1)
    expect_error(errno.EIO, lane.close)
    assert sorted(os.listdir(directory)) == [f"f{i}" for i in range(5)], "close waits for names, and commits nothing"
    assert held.error()[0] == errno.ECANCELED
    saves[0].wait()
    for save in [*saves, held]:
        lane.lib.cairn_save_free(save.save)


# --- the library itself -------------------------------------------------------------------------------------------------------------


def test_the_library_needs_no_cuda_shows_its_calls_and_ends_nobody(build):
    path = library.path_in(build)
    needed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    assert "libcuda" not in needed and "rocksdb" not in needed
    names = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    shown = {line.split()[2].split("@")[0] for line in names.splitlines() if line.split()[1] == "T"}
    with open(os.path.join(HERE, "..", "..", "include", "cairn", "cairn.h")) as header:
        declared = {line.split("(")[0].split()[-1].lstrip("*") for line in header if line.startswith("CAIRN_API")}
    assert shown == declared
    names = subprocess.run(["nm", "-D", "--undefined-only", path], capture_output=True, text=True, check=True).stdout
    assert not {line.split()[-1].split("@")[0] for line in names.splitlines()} & {"exit", "_exit", "_Exit", "quick_exit"}


@pytest.mark.parametrize("compiler", (["gcc", "-std=c11"], ["clang", "-std=c11"], ["g++", "-std=c++11"], ["clang++", "-std=c++17"]),
                         ids=" ".join)
def test_the_header_compiles_alone(compiler, tmp_path):
    if not shutil.which(compiler[0]):
        pytest.skip(f"skipped: no {compiler[0]}")
    header = os.path.join(HERE, "..", "..", "include", "cairn", "cairn.h")
    language = "c++" if "++" in compiler[0] else "c"
    source = tmp_path / "alone"
    source.write_text(f'#include "{os.path.abspath(header)}"\nint main(void) {{ return CAIRN_API_VERSION - 1; }}\n')
    command = [*compiler, "-x", language, "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-fsyntax-only", str(source)]
    assert subprocess.run(command, capture_output=True, text=True).stderr == ""


@on_both
def test_the_example_runs(build, where, tmp_path):
    source = os.path.join(HERE, "..", "..", "docs", "examples", "save.c")
    program = str(tmp_path / "save")
    subprocess.run(["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", source, "-I", os.path.join(HERE, "..", "..", "include"),
                    library.path_in(build), f"-Wl,-rpath,{os.path.dirname(library.path_in(build))}", "-o", program], check=True)
    said = subprocess.run([program, where, "3"], capture_output=True, text=True, check=True).stderr
    elsewhere = f"libcairn warning: {where}/step1.zip is not on CairnFS: it is saved all the same\n"
    assert said == ("" if os.path.ismount(where) else elsewhere), "that it is elsewhere is said once"
    assert (sorted(os.listdir(where)) == ["latest", "step1.zip", "step2.zip", "step3.zip"]
            and read(os.path.join(where, "latest")) == b"step3.zip")
    for step, sum_of_steps in ((1, 1.0), (3, 6.0)):
        with zipfile.ZipFile(os.path.join(where, f"step{step}.zip")) as archive:
            assert struct.unpack("<i", archive.read(f"step{step}/step")) == (step,)
            assert archive.read(f"step{step}/weights") == struct.pack("<f", sum_of_steps) * (1 << 20)
    names = [f"libcairn debug: {where}/{name} has its name\n" for name in ("step1.zip", "latest")]
    for level, lines in (("debug", [*([] if os.path.ismount(where) else [elsewhere]), *names]), ("error", [])):
        done = subprocess.run([program, where, "1"], env={**os.environ, "CAIRN_LOG": level}, capture_output=True, text=True, check=True)
        assert done.stderr == "".join(lines)
    done = subprocess.run([program, os.path.join(where, "gone")], capture_output=True, text=True)
    assert done.returncode == 1 and "No such file or directory" in done.stderr

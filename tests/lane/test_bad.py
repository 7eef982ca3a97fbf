# SPDX-License-Identifier: Apache-2.0
"""Bad input: the exceptions are torch.save's, the older version stays, the training goes on."""
import contextlib
import io
import os
import sys
import threading
import time
import warnings
import zipfile

import pytest
import torch

import rig
from training import Training


class Odd:
    def __reduce__(self):
        raise LookupError("odd")


def two_types():
    whole = torch.zeros(100)
    return [whole.untyped_storage(), whole]


OBJECTS = {
    "function": lambda: (lambda: 1),
    "generator": lambda: (x for x in ()),
    "reduce": Odd,
    "two types of one memory": two_types,
    "non-leaf": lambda: torch.ones(3, requires_grad=True) * 2,
    "deep": lambda: __import__("functools").reduce(lambda inner, _: [inner], range(100_000), []),
}


def outcome(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        # which call it was that found no room on the stack depends on how deep the caller is
        return type(error), str(error).split("\n")[0].split(" at 0x")[0].split("(Raised at")[0].split(" while pickling")[0]
    return None


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_that_torch_refuses(lane, directory, name):
    """The same exception, before anything is touched: the older version stays, where torch.save leaves a torn one."""
    obj, path = OBJECTS[name](), os.path.join(directory, "state.pt")
    lane.save({"a": 1}, path).result()
    expected = outcome(torch.save, obj, os.path.join(directory, "theirs"))
    assert outcome(lane.save, obj, path) == expected
    assert expected is None or torch.load(path) == {"a": 1}


@pytest.mark.parametrize("name", ["missing/state.pt", "file/state.pt", "directory", "x" * 300, "", "directory/"])
def test_paths_that_torch_refuses(lane, directory, name):
    """Missing directory, a file in the place of a directory, a directory, a name that is too long."""
    os.mkdir(os.path.join(directory, "directory"))
    rig.write_file(os.path.join(directory, "file"), b"x")
    path = os.path.join(directory, name) if name else ""
    expected = outcome(torch.save, {"a": 1}, path)
    assert expected is not None and outcome(lane.save, {"a": 1}, path) == expected
    assert sorted(os.listdir(directory)) == ["directory", "file"]


def test_no_permission(lane, directory, python):
    """A directory that may not be written: torch.save's exception."""
    os.chmod(directory, 0o555)
    code = f"""
import os, torch, cairnfs
os.setgid(65534); os.setuid(65534)
found = []
for save in (torch.save, cairnfs.save):
    try:
        save({{"a": 1}}, {directory!r} + "/state.pt")
    except Exception as error:
        found.append((type(error), str(error).split(chr(10))[0]))
assert len(found) == 2 and found[0] == found[1], found
"""
    rig.need_root()
    done = python.run(code, [], {"HOME": "/tmp"})
    if "Permission" in done.stderr and "import" in done.stderr:
        pytest.skip("skipped: this Python is not readable by others")
    assert done.returncode == 0, done.stderr[-2000:]


def test_what_is_no_regular_file(lane, directory):
    """A symbolic link stays one; /dev/null takes it; to an open file torch writes."""
    target, link = os.path.join(directory, "target.pt"), os.path.join(directory, "link.pt")
    os.symlink(target, link)
    for turn in range(2):
        lane.save({"a": turn}, link).result()
        assert os.path.islink(link) and torch.load(target) == {"a": turn}
    lane.wait(link, timeout=20)
    save = lane.save({"a": 3}, link)
    lane.wait(target, timeout=20)
    assert save.published()
    lane.save({"a": 1}, "/dev/null").result()
    assert not os.path.isfile("/dev/null")
    theirs, ours = (os.path.join(directory, name) for name in ("theirs.pt", "ours.pt"))
    for link, save in ((theirs, torch.save), (ours, lambda *given: lane.save(*given).result())):
        os.symlink("other.pt", link)
        save({"a": 1}, link)
        with zipfile.ZipFile(link) as archive:
            assert archive.namelist()[0] == os.path.basename(link)[:-3] + "/data.pkl", "it has the name of the link, not of the target"
    save = lane.save({"a": 1}, buffer := io.BytesIO())
    assert save.published() and save.result() is buffer and torch.load(io.BytesIO(buffer.getvalue())) == {"a": 1}
    with pytest.raises(TypeError, match="not to a BytesIO"):
        lane.save({"a": torch.ones(1)}, buffer, format="safetensors")


@pytest.mark.timeout(200)
def test_full(lane, cairn):
    """NVMe and stage are full: saves fail with ENOSPC, training goes on, the older version stays; with room the next save is whole."""
    cairn.mount(stage="64M", nvme="128M")
    training, path = Training(), os.path.join(cairn.mnt, "state.pt")
    lane.save({"a": 1}, path).result()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            begin = time.monotonic()
            save = lane.save({**training.state(), "noise": torch.rand(25 << 20)}, path, lazy="all", max_block=0.5)
            training.step()
            assert time.monotonic() - begin < 20 * rig.PATIENCE
            assert isinstance(save.exception(), OSError), "100 MB fitted"
    assert torch.load(path) == {"a": 1} and os.listdir(cairn.mnt) == ["state.pt"]
    rig.poll(lambda: lane.save({"a": 2}, path).exception() is None, 30, "room that the failed saves gave back")
    assert torch.load(path) == {"a": 2}


def fill(path):
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        while True:
            file.write(os.urandom(rig.MIB))


@pytest.mark.timeout(200)
def test_full_for_hours(lane, cairn, directory):
    """NVMe and stage are full of what a remote gets slowly: neither a call nor a fence nor an abort waits for that."""
    cairn.mount(stage="64M", nvme="200M", remote=f"dir:{directory}/remote", upload_limit="16K")
    training, path = Training(1 << 20), os.path.join(cairn.mnt, "state.pt")
    lane.save({"a": 1}, path).result()
    rig.write_file(os.path.join(cairn.mnt, "sealed"), rig.noise("sealed", 100 * rig.MIB))
    writer = threading.Thread(target=fill, args=(os.path.join(cairn.mnt, "big"),))
    writer.start()
    rig.poll(lambda: is_stuck(cairn), 60, "the store to be full")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for lazy in ("all", "all", True):
            begin = time.monotonic()
            save = lane.save(training.state(), path, lazy=lazy, max_block=0.5)
            training.step()
            assert time.monotonic() - begin < 20 * rig.PATIENCE
            assert save.cancel() and isinstance(save.exception(), OSError)
    assert torch.load(path) == {"a": 1}
    cairn.kill9()
    writer.join()


def is_stuck(cairn):
    before = cairn.status()["nvme"]["written_bytes_total"]
    time.sleep(0.5)  # shows that nothing moves: there is no event to wait for; the caller polls
    status = cairn.status()
    nvme = status["nvme"]
    return status["stage"]["waiting_writers"] > 0 and nvme["written_bytes_total"] == before and nvme["available_bytes"] < rig.MIB


def test_arguments(lane, directory):
    """A wrong word is an error at once."""
    for options in ({"lazy": "some"}, {"format": "json"}, {"on_error": "cry"}):
        with pytest.raises(ValueError):
            lane.save({}, os.path.join(directory, "x"), **options)
    with pytest.raises(ValueError):
        lane.wait(level="there")
    assert os.listdir(directory) == []


FAILS = """
import os, sys, torch, cairnfs
from cairnfs import _process
model = torch.nn.Linear(1500, 1500)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 1500)).sum().backward()
optimizer.step()
with _process.lock():  # so that the save is not looked at before this
    save = cairnfs.save(model.state_dict(), sys.argv[1] + "/state.pt")
    if sys.argv[3] == "change":
        with torch.no_grad():
            model.weight.add_(1)
    else:
        os.rmdir(sys.argv[1])
if sys.argv[2] == "step":
    while not save.done():
        pass
    optimizer.step()
    optimizer.step()
"""


@pytest.mark.parametrize("when, how", [("step", "gone"), ("end", "gone"), ("step", "change")])
def test_a_failed_save_is_told_once(lane, directory, python, when, how):
    """On standard error: by the warning at the next step, or else at the end of the process."""
    os.mkdir(path := os.path.join(directory, "saved"))
    done = python.run(FAILS, [path, when, how])
    assert done.returncode == 0 and len([line for line in done.stderr.splitlines() if "state.pt" in line]) == 1, done.stderr
    cause = "was changed while it was copied, and no fence had waited" if how == "change" else "No such file or directory"
    assert f"{path}/state.pt was not saved: " in done.stderr and cause in done.stderr
    line = FAILS[: FAILS.index("optimizer.step()\n    optimizer.step()")].count("\n") + 1
    assert (f"<string>:{line}: SaveWarning" in done.stderr) == (when == "step")


@pytest.mark.parametrize("told", ["by nothing", "by a step", "by a call"])
def test_wait_gives_the_error(lane, directory, told):
    """Also of a save that a warning has told of: who waits has to know. Once; and not where a later save got the name."""
    from cairnfs import _process

    training, below = Training(size=1 << 20), os.path.join(directory, "below")
    for path in (None, below, os.path.join(below, "state.pt")):
        os.mkdir(below)
        with _process.lock():  # so that its name is not given before this
            save = lane.save(training.state(), os.path.join(below, "state.pt"))
            os.rmdir(below)
        rig.poll(save.done, 20, "the end of the save")
        if told != "by nothing":
            with pytest.warns(lane.SaveWarning, match="state.pt was not saved"):
                training.step() if told == "by a step" else lane.save({"x": 1}, os.path.join(directory, "x.pt"))
        lane.wait(os.path.join(directory, "elsewhere"))
        with pytest.raises(FileNotFoundError):
            lane.wait(path)
        lane.wait(path)
    os.mkdir(below)
    with _process.lock():
        save = lane.save(training.state(), os.path.join(below, "state.pt"))
        os.rmdir(below)
    rig.poll(save.done, 20, "the end of the save")
    os.mkdir(below)
    with pytest.warns(lane.SaveWarning):
        again = lane.save(training.state(), os.path.join(below, "state.pt"))
    rig.poll(again.done, 20, "the end of the next one")
    lane.wait()


def test_safetensors(lane, directory):
    """The file is safetensors' own, byte for byte, whatever the kinds and names; what it refuses is refused in its words."""
    import cairnfs.safetensors as ours
    import safetensors.torch as theirs

    first, second = os.path.join(directory, "a.safetensors"), os.path.join(directory, "b.safetensors")
    kinds = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.float16, torch.bfloat16, torch.float32,
             torch.float64]
    kinds += [torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64]
    tensors = {f'{index} "ü"\n\\': torch.zeros(index, 8, dtype=torch.uint8).view(kind) for index, kind in enumerate(kinds)}
    tensors |= {"scalar": torch.tensor(1.5), "view": torch.arange(100.0)[10:20], "b": torch.ones(70000), "a": torch.ones(3)}
    for metadata in (None, {"format": "pt"}):
        theirs.save_file(tensors, first, metadata)
        ours.save_file(tensors, second, metadata)
        assert rig.read_file(first) == rig.read_file(second)
    save = lane.save(tensors, second)
    save.result()
    assert torch.equal(theirs.load_file(second)["b"], tensors["b"])
    whole = torch.ones(10, 10)
    for wrong in ({"a": whole.t()[:3]}, {"a": whole, "b": whole}, {"a": 1}, [1], {"a": whole.to_sparse()}):
        assert outcome(ours.save_file, wrong, second) == outcome(theirs.save_file, wrong, first) != None  # noqa: E711
    ours.install()
    assert theirs.save_file is ours.save_file
    ours.uninstall()
    assert theirs.save_file is ours.plain_save_file


def test_lazy_safetensors(stall, lane):
    """Model weights in safetensors, copied later."""
    training, path = Training(), os.path.join(stall.mount.mnt, "model.safetensors")
    before = training.copy()["model"]["weight"]
    save = stall.save(lane, {"weight": training.model.weight.data}, path)
    stall.go()
    training.step()
    import safetensors.torch

    save.result()
    assert torch.equal(safetensors.torch.load_file(path)["weight"], before)


def test_a_path_of_bytes_is_refused_as_torch_refuses_it(lane, directory):
    path = os.fsencode(os.path.join(directory, "x.pt"))
    with pytest.raises(Exception) as theirs:
        torch.save({"x": 1}, path)
    with pytest.raises(type(theirs.value)) as ours:
        lane.save({"x": 1}, path)
    assert str(ours.value) == str(theirs.value) and os.listdir(directory) == []


INTERRUPTED = """
import os, signal, sys, torch, cairnfs
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell ignores it
from cairnfs import _library, _start
path, when = sys.argv[1:]
model = torch.nn.Linear(1500, 1500)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 1500)).sum().backward()
optimizer.step()
library = _library.library()
original = library.cairn_save_zip
def interrupted(*given):  # right behind the call, as a Ctrl-C that came in it
    code = original(*given)
    os.kill(os.getpid(), signal.SIGINT)
    return code
class Library:
    def __getattr__(self, name):
        return interrupted if name == "cairn_save_zip" else getattr(library, name)
_library._loaded = Library()
try:
    cairnfs.save(model.state_dict(), path, lazy=when == "lazy")
    sys.exit("no KeyboardInterrupt")
except KeyboardInterrupt:
    pass
_library._loaded = library
optimizer.step()
assert cairnfs.stats()["pending_saves"] == 0 and not os.path.exists(path), cairnfs.stats()
cairnfs.save(model.state_dict(), path).result()
assert torch.equal(torch.load(path)["weight"], model.weight)
"""


@pytest.mark.parametrize("when", ["lazy", "eager"])
def test_an_interrupt_ends_the_save(lane, directory, python, when):
    """A Ctrl-C in save(): no thread goes on reading memory that is not kept, and no file of it appears."""
    done = python.run(INTERRUPTED, [os.path.join(directory, "x.pt"), when])
    assert done.returncode == 0, done.stderr[-3000:]


NO_ROOM = """
import os, resource, sys, threading, torch, cairnfs
directory, what = sys.argv[1:]
cairnfs.save({"x": 1}, directory + "/0.pt").result()
if what == "threads":
    def refuse(*given):
        raise RuntimeError("can't start new thread")
    cairnfs._process.close(cairnfs._process.current(), 0)
    cairnfs._process.after_fork()
    threading.Thread.start = refuse
    cairnfs.save({"x": torch.ones(100_000)}, directory + "/1.pt").result()
    assert torch.load(directory + "/1.pt")["x"].sum() == 100_000
    sys.exit()
before = resource.getrlimit(resource.RLIMIT_NOFILE)
used = len(os.listdir("/proc/self/fd"))
for room in range(6):  # so that each open of a save fails once
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + room - 1, before[1]))
    error = cairnfs.save({"x": torch.ones(100_000)}, directory + "/1.pt").exception()
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert error is None or error.errno == 24, error
    assert os.path.exists(directory + "/1.pt") == (error is None)
    if error is None:
        os.unlink(directory + "/1.pt")
assert error is None and sorted(os.listdir(directory)) == ["0.pt"], os.listdir(directory)
"""


@pytest.mark.parametrize("what", ["descriptors", "threads"])
def test_no_room_for(lane, programs, what, mnt):
    """Descriptors run out: the save fails and leaves nothing. Python can start no thread: saves get their names all the same."""
    rig.run(sys.executable, "-W", "ignore", "-c", NO_ROOM, mnt, what, env=programs)

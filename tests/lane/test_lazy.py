# SPDX-License-Identifier: Apache-2.0
"""What is copied later, what at once; the fence in all its places; what changes in spite of it is not saved."""
import errno
import gc
import importlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest
import torch

import processes
import rig
from training import Training, check_loaded


def fork(training):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def step_of_scaler(training):
    scaler = torch.amp.GradScaler("cpu")
    training.model.weight.grad = torch.ones_like(training.model.weight)
    scaler.scale(torch.ones(()))
    scaler.step(training.optimizer)


def state_of(what):
    return {name: torch.zeros_like(value) for name, value in what.state_dict().items()}


# All that changes or moves what a lazy save reads, as programs do it.
ROUTES = {
    "step": lambda training: training.step(),
    "step of a scaler": step_of_scaler,
    "load of the optimizer": lambda training: training.optimizer.load_state_dict(training.copy()["optimizer"]),
    "load of the model": lambda training: training.model.load_state_dict(state_of(training.model)),
    "to": lambda training: training.model.to(torch.float64),
    "half": lambda training: training.model.half(),
    "share_memory": lambda training: training.model.share_memory(),
    "share a tensor": lambda training: training.model.weight.data.share_memory_(),
    "free the storage": lambda training: training.model.weight.untyped_storage().resize_(0),
    "set": lambda training: training.model.weight.data.set_(torch.zeros(3)),
    "fill the storage": lambda training: training.model.weight.untyped_storage().fill_(7),
    "swap": lambda training: torch.utils.swap_tensors(training.model.weight, torch.nn.Parameter(torch.zeros_like(training.model.weight))),
    "resize": lambda training: training.model.weight.data.resize_(3),
    "fork": fork,
}


def saved_once(stall, lane):
    """A training that has saved its state: it, the path, and what is there."""
    training, path = Training(), os.path.join(stall.mount.mnt, "state.pt")
    lane.save(training.state(), path).result()
    return training, path, training.copy()


@pytest.mark.timeout(300)
def test_every_route_waits(stall, lane, full):
    """Each of them waits while the copy goes on, and the file has the state at the call of save()."""
    for name, route in ROUTES.items():
        training = Training(kind=torch.optim.SGD)
        path = os.path.join(stall.mount.mnt, "state.pt")
        before = training.copy()
        save = stall.save(lane, training.state(), path)
        thread = threading.Thread(target=route, args=(training,))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive(), f"{name} did not wait"
        stall.go()
        thread.join()
        assert save.result() == path
        check_loaded(path, before)


def test_what_comes_before_the_fence_does_not_wait(stall, lane):
    """Forward, backward, and the state's reading go on while the copy does not."""
    training = Training()
    save = stall.save(lane, training.state(), os.path.join(stall.mount.mnt, "state.pt"))
    training.optimizer.zero_grad()
    (training.model.weight * 2).sum().backward()
    assert training.model.weight.grad[0, 0] == 2 and not save.copied() and not save.done()
    with pytest.raises(TimeoutError):
        lane.fence(timeout=0.1)
    with pytest.raises(TimeoutError):
        save.result(timeout=0.1)
    stall.go()
    save.wait("copied")
    lane.fence()
    assert save.result() and save.exception() is None and save.done() and save.copied() and save.published()


class Own(torch.optim.SGD):
    """An optimizer of others, which changes parameters before it calls the closure."""

    def step(self, closure=None):
        with torch.no_grad():
            self.param_groups[0]["params"][0].add_(1)
        return super().step(closure)


@pytest.mark.parametrize("kind", [torch.optim.SGD, Own])
def test_closure(stall, lane, kind):
    """step(closure): forward and backward in there go on beside the copy, and the fence comes behind them; before them where it is not known what
    the optimizer does. The update waits in any case."""
    training, path = Training(kind=kind), os.path.join(stall.mount.mnt, "state.pt")
    before, seen = training.copy(), []
    save = stall.save(lane, training.state(), path)
    timers = [threading.Timer(0.3 if kind is Own else 30, stall.go), threading.Timer(0.3, stall.go)]
    timers[0].start()

    def closure():
        seen.append(save.copied())
        timers[1].start()
        training.model.weight.grad.fill_(2)
        return 5

    assert training.optimizer.step(closure) == 5 and seen == [kind is Own] and save.result() == path
    timers[0].cancel()
    timers[1].join()
    check_loaded(path, before)


def test_an_eager_save_does_not_wait_for_lazy_ones(stall, lane, tmp_path):
    training = Training()
    save = stall.save(lane, training.state(), os.path.join(stall.mount.mnt, "state.pt"))
    here, path = threading.Event(), str(tmp_path / "eager.pt")
    thread = threading.Thread(target=lambda: (lane.save(training.state(), path, lazy=False), here.set()), daemon=True)
    thread.start()
    assert here.wait(10 * rig.PATIENCE), "an eager save stood behind a lazy one that is held up"
    assert not save.copied()
    check_loaded(path, training.state())
    stall.go()
    thread.join()
    assert save.result()


def test_change_without_a_fence(stall, lane):
    """A tensor that is changed in place during its copy: the save fails with a clear error, and the older version stays."""
    training, path, before = saved_once(stall, lane)
    training.step()
    save = stall.save(lane, training.state(), path)
    with torch.no_grad():
        training.model.weight.mul_(2)
    stall.go()
    error = save.exception()
    assert error.errno == errno.EBADMSG and "was changed while it was copied" in str(error) and error.filename == path
    check_loaded(path, before)
    assert os.listdir(stall.mount.mnt) == ["state.pt"]
    lane.save(training.state(), path).result()
    check_loaded(path, training.state())


def swap_with_average(training):
    """The memory that is copied is another tensor's then, which knows nothing of the parameter's version."""
    average = torch.zeros_like(training.model.weight)
    training.model.weight.data, average.data = average.data, training.model.weight.data
    average.data.mul_(0.5)


# Writes that no version counter tells of.
UNSEEN = {
    "data": lambda training: training.model.weight.data.add_(1),
    "numpy": lambda training: training.model.weight.detach().numpy().__setitem__(slice(None), 7),
    "swap": swap_with_average,
}


@pytest.mark.parametrize("lazy", [True, "all"])
@pytest.mark.parametrize("way", UNSEEN)
def test_a_change_that_no_counter_tells(stall, lane, way, lazy):
    """The save fails and the older version stays; and from now on what is so treated is copied at once."""
    training, path = Training(), os.path.join(stall.mount.mnt, "state.pt")
    lane.save({"old": 1}, path).result()
    save = stall.save(lane, training.state(), path, lazy=lazy)
    UNSEEN[way](training)
    stall.go()
    error = save.exception()
    assert error.errno == errno.EBADMSG and "was changed while it was copied" in str(error)
    assert torch.load(path) == {"old": 1} and os.listdir(stall.mount.mnt) == ["state.pt"]
    if lazy == "all":
        return
    before = training.copy()
    save = lane.save(training.state(), path)
    assert save.copied()
    UNSEEN[way](training)
    save.result()
    check_loaded(path, before)


def test_what_may_change_elsewhere_is_copied_at_once(lane, directory):
    """Memory that other processes see, and a storage of which the optimizer holds a part; padding is no such part."""
    shared, whole, padded = torch.zeros(50_000).share_memory_(), torch.zeros(100_000), torch.zeros(100_040)
    parts = [whole[:50_000], padded[8:50_000], padded[50_008:100_008]]
    parameters = [torch.nn.Parameter(part) for part in (shared, *parts)]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    save = lane.save(parameters, path := os.path.join(directory, "state.pt"))
    assert save.storages == {padded.untyped_storage()._cdata}
    before = [parameter.detach().clone() for parameter in parameters]
    whole.numpy()[:] = 3
    shared.data.fill_(3)
    save.result()
    assert all(torch.equal(a, b) for a, b in zip(torch.load(path), before))


def test_freed_and_replaced(stall, lane):
    """Memory that the program lets go of stays until it is copied; a parameter with other data is another tensor."""
    training, path = Training(), os.path.join(stall.mount.mnt, "state.pt")
    before = training.copy()
    save = stall.save(lane, training.state(), path)
    training.model.weight.data = torch.zeros(3)
    training.model = None
    training.optimizer.param_groups.clear()
    training.optimizer.state.clear()
    ballast = [torch.full((12 << 20,), 7.0) for _ in range(3)]
    stall.go()
    assert save.result() and ballast
    check_loaded(path, before)


def test_what_is_not_known_is_copied_at_once(lane, directory):
    """Buffers, averages, small tensors, scalars, and all of it where no optimizer has stepped: it may change when save() has returned."""
    model = torch.nn.Sequential(torch.nn.Linear(400, 400), torch.nn.BatchNorm1d(100_000, affine=False))
    optimizer = torch.optim.Adam(model.parameters())
    average = {name: value.clone() for name, value in model.state_dict().items()}
    for stepped in (False, True):
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "average": average, "rng": torch.get_rng_state()}
        before = torch.save(state, buffer := io.BytesIO()) or torch.load(io.BytesIO(buffer.getvalue()))
        save = lane.save(state, path := os.path.join(directory, "state.pt"))
        for name, tensor in [*average.items(), *model.named_buffers(), *(model.named_parameters() if not stepped else ())]:
            tensor.data.fill_(3)
        for value in optimizer.state.values():
            value["step"].fill_(1000)
        state["rng"].fill_(0)
        save.result()
        loaded = torch.load(path)
        assert torch.equal(loaded["rng"], before["rng"]) and str(loaded["optimizer"]) == str(before["optimizer"])
        for part in ("model", "average"):
            for name in before[part]:
                assert torch.equal(loaded[part][name], before[part][name]), (stepped, part, name)
        model[0](torch.ones(2, 400)).sum().backward()
        optimizer.step()


def test_lazy_is_what_optimizers_hold(stall, lane):
    """track= and lazy="all" say what else does not change before the next fence."""
    frozen = torch.nn.Linear(2000, 2000)
    state, path = {"frozen": frozen.state_dict()}, os.path.join(stall.mount.mnt, "state.pt")
    assert lane.save(state, path).copied()
    from cairnfs import _process

    for options in ({"track": frozen}, {"lazy": "all"}):
        save = lane.save(state, path, **options)
        assert save.storages == {frozen.weight.untyped_storage()._cdata} | ({frozen.bias.untyped_storage()._cdata} if "lazy" in options else set())
        save.result()
    assert not _process.current().pending


@pytest.mark.parametrize("kind", ["dtensor", "tied"])
def test_tensors_in_other_tensors(lane, directory, kind):
    """A DTensor's own memory, and a storage that several parameters share, are known to be the optimizer's."""
    if kind == "tied":
        whole = torch.zeros(2, 50_000)
        parameters = [torch.nn.Parameter(whole[0]), torch.nn.Parameter(whole[1])]
        storages = {whole.untyped_storage()._cdata}
    else:
        importlib.import_module("torch.distributed.tensor")

        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
        local = torch.zeros(300, 300)
        parameters = [torch.nn.Parameter(torch.distributed.tensor.DTensor.from_local(local, mesh, run_check=False))]
        storages = {parameters[0]._local_tensor.untyped_storage()._cdata}
    try:
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        save = lane.save({"p": parameters}, path := os.path.join(directory, "state.pt"))
        assert save.storages == storages
        save.result()
        loaded = torch.load(path, weights_only=False)["p"]
        assert all(torch.equal(a, b) for a, b in zip(loaded, parameters))
    finally:
        if kind == "dtensor":
            torch.distributed.destroy_process_group()


def test_max_block(stall, lane):
    """A fence waits for a save no longer than max_block: the save fails, the training goes on, and says so once."""
    training, path = Training(), os.path.join(stall.mount.mnt, "state.pt")
    save = stall.save(lane, training.state(), path, max_block=0.3)
    begin = time.monotonic()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        training.step()
        seconds = time.monotonic() - begin
        lane.fence()
        lane.fence()
    assert seconds >= 0.3 and [str(one.message) for one in told] == [f"{path} was not saved: its copy kept the training for more than 0.3 s"]
    stall.go()
    assert save.exception().errno == errno.ETIMEDOUT and not os.path.exists(path)
    lane.save(training.state(), path).result()
    check_loaded(path, training.state())


def test_a_stopped_daemon_keeps_no_call(stall, lane):
    """Nor does a save that begins while the daemon stands still: it fails, the training goes on, and the next one is whole."""
    training, path, before = saved_once(stall, lane)
    stall.stop()
    calls = (lambda: lane.save(training.state(), path, max_block=0.2), lambda: lane.save({"x": 1}, path, max_block=0.2), lambda: lane.marker(path, "x", after=(), max_block=0.2))
    for call in calls:
        error = call().exception()
        assert error.errno == errno.ETIMEDOUT and "has not answered for 200 ms" in str(error)
    training.step()
    stall.go()
    check_loaded(path, before)
    lane.save(training.state(), path).result()
    check_loaded(path, training.state())
    assert os.listdir(stall.mount.mnt) == ["state.pt"]


def test_a_stopped_daemon_keeps_no_process(stall, lane, python):
    """One that ends while a call stands in the filesystem and no caller waits for it."""
    stall.stop()
    code = 'import sys, cairnfs; cairnfs.save({"x": 1}, sys.argv[1], max_block=0.2); print("done")'
    done = python.run(code, [stall.mount.mnt + "/x.pt"], {"CAIRN_EXIT_WAIT": "1"}, timeout=rig.PATIENCE * 60)
    assert done.returncode == 0 and done.stdout == "done\n" and "has not answered for 200 ms" in done.stderr, done.stderr


def test_errors_are_raised_where_asked_for(stall, lane):
    """on_error="raise": the next call of the package raises, the optimizer's step included, once."""
    training, path = Training(), os.path.join(stall.mount.mnt, "state.pt")
    save = stall.save(lane, training.state(), path, on_error="raise")
    with torch.no_grad():
        training.model.weight.add_(1)
    stall.go()
    rig.poll(save.done, 20, "the end of the save")
    with pytest.raises(OSError, match="was changed while it was copied"):
        training.step()
    training.step()


def test_daemon_dies(stall, lane):
    """The save fails and says why, the training goes on; behind a new daemon the next save is whole."""
    training, path, before = saved_once(stall, lane)
    training.step()
    save = stall.save(lane, training.state(), path)
    stall.mount.kill9()
    error = save.exception()
    assert error.errno in rig.DEAD_MOUNT and str(error)
    training.step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        failed = lane.save(training.state(), path)
        assert failed.exception().errno in rig.DEAD_MOUNT
    stall.mount.mount()
    check_loaded(path, before)
    lane.save(training.state(), path).result()
    check_loaded(path, training.state())


def test_child_of_a_fork(lane, directory):
    """In the child the saves of the parent are not its own, and its own go through a lane of its own."""
    training = Training(size=1 << 20)
    save = lane.save(training.state(), os.path.join(directory, "parent.pt"))

    def child():
        try:
            save.result()
        except OSError as error:
            assert error.errno == errno.ECHILD
        lane.save(training.state(), os.path.join(directory, "child.pt")).result()
        return 0

    gc.collect()  # a process group that an earlier test left would wait for its threads in the child, which has none
    with rig.child(child) as pid:
        assert os.waitpid(pid, 0)[1] == 0
    save.result()
    for name in ("parent.pt", "child.pt"):
        check_loaded(os.path.join(directory, name), training.state())


def test_threads_and_one_path(lane, directory):
    """Saves of several threads, half of them to one path: every file is whole, and of one save."""
    training = Training(size=1 << 18)
    shared = os.path.join(directory, "shared.pt")

    def work(number):
        for turn in range(8):
            own = os.path.join(directory, f"{number}-{turn}.pt")
            lane.save({"x": torch.full((50_000,), number), "turn": turn}, shared)
            lane.save({**training.state(), "x": torch.full((50_000,), number)}, own)

    processes.in_threads(work, range(4))
    lane.wait()
    assert len(os.listdir(directory)) == 33
    for number in range(4):
        for turn in range(8):
            loaded = torch.load(os.path.join(directory, f"{number}-{turn}.pt"))
            assert bool((loaded["x"] == number).all())
    last = lane.save({"x": 5}, shared)
    lane.save({"x": 6}, shared).result()
    assert torch.load(shared) == {"x": 6} and last.published()


PROGRAM = """
import multiprocessing, os, signal, sys, time
import torch, cairnfs
if "handler" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: (print("mine", flush=True), os._exit(3)))
def train():
    model = torch.nn.Linear(1500, 1500)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 1500)).sum().backward()
    optimizer.step()
    for index in range(3):
        cairnfs.save(model.state_dict(), f"{sys.argv[1]}/{index}.pt")
    cairnfs.marker(f"{sys.argv[1]}/latest", "2.pt")
if "child" in sys.argv:
    child = multiprocessing.get_context("fork").Process(target=train)
    child.start()
    child.join()
else:
    train()
if "raise" in sys.argv:
    raise ValueError
if "sleep" in sys.argv:
    print("ready", flush=True)
    time.sleep(1000)
"""


LAST = """
import atexit, sys, torch
# before cairnfs is imported: called behind what that does at the end
atexit.register(lambda: cairnfs.save(model.state_dict(), sys.argv[1]))
import cairnfs
model = torch.nn.Linear(3000, 3000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 3000)).sum().backward()
optimizer.step()
"""


def test_a_save_at_the_very_end(lane, directory, programs):
    """No one would wait for it any more, so it waits itself."""
    command = [sys.executable, "-c", LAST, path := os.path.join(directory, "last.pt")]
    done = subprocess.run(command, env=programs, capture_output=True, text=True)
    assert done.returncode == 0 and torch.load(path)["weight"].shape == (3000, 3000), done.stderr


@pytest.mark.parametrize("how", ["end", "raise", "sleep", "handler", "child"])
def test_end_of_the_process(lane, python, how, mnt):
    """A normal end, an exception, SIGTERM and the end of a child of multiprocessing wait for the names; a handler of the program is left in place."""
    extra = ["sleep", "handler"] if how == "handler" else [how]
    with python.start(PROGRAM, [mnt, *extra]) as process:
        if "sleep" in extra:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGTERM)
        out = process.stdout.read()
        code = process.wait(rig.PATIENCE * 60)
    assert code == {"end": 0, "raise": 1, "sleep": -signal.SIGTERM, "handler": 3, "child": 0}[how]
    if how == "handler":
        assert out == "mine\n"
        return
    assert sorted(os.listdir(mnt)) == ["0.pt", "1.pt", "2.pt", "latest"]
    assert torch.load(os.path.join(mnt, "2.pt"))["weight"].shape == (1500, 1500)


def test_a_save_is_a_future(lane, directory):
    """As a context it waits for its name, or raises; a callback comes with the name, or at once."""
    path, called = os.path.join(directory, "x.pt"), []
    with lane.save({"x": torch.ones(50_000)}, path) as save:
        save.add_done_callback(called.append)
    assert save.published() and os.path.exists(path) and save.progress()[0] == save.progress()[1] >= 200_000
    rig.poll(lambda: called == [save], 20, "the callback")
    save.add_done_callback(called.append)
    assert called == [save, save]
    with pytest.raises(FileExistsError), lane.marker(path, "x", after=(), replace=False) as other:
        pass
    assert isinstance(other.exception(), FileExistsError)


def test_prepare(lane):
    """What holds tensors of devices, or a number of bytes; where there is nothing to be copied from a device, no memory is taken."""
    training = Training()
    before = lane.stats()["ring_bytes"]
    lane.prepare(training.model, training.optimizer)
    assert lane.stats()["ring_bytes"] == before
    lane.prepare(before + 3 * rig.MIB)
    assert lane.stats()["ring_bytes"] >= before + 3 * rig.MIB


def test_progress_bar(stall, lane, monkeypatch):
    """wait() on a terminal shows how far it is."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    training, path = Training(), os.path.join(stall.mount.mnt, "state.pt")
    stall.save(lane, training.state(), path)
    threading.Timer(1.2, stall.go).start()
    lane.wait(path, timeout=60)
    assert "% of 0.10 GB, 1 files" in shown.getvalue() and os.path.exists(path)


def test_levels(lane, directory, mnt):
    """wait() for NVMe and the remote, of a file and of a directory; elsewhere than on CairnFS: fsync, and no remote."""
    for place in (mnt, directory):
        os.makedirs(step := os.path.join(place, "step"), exist_ok=True)
        save = lane.save({"x": torch.ones(100_000)}, os.path.join(step, "state.pt"))
        save.wait("nvme", timeout=60)
        lane.wait(step, level="nvme", timeout=60)
        lane.wait(level="nvme", timeout=60)
        with pytest.raises(OSError):
            lane.wait(step, level="remote", timeout=0.2)
    assert os.getxattr(os.path.join(mnt, "step", "state.pt"), "user.cairn.level") == b"nvme"
    with pytest.raises(ValueError):
        lane.wait(level="moon")


def test_compiled_model(lane, directory, full, mnt):
    """A compiled model: the losses, and what each file holds, are those of a training that saves by torch.save."""

    def train(save, place):
        torch.manual_seed(0)
        model = torch.compile(torch.nn.Sequential(torch.nn.Linear(300, 700), torch.nn.GELU(), torch.nn.Linear(700, 300)), backend=backend)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses, saves = [], []
        for step in range(6):
            loss = model(torch.randn(4, 300)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            saves.append(save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, os.path.join(place, f"{step}.pt")))
        return losses, saves

    backend = "inductor" if full else "aot_eager"  # that one compiles C++
    plain, _ = train(torch.save, directory)
    losses, saves = train(lane.save, mnt)
    assert losses == plain and all(len(save.storages) == 6 for save in saves), "not lazy"
    for save in saves:
        both = (torch.utils._pytree.tree_leaves(torch.load(path)) for path in (save.result(), os.path.join(directory, os.path.basename(save.path))))
        assert all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(*both, strict=True)), save.path


def test_compiled_steps(stall, lane, full):
    """A compiled step, and a compiled training step, call the fence each time."""
    if not full:
        pytest.skip("skipped: only with --full (imports the compiler)")
    for compiled in ("step", "train"):
        training, path = Training(), os.path.join(stall.mount.mnt, "state.pt")
        step = torch.compile(training.optimizer.step if compiled == "step" else training.step, backend="eager")
        training.model.weight.grad = torch.ones_like(training.model.weight)
        for _ in range(3):
            step()
        before = training.copy()
        save = stall.save(lane, training.state(), path)
        thread = threading.Thread(target=step)
        thread.start()
        thread.join(1)
        assert thread.is_alive()
        stall.go()
        thread.join()
        save.result()
        check_loaded(path, before)

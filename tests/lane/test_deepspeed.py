# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed on two ranks with ZeRO: it saves lazily, is killed, and goes on; `latest` names a checkpoint when the files of both ranks are
there."""
import contextlib
import json
import os
import shutil
import threading
import time

import pytest
import torch

import rig
from preloaded import Preloaded
from training import needs

pytestmark = pytest.mark.timeout(240)

RANKS, STEPS, EVERY = 2, 12, 2
PROGRAM = """
import json, os, resource, sys, warnings
warnings.filterwarnings("ignore", category=FutureWarning)
rank, directory, report, mode, steps, every = int(sys.argv[1]), *sys.argv[2:5], int(sys.argv[5]), int(sys.argv[6])
out, sys.stdout = sys.stdout, sys.stderr  # DeepSpeed speaks there
import torch, deepspeed
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo does; that one would be compiled first
deepspeed.init_distributed("gloo", auto_mpi_discovery=False, verbose=False)
torch.manual_seed(0)
width = 10000 if mode == "stalled" else 500
model = torch.nn.Sequential(torch.nn.Linear(300, width), torch.nn.Tanh(), torch.nn.Linear(width, 300))
config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1 if mode == "held" else 2}}
config["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
if mode != "plain":
    import cairnfs, cairnfs.deepspeed
    cairnfs.deepspeed.attach(engine)

def say(*what):
    print(*what, file=out, flush=True)

def train():
    torch.manual_seed(100 * rank + engine.global_steps)
    loss = engine(torch.randn(4, 300)).square().mean()
    engine.backward(loss)
    engine.step()
    return loss.item()

def go_on():
    engine.load_checkpoint(directory)
    say("start", engine.global_steps)
    with open(report, "a", buffering=1) as file:
        while engine.global_steps < steps:
            print(engine.global_steps, train(), file=file)
            if engine.global_steps % every == 0:
                engine.save_checkpoint(directory)
            say("step", engine.global_steps)
"""

# Rank 1 is held, then cannot save: what rank 0 does with `latest`.
HELD = PROGRAM + """
from cairnfs import _process
def checkpoint():
    train()
    engine.save_checkpoint(directory)

def held():
    if rank == 1:
        _process.lock().acquire()  # no save of this rank is given its name
    checkpoint()
    if rank == 1:
        say("lazy", len(_process.current().pending[0].storages))
        sys.stdin.readline()
        _process.lock().release()

train()
held()
sys.stdin.readline()
if rank == 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    checkpoint()
    engine.checkpoint_engine.wait()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    train()
say("told", json.dumps([str(one.message) for one in told if one.category is cairnfs.SaveWarning]))
with open(directory + "/latest") as file:
    say("latest", file.read())
engine.save_checkpoint(directory)
engine.load_checkpoint(directory)  # of what is not there yet
say("loaded", engine.global_steps)
held()
"""

# The daemon stands still while the state is copied.
STALLED = PROGRAM + """
import signal
from cairnfs import _process
train()
train()
state = [value.clone() for value in (*model.parameters(), *engine.optimizer.single_partition_of_fp32_groups)]
with _process.lock():
    engine.save_checkpoint(directory)
    os.kill(int(report), signal.SIGSTOP)
    saves = [save for save in _process.current().pending if not save.is_marker]
say("later", [len(save.storages) for save in saves])
say("copying", not all(save.copied() for save in saves))
train()
train()
say("trained", engine.global_steps)
engine.checkpoint_engine.wait()
torch.save(state, directory + "-state")
"""


@pytest.fixture(scope="module")
def preloaded(programs):
    needs("deepspeed")
    imports = 'import torch, torch._dynamo\nout, sys.stdout = sys.stdout, sys.stderr\nwarnings.filterwarnings("ignore", category=FutureWarning)\nimport deepspeed\nsys.stdout = out'
    found = Preloaded(imports, {**programs, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"})
    yield found
    found.close()


@pytest.fixture
def ranks(preloaded, lane, directory):
    """ranks(program, ...): starts a program on all ranks. The test is the launcher: it keeps the store by which they meet, as torchrun
    does."""
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(Ranks(preloaded, directory, *arguments, **options))


class Ranks:
    """The processes of all ranks, which have ended when the context has."""

    def __init__(self, preloaded, root, program, directory, report, mode="lazy", count=RANKS, steps=STEPS):
        self.store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.errors, self.processes = [], []
        for rank in range(count):
            errors = open(os.path.join(root, f"errors-{rank}"), "w+")
            own = {"RANK": f"{rank}", "LOCAL_RANK": f"{rank}", "WORLD_SIZE": f"{count}", "MASTER_ADDR": "127.0.0.1"}
            own |= {"MASTER_PORT": f"{self.store.port}", "TORCHELASTIC_USE_AGENT_STORE": "True"}
            arguments = [f"{rank}", directory, report if count == 1 else f"{report}-{rank}", mode, f"{steps}", f"{EVERY}"]
            self.errors.append(errors)
            self.processes.append(preloaded.start(program, arguments, own, errors))
        self.lines = [iter(process.stdout.readline, "") for process in self.processes]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        for file in (*self.errors, *self.processes):
            file.close()

    def kill(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    def line(self, rank, word):
        """What follows the word, in the next line of the rank that begins with it."""
        for line in self.lines[rank]:
            if line.startswith(word + " "):
                return line.removeprefix(word + " ").strip()
        raise AssertionError(f"rank {rank} has ended before {word!r}:\n{self.error(rank)}")

    def tell(self, rank):
        self.processes[rank].stdin.write("\n")

    def error(self, rank):
        self.errors[rank].seek(0)
        return self.errors[rank].read()[-3000:]

    def end(self):
        readers = [threading.Thread(target=list, args=(lines,)) for lines in self.lines]
        for reader in readers:
            reader.start()
        for rank, process in enumerate(self.processes):
            assert process.wait(rig.PATIENCE * 100) == 0, self.error(rank)
        for reader in readers:
            reader.join()


def shards(path):
    """The files of a checkpoint, which are whole and of one step."""
    loaded = {name: torch.load(os.path.join(path, name), weights_only=False) for name in sorted(os.listdir(path))}
    assert list(loaded) == ["mp_rank_00_model_states.pt", *(f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in range(RANKS))]
    model, *optimizers = loaded.values()
    step = int(os.path.basename(path).removeprefix("global_step"))
    assert model["global_steps"] == step
    for optimizer in optimizers:
        base = optimizer["optimizer_state_dict"]["base_optimizer_state"]
        assert [int(one["step"]) for one in base["state"].values()] == [step]
    return loaded


def tag_step(path):
    """The step that `latest` names; 0: none."""
    if not os.path.exists(os.path.join(path, "latest")):
        return 0
    return int(rig.read_file(os.path.join(path, "latest")).decode().removeprefix("global_step"))


def newest(path):
    """The same, where the files of that checkpoint are whole."""
    step = tag_step(path)
    if step:
        shards(os.path.join(path, f"global_step{step}"))
    return step


def losses_of(report):
    """[{step: losses}] of the ranks, those of steps that were trained anew too."""
    found = []
    for rank in range(RANKS):
        found.append({step: set() for step in range(STEPS)})
        for line in rig.read_file(f"{report}-{rank}").decode().splitlines():
            step, loss = line.split()
            found[rank][int(step)].add(float(loss))
    return found


def tensors(value):
    """All tensors within, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors(item)


def test_killed_and_resumed(cairn, ranks, directory, rng, full):
    """kill -9 of the trainer, then of the daemon with it: the losses, and the last checkpoint, are those of a run that saves plainly."""
    cairn.mount(writeback_delay="100ms")
    report, plain = os.path.join(directory, "report"), os.path.join(directory, "plain")
    program = PROGRAM + "go_on()\n"
    ranks(program, plain, plain + "-report", "plain").end()
    for number in range(30 if full else 1):
        path, start = os.path.join(cairn.mnt, f"run{number}"), 0
        for kills_daemon in (False, True):
            step = start + rng.randrange(3, 6)
            job = ranks(program, path, report, steps=min(step + 2, STEPS))
            assert int(job.line(0, "start")) == start
            while int(job.line(0, "step")) < step:
                pass
            due = (step - 1) // EVERY * EVERY  # saved, and followed by an update, which has waited for the copy
            rig.poll(lambda: tag_step(path) >= due, 30, f"the name of the checkpoint of step {due}")
            time.sleep(0.03 * rng.random())  # the moment of the kill, seeded
            seen = tag_step(path)
            if kills_daemon:
                cairn.kill9()
            job.kill()
            if kills_daemon:
                cairn.mount(writeback_delay="100ms")
            before, start = start, newest(path)
            print(f"killed after step {step}: {start} is the newest checkpoint, {seen} was seen")
            assert before < due <= seen <= start, "a checkpoint was lost"
        ranks(program, path, report).end()
        check_end(path, report, plain)
        shutil.rmtree(path)
        for rank in range(RANKS):
            os.unlink(f"{report}-{rank}")


def check_end(path, report, plain):
    assert losses_of(report) == losses_of(plain + "-report") and newest(path) == STEPS
    ours, theirs = (shards(os.path.join(place, f"global_step{STEPS}")) for place in (path, plain))
    for name in theirs:
        both = list(zip(tensors(ours[name]), tensors(theirs[name]), strict=True))
        assert len(both) > 3 and all(torch.equal(*pair) for pair in both), name


def test_latest_is_behind_all_ranks(ranks, directory, mnt):
    """Rank 1 has not its file yet: no `latest`. It cannot save: the older one stays, both go on and say so once. The next one is written,
    and what is loaded right behind its save is what was saved; at the end of the processes the last one is waited for."""
    path = os.path.join(mnt, "run")
    job = ranks(HELD, path, "none", "held")
    assert int(job.line(1, "lazy")) >= 3, "the optimizer's state is not copied later"
    own = [os.path.join(path, "global_step2", name) for name in ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt")]
    rig.poll(lambda: all(os.path.exists(name) for name in own), 30, "the files of rank 0")
    time.sleep(0.5)  # time for the fault: what must not happen has no event, and a slow machine only weakens the check
    assert (sorted(os.listdir(path)) == ["global_step2", "zero_to_fp32.py", "zero_to_torch.py"]
            and len(os.listdir(os.path.dirname(own[0]))) == 2)
    job.tell(1)
    rig.poll(lambda: newest(path) == 2, 30, "latest")
    for rank in range(RANKS):
        job.tell(rank)
    failed = os.path.join(path, "global_step3", "zero_pp_rank_1_mp_rank_00_optim_states.pt")
    first, second = (json.loads(job.line(rank, "told")) for rank in range(RANKS))
    assert len(first) == len(second) == 1 and second[0].startswith(f"{failed} was not saved: "), (first, second)
    assert first[0].startswith(f"{path}/latest was not saved: {failed} of rank 1 was not saved: "), first
    for rank in range(RANKS):
        assert job.line(rank, "latest") == "global_step2"
        assert job.line(rank, "loaded") == "4"
    assert job.line(1, "lazy")
    time.sleep(0.5)  # time for the fault: what must not happen has no event, and a slow machine only weakens the check
    assert job.processes[0].poll() is None and newest(path) == 4
    job.tell(1)
    job.end()
    assert newest(path) == 5 and not os.path.exists(failed)


def test_update_waits(stall, ranks, directory):
    """The state is copied while the daemon stands still: the update waits, and the files have the state at the call of
    save_checkpoint()."""
    path = os.path.join(stall.mount.mnt, "run")
    job = ranks(STALLED, path, f"{stall.mount.proc.pid}", "stalled", count=1)
    assert job.line(0, "later") == "[1, 3]", "parameters and optimizer state are not copied later"
    assert job.line(0, "copying") == "True", "the copy was done before the daemon stood still"
    trained = threading.Thread(target=job.line, args=(0, "trained"))
    trained.start()
    trained.join(1)
    assert trained.is_alive(), "the update did not wait"
    stall.go()
    trained.join()
    job.end()
    model = torch.load(os.path.join(path, "global_step2", "mp_rank_00_model_states.pt"), weights_only=False)["module"]
    optimizer = torch.load(os.path.join(path, "global_step2", "zero_pp_rank_0_mp_rank_00_optim_states.pt"), weights_only=False)
    saved = [*model.values(), *optimizer["optimizer_state_dict"]["single_partition_of_fp32_groups"]]
    both = list(zip(saved, torch.load(path + "-state"), strict=True))
    assert len(both) == 5 and all(torch.equal(*pair) for pair in both)

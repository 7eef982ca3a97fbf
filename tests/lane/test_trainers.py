# SPDX-License-Identifier: Apache-2.0
"""The adapters under the real Trainer of transformers and that of Lightning: what is saved, what is left, and the losses are those without
us, whichever process is killed when."""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import pytest
import torch

from training import needs

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(240)]
HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, EVERY = 14, 2


class Program:
    """trainers/SCRIPT: trainings one after the other. Each is a process of its own."""

    def __init__(self, script, environment):
        self.script = script
        environment = {
            **environment, "OMP_NUM_THREADS": "1", "CAIRN_LAZY": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
            "CUDA_VISIBLE_DEVICES": "",
        }  # fmt: skip
        self.directory, self.plains = tempfile.TemporaryDirectory(prefix="cairn-test-"), {}
        self.pids = []  # of the training that goes on
        self.errors = tempfile.TemporaryFile("w+")
        command = [sys.executable, "-m", "cairnfs.run", os.path.join(HERE, "trainers", script)]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        text=True)

    def close(self):
        for pid in self.pids:
            os.kill(pid, 9)
        self.process.kill()  # it holds nothing
        self.process.wait()
        self.errors.close()
        self.directory.cleanup()

    def said(self):
        """What is said, line by line."""
        for line in self.process.stdout:
            if line.startswith("{") and '"' in line:
                yield json.loads(line)

    def begin(self, directory, how, resume=False, names=False, ranks=1, fail=None):
        order = {"directory": directory, "how": how, "resume": resume, "names": names, "ranks": ranks, "fail": fail}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def run(self, directory, how, **order):
        """A training to its end."""
        self.begin(directory, how, **order)
        return Told(self, directory)

    def plain(self, **order):
        """One that saves by torch.save, undisturbed."""
        key = str(order)
        if key not in self.plains:
            self.plains[key] = self.run(os.path.join(self.directory.name, str(len(self.plains))), "plain", **order)
        return self.plains[key]

    def run_until(self, directory, how, what, step, seconds=0.0, accident=None, **order):
        """Until the step is told ("step": in the middle of it; "saved": behind the call of its save), and some time: then the accident, and
        at once the death of the trainer."""
        self.begin(directory, how, **order)
        told = Told(self, directory, lambda line: line.get(what, 0) >= step)
        time.sleep(seconds)
        if accident:
            accident()
        saved = told.saved
        told.kill()
        told.saved = saved  # later ones may have met the accident
        assert told.status in (0, 9) or accident, told.all_errors()
        return told


class Told:
    """What a training said. `left`: what was in its directory in the end."""

    def __init__(self, program, directory, until=lambda line: False):
        self.program, self.directory = program, directory
        self.losses, self.lazy, self.dangling, self.start, self.left, self.through_lane, self.status = {}, 0, 0, None, None, 0, None
        self.saved = 0  # the step of the newest save whose call has returned
        self.read(until)
        assert self.status in (0, None), self.all_errors()

    def read(self, until=lambda line: False):
        for line in self.program.said():
            self.lazy += line.pop("lazy", 0)
            self.dangling += line.pop("dangling", 0)
            if "loss" in line:
                self.losses[line["step"]] = line["loss"]
            for name in ("start", "saved", "left", "through_lane", "status"):
                setattr(self, name, line.get(name, getattr(self, name)))
            self.program.pids = [] if "status" in line else line.get("pids", self.program.pids)
            if until(line) or "status" in line:
                return

    def kill(self):
        for pid in self.program.pids:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and was waited for
                os.kill(pid, 9)
        self.read()

    def all_errors(self):
        self.program.errors.seek(0)
        return self.program.errors.read()[-4000:]


class Transformers:
    script, modules = "hf.py", ("transformers", "accelerate")
    left = [f"checkpoint-{STEPS - EVERY}", f"checkpoint-{STEPS}"]
    copy = staticmethod(shutil.copytree)

    def name(self, path, step):
        return os.path.join(path, f"checkpoint-{step}")

    def fails(self, step):
        """The adapter, and the save that is to fail."""
        return "transformers", f"checkpoint-{step}/optimizer.pt"

    def check_after_failure(self, path):
        """Of an older one there are files, but it does not count."""
        assert os.path.exists(os.path.join(path, "optimizer.pt")) and not self.whole(os.path.dirname(path))

    def whole(self, path, ranks=1):
        """{step: checkpoint} of those that count; each is whole."""
        names = os.listdir(path) if os.path.exists(path) else []
        found = {int(name.rpartition("-")[2]): os.path.join(path, name)
                 for name in names if os.path.exists(os.path.join(path, name, "trainer_state.json"))}
        for step, directory in found.items():
            assert json.loads(self.read(directory, "trainer_state.json"))["global_step"] == step
            names = set(self.contents(directory))
            states = {f"rng_state_{rank}.pth" for rank in range(ranks)} if ranks > 1 else {"rng_state.pth"}
            assert names >= {"model.safetensors", "optimizer.pt", "scheduler.pt"} | states, names
        return found

    def read(self, directory, name):
        with open(os.path.join(directory, name)) as file:
            return file.read()

    def contents(self, directory):
        """{name: what must be equal}; training_args.bin names the directory."""
        from safetensors.torch import load_file

        found = {}
        for name in sorted(os.listdir(directory)):
            path = os.path.join(directory, name)
            if name.endswith(".safetensors"):
                found[name] = load_file(path)
            elif name.endswith((".pt", ".pth")):
                found[name] = torch.load(path, weights_only=False)
            elif name != "training_args.bin":
                found[name] = self.read(directory, name)
        return found


class Lightning:
    script, modules = "light.py", ("lightning",)
    left = [f"step={STEPS - EVERY}.ckpt", f"step={STEPS}.ckpt"]

    def name(self, path, step):
        return os.path.join(path, f"step={step}.ckpt")

    def copy(self, old, new):
        os.mkdir(os.path.dirname(new))
        shutil.copy(old, new)

    def fails(self, step):
        return "lightning", f"step={step}.ckpt"

    def check_after_failure(self, path):
        """One file: the older one is whole as it was; the new one would have another name."""
        assert self.contents(path)["global_step"] == STEPS

    def whole(self, path, ranks=1):
        names = os.listdir(path) if os.path.exists(path) else []
        found = {int(name[len("step=") : -len(".ckpt")]): os.path.join(path, name) for name in names}
        for step, file in found.items():
            state = self.contents(file)
            assert state["global_step"] == step
            assert {int(one["step"]) for one in state["optimizer_states"][0]["state"].values()} == {step}
        return found

    def contents(self, path):
        """But for the state of callbacks, which names the directory."""
        state = torch.load(path, weights_only=False)
        return {name: value for name, value in state.items() if name != "callbacks"}


FRAMEWORKS = {"transformers": Transformers(), "lightning": Lightning()}


@pytest.fixture(params=FRAMEWORKS, scope="module")
def framework(request):
    needs(*FRAMEWORKS[request.param].modules)
    return FRAMEWORKS[request.param]


@pytest.fixture(scope="module")
def kept_program():
    """[Program or nothing]: the imports take longer than the trainings."""
    found = []
    yield found
    for program in found:
        program.close()


@pytest.fixture
def program(framework, programs, kept_program):
    if kept_program and (kept_program[0].pids or kept_program[0].script != framework.script):  # or a test has failed
        kept_program.pop().close()
    if not kept_program:
        kept_program.append(Program(framework.script, programs))
    return kept_program[0]


def assert_same(a, b, where=""):
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and torch.equal(a, b), where
    elif isinstance(a, dict):
        assert list(a) == list(b), where
        for key in a:
            assert_same(a[key], b[key], f"{where}/{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for number, (one, other) in enumerate(zip(a, b)):
            assert_same(one, other, f"{where}/{number}")
    elif type(a).__module__ == "numpy":
        assert (a == b).all(), where
    else:
        assert a == b, where


def check_end(framework, told, plain):
    """The losses are those of the plain run, bit for bit, from where it began; the newest checkpoints are its, too."""
    assert told.losses == {step: loss for step, loss in plain.losses.items() if step > told.start}
    for name in framework.left:
        assert_same(framework.contents(os.path.join(plain.directory, name)), framework.contents(os.path.join(told.directory, name)), name)


def test_as_without_us(cairn, program, framework, rng, full):
    """By the adapter, with no line changed, and where no save is lazy (one of the first two without --full, test_kills has both): losses
    and checkpoints are those of torch.save, and older ones are gone."""
    cairn.mount(stage="1G")
    plain = program.plain()
    assert sorted(plain.losses) == list(range(1, STEPS + 1)) and plain.left == framework.left and plain.through_lane == 0
    for how in (*(("adapter", "run") if full else [rng.choice(("adapter", "run"))]), "eager"):
        told = program.run(os.path.join(cairn.mnt, how), how)
        check_end(framework, told, plain)
        assert told.left == framework.left, how
        assert told.through_lane >= STEPS // EVERY and (told.lazy > 0) == (how != "eager"), how


def test_a_save_that_fails(cairn, program, framework):
    """It is no checkpoint and takes none away, and the training that comes next begins at the one before; what it writes over counts no
    more."""
    cairn.mount(stage="1G")
    plain, path = program.plain(), os.path.join(cairn.mnt, "run")
    program.run(path, "adapter", fail=framework.fails(STEPS))
    assert sorted(framework.whole(path)) == [STEPS - 2 * EVERY, STEPS - EVERY]
    told = program.run(path, "adapter", resume=True)
    assert told.start == STEPS - EVERY and told.left == framework.left
    check_end(framework, told, plain)
    path = framework.name(os.path.join(cairn.mnt, "other"), EVERY)
    framework.copy(framework.name(told.directory, STEPS), path)
    program.run_until(os.path.dirname(path), "adapter", "saved", EVERY, fail=framework.fails(EVERY))
    framework.check_after_failure(path)


def test_kills(cairn, program, framework, rng, full):
    """kill -9 of the trainer, and once of the daemon with it: what counts as a checkpoint is whole, and the training goes on from the
    newest."""
    options = {"stage": "1G", "writeback_delay": "100ms"}
    cairn.mount(**options)
    plain = program.plain()
    for number in range(30 if full else 1):
        path, start = os.path.join(cairn.mnt, "run"), 0
        os.mkdir(path)
        for turn in range(3):
            what, step, how = rng.choice(("step", "saved")), min(start + rng.randrange(3, 6), STEPS - 1), rng.choice(("adapter", "run"))
            accident = cairn.kill9 if turn == 1 else None
            told = program.run_until(path, how, what, step, rng.random() * 0.1, accident, resume=True)
            if turn == 1:
                cairn.mount(**options)
            assert told.start == start and told.losses.items() <= plain.losses.items()
            start = max(framework.whole(path), default=0)
            print(f"killed behind {what} {step} of {how}: {start} is the newest checkpoint")
            # the update behind the last save but one saw its copies done, and all that was left to it is to be named
            assert start >= max(told.start, told.saved - EVERY), "a checkpoint was lost"
        if start == STEPS:  # the last kill came too late: transformers would go on for another step
            assert_same(*(framework.contents(framework.name(directory, STEPS)) for directory in (plain.directory, path)))
        else:
            told = program.run(path, rng.choice(("adapter", "run")), resume=True)
            assert told.start == start and set(told.left) >= set(framework.left)
            check_end(framework, told, plain)
        shutil.rmtree(path)
    cairn.umount_whole()


@pytest.mark.parametrize("framework", ["lightning"], indirect=True)
def test_names_and_averages(cairn, program, framework):
    """A name that is there already, a link to the newest, and averages that are swapped for the parameters while a save may read them."""
    cairn.mount(stage="1G")
    plain = program.plain(names=True)
    for how in ("adapter", "run"):
        told = program.run(os.path.join(cairn.mnt, how), how, names=True)
        assert told.losses == plain.losses and told.left == plain.left and told.lazy and not told.dangling
        links = [[os.readlink(os.path.join(one.directory, "last.ckpt"))] for one in (told, plain)]
        assert links[0] == links[1]
        states = [framework.contents(os.path.join(one.directory, "last.ckpt")) for one in (told, plain)]
        assert states[0]["global_step"] == STEPS and "current_model_state" in states[0]
        assert_same(*states)


@pytest.mark.parametrize("how", ("adapter", "run"))
def test_two_ranks(cairn, program, framework, how, full):
    """Data-parallel: the first rank saves lazily, and its marker comes behind the files of the other, which come late; both go on from
    there after a kill."""
    if not full:
        pytest.skip("skipped: only with --full")
    cairn.mount(stage="1G")
    plain, path = program.plain(ranks=2), os.path.join(cairn.mnt, "run")
    os.mkdir(path)
    late = ["late", ""] if framework is FRAMEWORKS["transformers"] else None
    program.run_until(path, how, "saved", 8, 0.2, ranks=2, resume=True, fail=late)
    start = max(framework.whole(path, ranks=2))
    told = program.run(path, how, ranks=2, resume=True)
    assert told.start == start >= 4
    assert told.lazy
    check_end(framework, told, plain)

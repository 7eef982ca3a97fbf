# SPDX-License-Identifier: Apache-2.0
"""Rounds of: save lazily, hold the copy at a write, change what is copied, let it go. The file is the clone of the call, or the save has
failed.

Arguments: directory, seed, rounds, kinds (or "all"). LD_PRELOAD is the library of hold_writes.c. The last line of output is
{kind: [rounds, held, exact, failed]} as JSON."""
import ctypes
import faulthandler
import json
import os
import random
import sys
import threading
import time
import warnings
import zipfile

import torch
import torch.distributed
import torch.distributed.tensor as dtensor
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map

import cairnfs
from cairnfs import _process, _track

SHAPES = ((300, 1000), (128, 256), (700, 700), (64, 512))
WAIT_MS = 20_000  # plenty for the first writes of a copy


# --- kinds of parameters: each gives (what the save holds, the tensors that are changed, ways to change them besides OPERATIONS) ---


def values(shape, seed=1):
    return (torch.arange(seed, seed + torch.Size(shape).numel(), dtype=torch.float32) % 8191 - 4000).view(shape) / 1000


def stepped(parameters, kind=torch.optim.SGD, **options):
    optimizer = kind(parameters, **{"lr": 0.5, **options})
    for parameter in parameters:
        parameter.grad = parameter.detach() * 0.25
    optimizer.step()
    return optimizer


def trained(parameters, dice, **ways):
    """With an optimizer that has stepped."""
    optimizer = stepped(parameters, momentum=dice.choice((0, 0.9)))
    before = {"p": [parameter.detach() * 2 for parameter in parameters], "o": optimizer.state_dict()}
    ways = {
        "step": lambda p, dice: optimizer.step(),
        "load": lambda p, dice: optimizer.load_state_dict(before["o"]),
        "momentum": lambda p, dice: change(dice.choice([*optimizer.state.values()]).get("momentum_buffer", p), dice),
        **ways,
    }
    return {"p": parameters, "o": optimizer.state_dict()}, [p for p in parameters if p.nbytes >= _track.SMALL], ways


def plain(dice):
    parameters = [torch.nn.Parameter(values(shape)) for shape in dice.sample(SHAPES, 2)]
    parameters.append(torch.nn.Parameter(values((400, 300)).t()))
    return trained(parameters, dice, average=lambda p, dice: average(parameters, dice), pointers=lambda p, dice: pointers(p),
                   swapped=swapped, storage=lambda p, dice: p.untyped_storage().fill_(1),
                   set=lambda p, dice: p.detach().set_(torch.zeros(3)),
                   foreach=foreach, freed=lambda p, dice: setattr(p, "data", torch.zeros(3)),
                   shared=lambda p, dice: p.untyped_storage().share_memory_())


def average(parameters, dice):
    """Averages are swapped in for an evaluation, and out again."""
    kept = [parameter.detach().clone() for parameter in parameters]
    with torch.no_grad():
        for parameter in parameters:
            parameter.copy_(parameter * 0.5)
        if dice.random() < 0.5:
            for parameter, value in zip(parameters, kept):
                parameter.copy_(value)


def pointers(p):
    other = p.detach() * 3
    p.data, other.data = other.data, p.data
    other.mul_(0.5)


def swapped(p, dice):
    other = torch.nn.Parameter(p.detach() * 3)
    torch.utils.swap_tensors(p, other)
    with torch.no_grad():
        change(other, dice)


def foreach(p, dice):
    getattr(torch, dice.choice(("_foreach_clamp_max_", "_foreach_add_", "_foreach_maximum_")))([p, p.view_as(p)[:0]], 3.9)


def views(dice):
    whole = values((900, 400))
    return trained([torch.nn.Parameter(whole[:500]), torch.nn.Parameter(whole[500:])], dice)


def tied(dice):
    embedding, head = torch.nn.Embedding(700, 400), torch.nn.Linear(400, 700, bias=False)
    head.weight = embedding.weight
    model = torch.nn.ModuleDict({"embedding": embedding, "head": head})
    state, parameters, ways = trained(list(model.parameters()), dice, to=lambda p, dice: model.to(torch.float64),
                                      fresh=lambda p, dice: head.reset_parameters())
    return {"model": model.state_dict(), **state}, parameters, ways


def sparse(dice):
    embedding = torch.nn.Embedding(900, 300, sparse=True)
    optimizer = torch.optim.SparseAdam(embedding.parameters(), lr=0.1)

    def step(p, dice):
        embedding.zero_grad()
        embedding(torch.tensor([dice.randrange(900)])).sum().backward()
        optimizer.step()

    step(None, dice)
    state = {"model": embedding.state_dict(), "o": optimizer.state_dict()}
    return state, [embedding.weight, *optimizer.state[embedding.weight].values()][:3:2], {"step": step}


def max_norm(dice):
    """Rows are scaled by forward."""
    embedding = dice.choice((torch.nn.Embedding, torch.nn.EmbeddingBag))(800, 300, max_norm=0.5)
    state, parameters, ways = trained(list(embedding.parameters()), dice)
    return state, parameters, {**ways, "forward": lambda p, dice: embedding(torch.tensor([[dice.randrange(800)]]))}


def parametrized(dice):
    layer = torch.nn.Linear(600, 500)
    dice.choice((torch.nn.utils.parametrizations.weight_norm, torch.nn.utils.parametrizations.spectral_norm))(layer)
    state, parameters, ways = trained(list(layer.parameters()), dice)
    return {"model": layer.state_dict(), **state}, parameters, {**ways, "assign": lambda p, dice: assign(layer)}


def assign(layer):
    layer.weight = layer.weight.detach() * 0.5


def wrapped(dice, wrap):
    return trained([torch.nn.Parameter(wrap(values(shape))) for shape in dice.sample(SHAPES, 2)], dice, swapped=swapped)


def pair(dice):
    return wrapped(dice, lambda value: TwoTensor(value, value + 1))


def nested(dice):
    return wrapped(dice, lambda value: TwoTensor(TwoTensor(value, value + 1), TwoTensor(value + 2, value + 3)))


class Halting(TwoTensor):
    """In the middle of an operation the copy goes on, and ends: the first part is changed, and no version says so yet."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        parts = [tree_map(lambda x, part=part: getattr(x, part) if isinstance(x, cls) else x, (args, kwargs or {})) for part in "ab"]
        first = func(*parts[0][0], **parts[0][1])
        if func._schema.is_mutable:
            HOLD.hold_after(-1)
            time.sleep(0.02)
        out = tree_map(lambda a, b: cls(a, b) if isinstance(a, torch.Tensor) else a, first, func(*parts[1][0], **parts[1][1]))
        return return_and_correct_aliasing(func, args, kwargs or {}, out)


def under_way(dice):
    return wrapped(dice, lambda value: Halting(value, value + 1))


def distributed(dice):
    placement = dice.choice((dtensor.Shard(0), dtensor.Shard(1), dtensor.Replicate()))
    state, parameters, ways = wrapped(dice, lambda value: dtensor.DTensor.from_local(value, MESH, [placement], run_check=False))
    return state, parameters, {**ways, "local": lambda p, dice: change(p.to_local(), dice)}


def sharded(dice):
    """FSDP2."""
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Sequential(torch.nn.Linear(300, 400, bias=False), torch.nn.Linear(400, 500))
    fully_shard(model, mesh=MESH)
    state, parameters, ways = trained([p for p in model.parameters() if p.dim() == 2], dice)

    def train(p, dice):
        model(torch.ones(2, 300)).sum().backward()
        ways["step"](p, dice)

    def forward(p, dice):
        model(torch.ones(2, 300))

    return {"model": model.state_dict(), **state}, parameters, {**ways, "train": train, "forward": forward}


def compiled(dice):
    parameters = [torch.nn.Parameter(values((300, 1000)))]
    return trained(parameters, dice, clamp=lambda p, dice: COMPILED["clamp"](p), column=lambda p, dice: COMPILED["column"](p),
                   all=lambda p, dice: COMPILED["all"](p))


def eager():
    """What is marked for a compiler runs as it is."""
    return torch.compiler.set_stance("force_eager")


def quantized(dice):
    """The state of an optimizer of torchao, 8 bits in a subclass of its own."""
    from torchao.optim import AdamW8bit

    parameters = [torch.nn.Parameter(values((300, 1024)))]
    with eager():
        optimizer = stepped(parameters, AdamW8bit)

    def step():
        with eager():
            optimizer.step()

    moments = [optimizer.state[parameters[0]][name] for name in ("exp_avg", "exp_avg_sq")]
    ways = {
        "step": lambda p, dice: step(), "reset": lambda p, dice: dice.choice(moments).copy_(torch.zeros(300, 1024)),
        "codes": lambda p, dice: change(dice.choice(moments).codes, dice),
        "scale": lambda p, dice: change(dice.choice(moments).scale, dice),
    }
    return {"p": parameters, "o": optimizer.state_dict()}, parameters, ways


def at_once(dice):
    """The caller waits for the save, and another thread writes to what it saves, as it may during a plain torch.save."""
    state, parameters, _ = plain(dice)
    return state, parameters, {"fill": lambda p, dice: [parameter.data.fill_(7) for parameter in parameters]}


KINDS = {
    function.__name__: function
    for function in (plain, views, tied, sparse, max_norm, parametrized, pair, nested, under_way, distributed, sharded, at_once, compiled,
                     quantized)
}
COMPILED = {
    "clamp": lambda p: len(p.clamp_(max=3.9)),
    "column": lambda p: len(p[:, 17].zero_()),
    "all": lambda p: len(p.mul_(0.5)),
}


# --- operations that change a tensor in its place ---


def rows(p, dice):
    return torch.tensor(sorted(dice.sample(range(p.shape[0]), 3)))


def few(p, dice):
    """A mask of a few elements, as that kind of tensor."""
    return (p.detach() * 1000 + dice.randrange(4000)).round().remainder(3001) == 0


OPERATIONS = {
    "element": lambda p, dice: p.__setitem__((dice.randrange(p.shape[0]), dice.randrange(p.shape[1])), 9),
    "element of views": lambda p, dice: p[dice.randrange(p.shape[0])][dice.randrange(p.shape[1])].fill_(9),
    "column": lambda p, dice: p.index_fill_(1, torch.tensor([dice.randrange(p.shape[1])]), 9),
    "column of a view": lambda p, dice: p[:, dice.randrange(p.shape[1])].zero_(),
    "rows": lambda p, dice: p.index_add_(0, rows(p, dice), p.detach()[:3] + 1),
    "copied rows": lambda p, dice: p.index_copy_(0, rows(p, dice), p.detach()[:3] + 1),
    "put": lambda p, dice: p.index_put_((rows(p, dice), torch.tensor([1, 2, 3])), torch.tensor(9.0)),
    "scatter": lambda p, dice: p.scatter_(1, torch.full((p.shape[0], 1), dice.randrange(p.shape[1])), 9.0),
    "mask": lambda p, dice: p.masked_fill_(few(p, dice), 9),
    "pruned": lambda p, dice: p.mul_(few(p, dice).logical_not()),
    "where": lambda p, dice: torch.where(few(p, dice), 9.0, p.detach(), out=p),
    "clamp": lambda p, dice: p.clamp_(max=4.18),
    "threshold": lambda p, dice: torch.nn.functional.threshold_(p, -3.99, 7.0),
    "all": lambda p, dice: p.mul_(0.5),
    "copy": lambda p, dice: p.copy_(p.detach() + 1),
    "undone": lambda p, dice: (p.add_(0.1), p.sub_(0.1)),
    "out": lambda p, dice: torch.add(p.detach(), 1, out=p),
    "fresh": lambda p, dice: torch.nn.init.uniform_(p),
    "triangle": lambda p, dice: p.tril_(1),
    "diagonal": lambda p, dice: p.diagonal().fill_(9),
    "strided": lambda p, dice: p.as_strided((5,), (7,), dice.randrange(1000)).zero_(),
    "flat": lambda p, dice: p.view(-1)[dice.randrange(p.numel())].add_(9),
    "detached": lambda p, dice: p.detach()[dice.randrange(p.shape[0]), :2].fill_(9),
    "transposed": lambda p, dice: p.t()[dice.randrange(p.shape[1]), 2:4].neg_(),
    "narrow": lambda p, dice: p.narrow(0, dice.randrange(p.shape[0]), 1).narrow(1, 3, 2).exp_(),
    "lerp": lambda p, dice: p.lerp_(p.detach() * 3, 0.5),
    "addcmul": lambda p, dice: p.addcmul_(p.detach(), p.detach(), value=0.1),
    "renorm": lambda p, dice: p.renorm_(2, 0, 1.0),
    "reduced": lambda p, dice: torch.distributed.all_reduce(p[dice.randrange(p.shape[0])]),
    "broadcast": lambda p, dice: (p.add_(1), torch.distributed.broadcast(p, 0)),
    "another thread": lambda p, dice: in_thread(lambda: no_grad(lambda: p[:, 5].fill_(9))),
    "inference": lambda p, dice: inference(lambda: p[dice.randrange(p.shape[0])].fill_(9)),
}
# No counter tells of these: all bytes change, so samples do.
HIDDEN = {
    "data": lambda p, dice: p.data.add_(1),
    "numpy": lambda p, dice: p.detach().numpy().__imul__(2),
    "dlpack": lambda p, dice: torch.from_dlpack(p.detach()).neg_(),
}
# Nor samples: what is left is that the file does not contradict its checksums.
UNSEEN = {
    "data column": lambda p, dice: p.data[:, dice.randrange(p.shape[1])].fill_(9),
    "data and back": lambda p, dice: (p.data.mul_(3), p.data.div_(3)),
    "numpy element": lambda p, dice: p.detach().numpy().__setitem__((dice.randrange(p.shape[0]), 0), 9),
}
# The fence runs before them: they wait until the copy goes on.
WAIT = {"step", "load", "to", "train", "swapped", "storage", "set", "shared", "assign"}


def no_grad(function):
    with torch.no_grad():
        function()


def inference(function):
    with torch.inference_mode():
        function()


def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def change(p, dice):
    OPERATIONS[dice.choice(sorted(OPERATIONS))](p, dice)


# --- a round ---


def leaves(obj):
    """The plain tensors in it, in an order that is the same for what is loaded of it."""
    if isinstance(obj, torch.Tensor) and hasattr(obj, "__tensor_flatten__"):
        return [leaf for name in obj.__tensor_flatten__()[0] for leaf in leaves(getattr(obj, name))]
    if isinstance(obj, torch.Tensor):
        return [obj.detach()]
    if isinstance(obj, dict):
        return [leaf for value in obj.values() for leaf in leaves(value)]
    if isinstance(obj, (list, tuple)):
        return [leaf for value in obj for leaf in leaves(value)]
    return []


def same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(bytes_of(a), bytes_of(b))


def bytes_of(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8)


class Round:
    def __init__(self, directory, kind, dice):
        self.kind, self.dice = kind, dice
        self.path = os.path.join(directory, "state.pt")
        self.state, self.tensors, self.ways = KINDS[kind](dice)
        self.done = []

    def ways_to_change(self):
        """[(name, function, is it promised)] of this round."""
        names = self.dice.choices(sorted(OPERATIONS) + sorted(self.ways) * 3, k=self.dice.choice((1, 1, 2, 3)))
        found = [(name, self.ways.get(name) or OPERATIONS[name], True) for name in names]
        if self.kind == "plain" and self.dice.random() < 0.3:
            unseen = self.dice.random() < 0.5
            name = self.dice.choice(sorted(UNSEEN if unseen else HIDDEN))
            found[0] = (name, (UNSEEN if unseen else HIDDEN)[name], not unseen)
        return found

    def run(self):
        """(was the copy held, what the save failed with)."""
        before = [leaf.clone() for leaf in leaves(self.state)]
        storages = {leaf.untyped_storage()._cdata for leaf in leaves(self.state) if leaf.untyped_storage().nbytes() >= _track.SMALL}
        ways = self.ways_to_change()
        HOLD.hold_after(self.dice.randrange(len(storages)))  # each is one write at least
        save = self.begin()
        held = HOLD.hold_wait(WAIT_MS)
        release = threading.Timer(0.005, lambda: HOLD.hold_after(-1))
        for name, function, _ in ways:
            if name in WAIT and not release.ident:
                release.start()
            self.act(name, function)
        HOLD.hold_after(-1)
        if release.ident:
            release.join()
        error = save().exception()
        if error is None:
            self.check(before, self.kind != "at_once" and all(promised for *_, promised in ways))
        return held, error

    def begin(self):
        """A function that gives the Save."""
        if self.kind != "at_once":
            save = cairnfs.save(self.state, self.path)
            return lambda: save
        found = []
        thread = threading.Thread(target=lambda: found.append(cairnfs.save(self.state, self.path, lazy=False)))
        thread.start()
        return lambda: thread.join() or found[0]

    def act(self, name, function):
        """What a kind of tensor does not have raises, before or after it changed something: that is a change, too."""
        self.done.append(name)
        p = self.dice.choice(self.tensors)
        try:
            if name == "inference":
                function(p, self.dice)
            else:
                no_grad(lambda: function(p, self.dice)) if name not in ("forward", "train") else function(p, self.dice)
        except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError, AttributeError) as why:
            self.done[-1] += f" ({type(why).__name__})"

    def check(self, before, promised):
        with zipfile.ZipFile(self.path) as archive:
            assert archive.testzip() is None, "the file contradicts its checksums"
        if promised:
            loaded = leaves(torch.load(self.path, weights_only=False))
            wrong = [number for number, (a, b) in enumerate(zip(before, loaded, strict=True)) if not same(a, b)]
            assert not wrong, f"the file has other bytes than the call: tensors {wrong} of {len(before)}"


def main(directory, seed, rounds, kinds):
    faulthandler.dump_traceback_later(120, exit=True)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    kinds = [kind for kind in KINDS if kinds == "all" or kind in kinds.split(",")]
    if "compiled" in kinds:
        compile_all()
    counts = {kind: [0, 0, 0, 0] for kind in kinds}
    for number in range(int(rounds)):
        faulthandler.dump_traceback_later(120, exit=True)
        kind = kinds[number % len(kinds)]
        dice = random.Random(f"{seed} {number}")
        torch.manual_seed(number)
        one = Round(directory, kind, dice)
        try:
            held, error = one.run()
        except AssertionError as wrong:
            raise AssertionError(f"round {number} of seed {seed}, {kind}, changed by {one.done}: {wrong}") from None
        for index, value in enumerate((1, held, error is None, error is not None)):
            counts[kind][index] += value
        forget()
    print(json.dumps(counts))


def compile_all():
    for name, function in COMPILED.items():
        COMPILED[name] = torch.compile(function, backend="aot_eager")
        no_grad(lambda name=name: COMPILED[name](torch.nn.Parameter(values((300, 1000)))))


def forget():
    """The next round begins as the first one: what was seen to change is lazy again."""
    process = _process.current()
    process.untold.clear()
    process.failed.clear()
    process.unraised.clear()
    _track._stepped.clear()
    _track._changed.clear()


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    MESH = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    HOLD = ctypes.CDLL(os.environ["LD_PRELOAD"])
    HOLD.hold_wait.restype = ctypes.c_bool
    main(*sys.argv[1:])

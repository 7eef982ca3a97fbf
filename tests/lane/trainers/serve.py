# SPDX-License-Identifier: Apache-2.0
"""Trainings one after the other: the framework is imported once, each training is a process of its own that ends as any program does."""
import gc
import importlib
import json
import os
import sys
import time
import warnings

warnings.simplefilter("ignore")
import torch

torch.set_num_threads(1)


def say(**what):
    """One line for the test, in one write: the process may be killed at any moment."""
    if os.environ.get("RANK", "0") == "0":
        os.write(1, json.dumps(what).encode() + b"\n")


def serve(train):
    """train(directory, how, resume, names) for each line on standard input, which has these and "ranks" and "fail". how: "plain": with
    nothing of ours; "adapter": with what a program writes that knows of us; "run": as python -m cairnfs.run left it, lazy; "eager": as it
    is without CAIRN_LAZY. fail: [adapter, part of a path]: that save fails; ["late", ""]: of transformers, what ranks but the first write
    comes late."""
    gc.freeze()  # else each training looks for garbage among all that was imported, and again when it ends
    for line in sys.stdin:
        order = json.loads(line)
        children = fork(order["ranks"])
        if children is None:
            break
        say(pids=children)
        say(status=max(abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) for child in children))
    else:
        return
    import cairnfs

    if order["how"] != "run":
        cairnfs.uninstall()
    if order["how"] == "eager":
        cairnfs.install(lazy=False)
    if order["fail"]:
        fail(*order["fail"])
    report_lazy()
    torch.manual_seed(0)
    train(order["directory"], order["how"], order["resume"], order["names"])
    say(through_lane=cairnfs.stats()["saves_begun"])


def fork(ranks):
    """The children; None: this is one of them."""
    children = []
    port = str(20000 + os.getpid() % 10000)
    for rank in range(ranks):
        child = os.fork()
        if child:
            children.append(child)
            continue
        if ranks > 1:  # what torchrun sets
            count, rank = str(ranks), str(rank)
            os.environ.update(RANK=rank, LOCAL_RANK=rank, GROUP_RANK="0", WORLD_SIZE=count, LOCAL_WORLD_SIZE=count, TORCHELASTIC_RUN_ID="1")
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        return None
    return children


def fail(adapter, part):
    if adapter == "late":
        come_late()
        return
    module = importlib.import_module(f"cairnfs.{adapter}")
    original = module.save

    def save(obj, path, **options):
        one = original(obj, path, **options)
        if part in os.fspath(path):
            assert one.cancel()
        return one

    module.save = save


def come_late():
    from transformers import Trainer

    original = Trainer._save_rng_state

    def save(*arguments):
        time.sleep(0.5 if os.environ.get("RANK", "0") != "0" else 0)  # rank 0 has its files and its marker long before
        original(*arguments)

    Trainer._save_rng_state = save


def report_lazy():
    """From now on each save whose call does not wait for parameters or optimizer state to be copied says {"lazy": 1}."""
    from cairnfs import _start

    fill = _start.fill

    def reported(save, plan, *arguments):
        fill(save, plan, *arguments)
        if plan.lazy is not False and save.storages:
            say(lazy=1)

    _start.fill = reported

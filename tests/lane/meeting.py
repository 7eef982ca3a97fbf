# SPDX-License-Identifier: Apache-2.0
"""Two ranks under cairnfs.run with CAIRN_LAZY=1: each saves its shard by torch.save, the ranks meet, rank 0 writes a marker and looks
whether the shard of rank 1 has its name. A line of JSON a way: {"way": ..., "there": true}; of rank 1 whether its save was under way.

meeting.py DIRECTORY WAY ACT [kill|tells|dies]: of WAY and ACT "all" is each of WAYS, and of ACTS. kill: rank 0 kills rank 1 and itself when
the marker is there. tells: rank 1 says when torch.save has returned. dies: rank 1 kills itself when they have met."""
import ctypes
import json
import multiprocessing.connection
import os
import signal
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.distributed_c10d import barrier as imported_barrier

from cairnfs import _process

libc = ctypes.CDLL(None, use_errno=True)
DIRECTORY = sys.argv[1]
RANK = int(os.environ["RANK"])
OTHER = 1 - RANK
SIZE = (16, 48 << 20)[RANK]  # floats of a shard: that of rank 1 is on its way when rank 0 is there


def store():
    return dist.distributed_c10d._get_default_store()


def meet_by_store(key):
    if RANK:
        store().set(key, "saved")
    else:
        store().wait([key])


def meet_by_own_store(kind, name):
    if RANK:
        meet_by_own_store.kept = kind(name) if isinstance(kind, type) else kind(name)
        meet_by_own_store.kept.set("saved", "1")
    else:
        kind(name).get("saved")


def tcp_store(name):
    return dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]) + 1, is_master=RANK == 1, wait_for_workers=False)


def file_store(name):
    return dist.FileStore(os.path.join(os.environ["ELSEWHERE"], name), 2)


def meet_by_file(name):
    """Of another filesystem, written through a descriptor that the gate knows nothing of."""
    path = os.path.join(os.environ["ELSEWHERE"], name)
    if RANK:
        libc.close(libc.creat(path.encode(), 0o600))
    while libc.access(path.encode(), 0) != 0:
        time.sleep(0.001)


def meet_by_map(name):
    """A counter in shared memory: nothing sees it."""
    tensor = torch.from_file(os.path.join(os.environ["ELSEWHERE"], "counter"), shared=True, size=1, dtype=torch.int64)
    if RANK:
        tensor += 1
        meet_by_map.met = getattr(meet_by_map, "met", 0) + 1
    else:
        meet_by_map.met = getattr(meet_by_map, "met", 0) + 1
        while tensor.item() < meet_by_map.met:
            time.sleep(0.001)


def meet_by_socket(name):
    address = "\0cairn-test-" + os.environ["MASTER_PORT"] + name
    if RANK:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(address)
            sock.listen()
            sock.accept()[0].sendall(b"x")
    else:
        with socket.socket(socket.AF_UNIX) as sock:
            while sock.connect_ex(address) != 0:
                time.sleep(0.001)
            sock.recv(1)


def meet_by_connection(name):
    address = os.path.join(os.environ["ELSEWHERE"], name)
    if RANK:
        with multiprocessing.connection.Listener(address) as listener, listener.accept() as connection:
            connection.send("saved")
    else:
        while not os.path.exists(address):
            time.sleep(0.001)
        time.sleep(0.01)
        with multiprocessing.connection.Client(address) as connection:
            connection.recv()


def exchange(call):
    def meet(name):
        return call(torch.ones(4))

    return meet


def meet_by_gradients(name):
    """C++ code begins the all_reduce."""
    if not hasattr(meet_by_gradients, "model"):
        meet_by_gradients.model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    meet_by_gradients.model(torch.ones(1, 4)).sum().backward()


def point_to_point(tensor):
    return dist.send(tensor, 0) if RANK else dist.recv(tensor, 1)


def batch(tensor):
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend if RANK else dist.irecv, tensor, OTHER)]):
        work.wait()


def nothing_lasts(name):
    dist.barrier()
    dist.destroy_process_group()


WAYS = {
    "barrier": lambda name: dist.barrier(),
    "imported barrier": lambda name: imported_barrier(),
    "monitored_barrier": lambda name: dist.monitored_barrier(),
    "all_reduce": exchange(dist.all_reduce),
    "all_reduce, large": lambda name: dist.all_reduce(torch.ones(1 << 20)),
    "all_reduce, async": lambda name: dist.all_reduce(torch.ones(1), async_op=True).wait(),
    "reduce": exchange(lambda tensor: dist.reduce(tensor, 0)),
    "broadcast": exchange(lambda tensor: dist.broadcast(tensor, 1)),
    "all_gather": exchange(lambda tensor: dist.all_gather([torch.empty(4), torch.empty(4)], tensor)),
    "all_gather_into_tensor": exchange(lambda tensor: dist.all_gather_into_tensor(torch.empty(8), tensor)),
    "gather": exchange(lambda tensor: dist.gather(tensor, None if RANK else [torch.empty(4), torch.empty(4)])),
    "scatter": exchange(lambda tensor: dist.scatter(tensor, [torch.ones(4), torch.ones(4)] if RANK else None, src=1)),
    "reduce_scatter": exchange(lambda tensor: dist.reduce_scatter_tensor(torch.empty(2), tensor)),
    "all_to_all": exchange(lambda tensor: dist.all_to_all_single(torch.empty(4), tensor)),
    "send": exchange(point_to_point),
    "batch_isend_irecv": exchange(batch),
    "gather_object": lambda name: dist.gather_object("saved", None if RANK else [None, None]),
    "all_gather_object": lambda name: dist.all_gather_object([None, None], "saved"),
    "broadcast_object_list": lambda name: dist.broadcast_object_list(["saved"], src=1),
    "scatter_object_list": lambda name: dist.scatter_object_list([None], ["a", "b"] if RANK else None, src=1),
    "functional": exchange(lambda tensor: functional.all_reduce(tensor, "sum", [0, 1]) + 0),
    "gradients": meet_by_gradients,
    "new_group": lambda name: dist.new_group([0, 1]),
    "key": meet_by_store,
    "TCPStore": lambda name: meet_by_own_store(tcp_store, name),
    "FileStore": lambda name: meet_by_own_store(file_store, name),
    "file": meet_by_file,
    "map": meet_by_map,
    "socket": meet_by_socket,
    "Connection": meet_by_connection,
    "destroy_process_group": nothing_lasts,
}


def write(path):
    with open(path, "w") as file:
        file.write("1")


def rename(path):
    os.rename(os.path.join(DIRECTORY, "ready"), path)


# What rank 0 makes visible then.
ACTS = {
    "open": write,
    "torch.save": lambda path: torch.save({"latest": 1}, path),
    "rename": rename,
    "mkdir": os.mkdir,
    "symlink": lambda path: os.symlink(".", path),
    "program": lambda path: subprocess.run(["touch", path], check=True),
}


class Shard:
    """A model and its momentum: what a step has changed is saved lazily."""

    def __init__(self):
        self.weight = torch.nn.Parameter(torch.ones(SIZE))
        self.optimizer = torch.optim.SGD([self.weight], lr=0.1)
        self.step()

    def step(self):
        self.weight.grad = torch.ones_like(self.weight)
        self.optimizer.step()
        self.weight.grad = None


def say(**what):
    print(json.dumps(what), flush=True)


def is_there(path):
    return libc.access(path.encode(), 0) == 0


def meet(shard, way, act, kill):
    name = f"{way}-{act}".replace(" ", "_").replace(",", "")
    marker, file = os.path.join(DIRECTORY, f"latest-{name}"), os.path.join(DIRECTORY, f"shard%d-{name}.pt")
    if act == "rename" and RANK == 0:
        write(os.path.join(DIRECTORY, "ready"))
    shard.step()
    dist.barrier()
    torch.save({"weight": shard.weight, "optimizer": shard.optimizer.state_dict()}, file % RANK)
    if RANK and "tells" in sys.argv:
        say(saved=True)
    WAYS[way](name)
    if RANK and "dies" in sys.argv:
        libc.kill(os.getpid(), signal.SIGKILL)
    if RANK:
        say(way=way, act=act, lazy=bool(_process.current().pending))
        return
    ACTS[act](marker)
    while not is_there(marker):
        pass
    there = is_there(file % 1)
    if kill:
        libc.kill(int(os.environ["OTHER"]), signal.SIGKILL)
        libc.kill(os.getpid(), signal.SIGKILL)
    say(way=way, act=act, there=there)


def main():
    ways, acts = (list(of) if which == "all" else [which] for which, of in ((sys.argv[2], WAYS), (sys.argv[3], ACTS)))
    dist.init_process_group("gloo")
    shard = Shard()
    if "kill" in sys.argv:
        pids = [None, None]
        dist.all_gather_object(pids, os.getpid())
        os.environ["OTHER"] = str(pids[OTHER])
    for way in ways:
        for act in acts:
            meet(shard, way, act, "kill" in sys.argv)
            if dist.is_initialized():
                dist.barrier()
            if RANK and dist.is_initialized() and "tells" not in sys.argv:
                libc.unlink(os.path.join(DIRECTORY, f"shard1-{way}-{act}".replace(" ", "_").replace(",", "") + ".pt").encode())


main()

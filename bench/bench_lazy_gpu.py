#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lazy saves with one GPU: what a save blocks, what a step costs beside it, how fast copies come, against torch.save and DCP.

Skipped where nvidia-smi does not answer. Ends within --budget seconds: what did not get its turn is listed as not run. --dry-run tries it
without a GPU: the driver's and the lane's part on the stand-in for libcuda.so.1 (tests/client/cuda), the training small on the CPU. Its
figures mean nothing.
"""
import argparse
import ctypes
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "python"))
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
STEPS = 30  # of a case with a save at every 10th
STATE_OF_PARAMETER = 12  # fp32: the parameter, exp_avg, exp_avg_sq


class Clock:
    """What is left of the budget; which cases are asked for, and which of them did not get their turn."""

    def __init__(self, budget, only):
        self.end, self.not_run, self.only = time.monotonic() + budget, [], only

    def has(self, seconds, case):
        if time.monotonic() + seconds < self.end:
            return True
        self.not_run.append(case)
        return False


# --- the driver alone: the limit ------------------------------------------------------------------------------------------


class Driver:
    """As little of the CUDA driver as tells how fast copies can be."""

    def __init__(self, library):
        self.cuda = ctypes.CDLL(library)
        self.context, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self("cuInit", 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self("cuCtxSetCurrent", self.context)
        self("cuStreamCreate", ctypes.byref(self.stream), 1)

    def __call__(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name}: CUDA error {code}")

    def allocate(self, size):
        address = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address):
        self("cuMemFree_v2", ctypes.c_uint64(address))

    def fill(self, address, value, size):
        self("cuMemsetD32Async", ctypes.c_uint64(address), ctypes.c_uint(value), ctypes.c_size_t(size // 4), self.stream)

    def to_host(self, host, address, size):
        self("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(host), ctypes.c_uint64(address), ctypes.c_size_t(size), self.stream)

    def wait(self):
        self("cuStreamSynchronize", self.stream)


def measure_limit(driver, size):
    """GB/s of copies into registered shared memory by the size of a piece; seconds a GB to register it in chunks."""
    figures = {"bytes": size, "register_s_per_gb": {}, "d2h_gb_per_s": {}}
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.truncate(size)
        memory = mmap.mmap(file.fileno(), size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        anchor = ctypes.c_char.from_buffer(memory)
        host, device = ctypes.addressof(anchor), driver.allocate(size)
        for chunk in sorted({min(256 * MIB, size), min(GIB, size)}):
            begin = time.monotonic()
            for at in range(0, size, chunk):
                driver("cuMemHostRegister_v2", ctypes.c_void_p(host + at), ctypes.c_size_t(chunk), 1)
            figures["register_s_per_gb"][f"{chunk // MIB} MiB"] = (time.monotonic() - begin) / size * 1e9
            if chunk == min(GIB, size):
                break
            for at in range(0, size, chunk):
                driver("cuMemHostUnregister", ctypes.c_void_p(host + at))
        for piece in (MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB):
            if piece <= size:
                rates = [measure_copy(driver, host, device, size, piece) for _ in range(5)]
                figures["d2h_gb_per_s"][f"{piece // MIB} MiB"] = statistics.median(rates)
        for at in range(0, size, chunk):
            driver("cuMemHostUnregister", ctypes.c_void_p(host + at))
        driver.free(device)
        del anchor
        memory.close()
    return figures


def measure_copy(driver, host, device, size, piece):
    driver.wait()
    begin = time.monotonic()
    for at in range(0, size, piece):
        driver.to_host(host + at, device + at, piece)
    driver.wait()
    return size / (time.monotonic() - begin) / 1e9


# --- the lane without torch -----------------------------------------------------------------------------------------------


def measure_lane(driver, size, tensors, directory):
    """Saves of device memory by the C API, one of ten tensors changed between them, with and without references."""
    from cairnfs import _library as lib

    lane, cairn = ctypes.c_void_p(), lib.library()
    lib.check(cairn.cairn_lane_open(None, ctypes.byref(lane)))
    begin = time.monotonic()
    lib.check(cairn.cairn_lane_prepare(lane, size))
    figures = {"prepare_s_per_gb": (time.monotonic() - begin) / size * 1e9, "plain": [], "saves": []}
    each = size // tensors
    addresses = [driver.allocate(each) for _ in range(tensors)]
    for number, address in enumerate(addresses):
        driver.fill(address, number, each)
    for _ in range(5):
        figures["plain"].append(save_once(driver, lib, lane, addresses, each, os.path.join(directory, "plain.bin"), 0))
    figures["d2h_gb_per_s"] = statistics.median(save["d2h_gb_per_s"] for save in figures["plain"][1:])
    for step in range(4):
        path = os.path.join(directory, f"step{step}.bin")
        figures["saves"].append(save_once(driver, lib, lane, addresses, each, path, lib.SAVE_REFER))
        check_words(path, each, [101 * number if 1 <= number <= step else number for number in range(tensors)])
        driver.fill(addresses[step + 1], 101 * (step + 1), each)
    stats = lib.LaneStats()
    lib.check(cairn.cairn_lane_stats(lane, ctypes.byref(stats)))
    figures["stats"] = {name: getattr(stats, name) for name, _ in lib.LaneStats._fields_[1:]}
    lib.check(cairn.cairn_lane_close(lane))
    for address in addresses:
        driver.free(address)
    last = figures["saves"][-1]
    figures["frozen_copied_share"] = last["bytes_copied"] / (last["bytes_copied"] + last["bytes_referenced"])
    return figures


def save_once(driver, lib, lane, addresses, each, path, flags):
    cairn, save = lib.library(), ctypes.c_void_p()
    keys = [f"tensor.{number}".encode() for number in range(len(addresses))]
    sources = (lib.Source * len(addresses))(
        *(
            lib.Source(offset=number * each, length=each, device_address=address, producer=driver.stream.value, key=keys[number])
            for number, address in enumerate(addresses)
        )
    )
    options = lib.SaveOptions(flags=flags)
    begin = time.monotonic()
    lib.check(cairn.cairn_save_begin(lane, path.encode(), each * len(addresses), ctypes.byref(options), ctypes.byref(save)))
    lib.check(cairn.cairn_save_put(save, sources, len(addresses)))
    lib.check(cairn.cairn_save_commit(save))
    called = time.monotonic()
    stream = lib.Stream(device=0, stream=driver.stream.value)
    lib.check(cairn.cairn_lane_fence(lane, ctypes.byref(stream), 1, -1))
    fenced = time.monotonic()
    lib.check(cairn.cairn_save_wait(save, lib.COPIED, -1))
    copied = time.monotonic()
    lib.check(cairn.cairn_save_wait(save, lib.PUBLISHED, -1))
    progress = lib.Progress()
    lib.check(cairn.cairn_save_progress(save, ctypes.byref(progress)))
    figures = {
        "call_s": called - begin, "fence_s": fenced - called, "d2h_gb_per_s": each * len(addresses) / (copied - begin) / 1e9,
        "published_s": time.monotonic() - begin, "bytes_copied": progress.bytes_copied, "bytes_referenced": progress.bytes_referenced,
    }  # fmt: skip
    cairn.cairn_save_free(save)
    return figures


def check_words(path, each, values):
    with open(path, "rb") as file:
        for number, value in enumerate(values):
            assert file.read(each) == value.to_bytes(4, "little") * (each // 4), f"tensor {number} of {path} is torn, or of another step"


# --- training with torch --------------------------------------------------------------------------------------------------


class Training:
    """Layers and Adam with a state of `size` bytes. An update follows several batches, as where many GPUs share one model: a step is long
    beside the state."""

    def __init__(self, size, batch, micro_batches, device, width):
        import torch

        self.torch, self.device, self.micro_batches = torch, device, micro_batches
        torch.backends.cuda.matmul.allow_tf32 = True
        count = max(1, size // (width * width * STATE_OF_PARAMETER))
        self.model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(count))).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.input = torch.randn(batch, width, device=device)
        self.probe = torch.ones(1, device=device)
        self.bytes = count * width * width * STATE_OF_PARAMETER

    def wait(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def mark(self):
        """A time on the device."""
        if self.device != "cuda":
            return time.monotonic()
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, before, after):
        return before.elapsed_time(after) / 1e3 if self.device == "cuda" else after - before

    def state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def backward(self):
        for _ in range(self.micro_batches):
            self.model(self.input).square().mean().backward()

    def run(self, steps, every, save, fence):
        """Seconds of steps, and in those with a save: of the call, of the fence (host, and what the device waited), of a small item()
        beside the copy. What was blocked is call and fence together."""
        found = {"step": [], "call": [], "fence": [], "fence_device": [], "blocked": [], "item": []}
        for step in range(steps):
            saves = step % every == 0
            self.wait()
            begin = time.monotonic()
            if saves and save:
                save(self.state(), step)
            called = time.monotonic()
            self.probe.item()
            asked = time.monotonic()
            self.backward()
            mark, before = time.monotonic(), self.mark()
            fence()
            fenced, after = time.monotonic(), self.mark()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.wait()
            found["step"].append(time.monotonic() - begin)
            if saves:
                device = self.between(before, after)
                figures = {"call": called - begin, "fence": fenced - mark, "fence_device": device, "item": asked - called}
                figures["blocked"] = figures["call"] + max(figures["fence"], device)
                for name, value in figures.items():
                    found[name].append(value)
        return found


def summary(found):
    def of(values):
        return {"median": statistics.median(values), "mean": statistics.fmean(values), "least": min(values), "most": max(values)}

    return {name: of(values) for name, values in found.items() if values}


def nothing(*_):
    pass


def methods(training, directory):
    """(name, save, fence, end, seconds that a save may take)."""
    import torch

    import cairnfs

    slow = training.bytes / 0.6e9

    def path(step):
        return os.path.join(directory, f"step{step % 2}.pt")

    def lazy(state, step):
        cairnfs.save(state, path(step), on_error="raise")

    def eager(state, step):
        cairnfs.save(state, path(step), lazy=False, on_error="raise")

    def plain(state, step):
        torch.save(state, path(step))

    def pinned(state, step):
        from torch.utils.serialization import config

        with config.patch({"save.use_pinned_memory_for_d2h": True}):
            before = torch.serialization.get_crc32_options()
            torch.serialization.set_crc32_options(False)
            try:
                torch.save(state, path(step))
            finally:
                torch.serialization.set_crc32_options(before)

    yield "lane lazy", lazy, cairnfs.fence, cairnfs.wait, 10
    yield "lane eager", eager, nothing, cairnfs.wait, training.bytes / 2e9
    yield "torch.save", plain, nothing, nothing, slow
    yield "torch.save, no CRC, pinned", pinned, nothing, nothing, slow
    yield from dcp_methods(directory, slow)


def dcp_methods(directory, slow):
    """async_save as it comes, and with a stager that stays; their own rule is to wait for the staging before the update."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo", store=dist.HashStore(), rank=0, world_size=1)
    pending, stager = [], []

    def begin(state, step, **more):
        for future in pending:
            finish(future)
        pending[:] = [dcp.async_save(state, checkpoint_id=os.path.join(directory, f"dcp{step % 2}"), **more)]

    def finish(future):
        getattr(future, "upload_completion", future).result()

    def persistent(state, step):
        from torch.distributed.checkpoint.staging import DefaultStager

        stager[:] = stager or [DefaultStager()]
        begin(state, step, async_stager=stager[0])

    def fence():
        for future in pending:
            if hasattr(future, "staging_completion"):
                future.staging_completion.result()

    def end():
        while pending:
            finish(pending.pop())

    yield "dcp.async_save", begin, fence, end, slow
    yield "dcp.async_save, one DefaultStager", persistent, fence, end, slow


def check_lazy(training, directory):
    """A lazy save, the fence, an update at once: the file has the bytes of before."""
    import torch

    import cairnfs

    name = os.path.join(directory, "checked.pt")
    wanted = {key: value.clone() for key, value in training.model.state_dict().items()}
    cairnfs.save(training.state(), name, on_error="raise")
    training.run(2, 1, None, cairnfs.fence)
    cairnfs.wait(name)
    read = torch.load(name, mmap=True, weights_only=True, map_location="cpu")["model"]
    right = all(torch.equal(read[key].to(training.device), value) for key, value in wanted.items())
    os.unlink(name)
    return right


def set_ring(size):
    from cairnfs import _library as lib
    from cairnfs import _process

    lib.check(lib.library().cairn_lane_prepare(_process.current().open(), size))


def measure_training(args, clock, directory, figures):
    size = (20_000_000, 16, 1, "cpu", 256) if args.dry_run else (int(args.state * 1e9), args.batch, args.micro_batches, "cuda", 4096)
    training = Training(*size)
    figures["state_bytes"] = training.bytes
    training.run(3, 1, None, nothing)
    figures["none"] = summary(training.run(STEPS, 10, None, nothing))
    figures["none, every 1"] = summary(training.run(6, 1, None, nothing))
    figures["cases"] = {}
    rings = [("ring 1/4", training.bytes // 4), ("ring 1/1", training.bytes)]
    for ring, size in rings:  # a ring only grows
        set_ring(size)
        for every, steps in ((10, STEPS), (1, 6)):
            run_case(training, figures, clock, f"lane lazy, {ring}, every {every}", next(methods(training, directory)), every, steps)
    if clock.has(60, "bytes of a lazy save"):
        figures["lazy_bytes_right"] = check_lazy(training, directory)
    for method in list(methods(training, directory))[1:]:
        for every, steps in ((10, STEPS), (1, 2)):
            run_case(training, figures, clock, f"{method[0]}, every {every}", method, every, steps)


def run_case(training, figures, clock, name, method, every, steps):
    _, save, fence, end, seconds = method
    if clock.only and not name.startswith(tuple(clock.only)):
        return
    expected = steps * figures["none"]["step"]["mean"] + (steps + every - 1) // every * seconds + 5
    if not clock.has(expected, name):
        return
    try:
        training.run(1, 1, save, fence)  # the first save makes what later ones use
        end()
        found = training.run(steps, every, save, fence)
        end()
        figures["cases"][name] = summary(found)
    except Exception as error:  # another version of torch, say: the other cases go on
        figures["cases"][name] = {"error": f"{type(error).__name__}: {error}"}


def judge(figures):
    """What issue and design ask for, where both sides were measured."""
    cases, none, limit = figures.get("cases", {}), figures.get("none"), figures["limit"]["d2h_gb_per_s"]
    verdict = {}

    def value(name, what, kind="median"):
        return cases.get(name, {}).get(what, {}).get(kind)

    lazy, plain = "lane lazy, ring 1/1, every 10", "torch.save, every 10"
    if value(lazy, "blocked") is not None and value(plain, "call"):
        verdict["blocked / torch.save (<= 0.05)"] = value(lazy, "blocked") / value(plain, "call")
    if limit and figures.get("lane"):
        verdict["D2H of the lane / limit (>= 0.9)"] = figures["lane"]["d2h_gb_per_s"] / max(limit.values())
        verdict["copied of 90 % unchanged (<= 0.12)"] = figures["lane"]["frozen_copied_share"]
    if none and value(lazy, "step"):
        verdict["step / none, every 10 (<= 1.02)"] = value(lazy, "step", "mean") / none["step"]["mean"]
        verdict["item() / none (<= 2)"] = value(lazy, "item") / none["item"]["median"]
    return verdict


def has_gpu():
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "build"),
                        help="directory with libcairn, and for --dry-run the stand-in")
    parser.add_argument("--directory", default="/dev/shm", help="where files are saved: on a mount, or in memory")
    parser.add_argument("--state", type=float, default=10, help="GB of parameters and optimizer state")
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--micro-batches", type=int, default=4, help="of a step")
    parser.add_argument("--budget", type=float, default=450, help="seconds for all of it")
    parser.add_argument("--only", action="append", help="cases of the training whose names begin so")
    parser.add_argument("--dry-run", action="store_true", help="without a GPU, small")
    parser.add_argument("--no-training", action="store_true", help="only the parts without torch")
    parser.add_argument("--json", help="write the figures here, too")
    args = parser.parse_args()
    if not args.dry_run and not has_gpu():
        print("bench_lazy_gpu: skipped: nvidia-smi does not answer")
        return
    build = os.path.abspath(args.build)
    os.environ.setdefault("CAIRN_LIBRARY", os.path.join(build, "src", "client", "libcairn.so.0"))
    clock, directory = Clock(args.budget, args.only), tempfile.mkdtemp(prefix="cairn-bench-gpu-", dir=args.directory)
    figures = {"dry_run": args.dry_run, "directory": args.directory}
    try:
        driver = Driver(os.path.join(build, "tests", "client", "cuda", "libcuda.so.1") if args.dry_run else "libcuda.so.1")
        size = 16 * MIB if args.dry_run else GIB
        figures["limit"] = measure_limit(driver, size)
        figures["lane"] = measure_lane(driver, size // 10 // (4 * MIB) * 10 * 4 * MIB or 10 * MIB, 10, directory)
        if not args.no_training:
            measure_training(args, clock, directory, figures)
        figures["verdict"], figures["not_run"] = judge(figures), clock.not_run
        figures["gpu"] = None if args.dry_run else subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.strip()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(json.dumps(figures, indent=2))
    if args.json:
        with open(args.json, "w") as file:
            json.dump(figures, file, indent=2)


if __name__ == "__main__":
    main()

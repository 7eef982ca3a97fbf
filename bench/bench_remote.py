#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The remote tier against parallel curl, rclone mount and s3fs, on one real RGW: upload, restore, latency, blocked time.

    bench_remote.py --parts upload,restore,limited,latency,blocked,first,tools --rounds 5 --json remote.json
    bench_remote.py --dir --parts upload,restore,blocked,first       # a directory, against parallel copies

Every case gets its own empty prefix and store; caches of the kernel are dropped before each read. What a table compares ran
in the same process, interleaved, against the same server.
"""
import concurrent.futures
import contextlib
import glob
import hashlib
import mmap
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import bench_common
from bench_common import rig

import fault_proxy  # noqa: E402
import remote as remotes  # noqa: E402
import s3_client  # noqa: E402
from other_mounts import Rclone, S3fs  # noqa: E402

PIECE = 24 * rig.MIB
CONNECTIONS = 16
PARTS = ("upload", "restore", "limited", "latency", "blocked", "first", "tools")
FILES = 100_000
LATENCY = 0.05
THROTTLED = 10_000_000
MADV_POPULATE_WRITE = 23  # Linux 5.14
LIMIT = 100_000_000  # bytes a second that leave the processors idle most of the time, the proxy's included
READAHEAD_KB = "8192"  # as the mount sets it for itself


class Bench:
    """A server, the bytes in pieces of one object each, and a place for stores."""

    def __init__(self, args):
        self.args, self.count, self.open = args, 0, []
        self.cpu = {}  # case -> seconds of processor time of each run
        self.rgw = None if args.dir else remotes.Rgw()
        why = self.rgw and self.rgw.missing()
        if why:
            sys.exit(f"no Ceph RGW: {why}")
        self.binary = None if args.no_mount else rig.find_binary(args.build)
        if self.binary is None and not args.no_mount:
            sys.exit(f"no cairn binary in {args.build}: build first, or name the directory with --build")
        self.root = tempfile.mkdtemp(prefix="cairn-bench-", dir=args.store)
        self.source = tempfile.mkdtemp(prefix="cairn-bench-", dir="/dev/shm")
        if self.rgw:
            self.rgw.start()

    def make_pieces(self, total):
        """Random bytes in files of one object each; a smaller total uses the first of them."""
        count = max(1, round(total / PIECE))
        for number in range(count):
            path = os.path.join(self.source, f"{number:04d}")
            if not os.path.exists(path):
                rig.write_file(path, os.urandom(PIECE))
        self.pieces = [os.path.join(self.source, f"{number:04d}") for number in range(count)]
        self.total = count * PIECE

    def directory(self, name):
        self.count += 1
        path = os.path.join(self.root, f"{self.count}-{name}")
        os.makedirs(path)
        return path

    def remote(self, proxy=None):
        if not self.rgw:
            return remotes.DirRemote(self.directory("remote"))
        made = remotes.S3Remote(self.rgw, endpoint=proxy and proxy.url)
        self.open.append(made.wipe)
        return made

    def proxy(self):
        made = fault_proxy.FaultProxy(self.rgw.endpoint).start()
        self.open.append(made.stop)
        return made

    def mount(self, remote=None, **options):
        """A new store; with no remote, a store that has none."""
        options = {"stage": self.args.stage, "nvme": "16G", **options}
        kind = remotes.RemoteMount if remote else rig.Mount
        extra = {"remote": remote} if remote else {}
        made = kind(self.directory("node"), self.binary, **extra, **options)
        self.open.append(made.close)
        return made.mount()

    def drop(self, made, remote=None):
        """A case is over: nothing of it stays, on disk, in memory or at the server."""
        made.close()
        rig.shutil.rmtree(made.root, ignore_errors=True)
        if remote:
            self.forget(remote)

    def forget(self, remote):
        remote.wipe()
        if self.rgw:
            self.rgw.reclaim()

    def close(self):
        for close in reversed(self.open):
            close()
        if self.rgw:
            self.rgw.stop()
        for path in (self.root, self.source):
            rig.shutil.rmtree(path, ignore_errors=True)


def cpu_of(pid):
    """Seconds of processor time that a process has used; without one, those of this process and the children it has waited for."""
    if pid is None:
        return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    fields = rig.read_file(f"/proc/{pid}/stat").decode().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def account(bench, case, pid=None):
    """The processor time of the client's side, the reader included and the server not."""
    begin = cpu_of(None) + (cpu_of(pid) if pid else 0)
    yield
    bench.cpu.setdefault(case, []).append(cpu_of(None) + (cpu_of(pid) if pid else 0) - begin)


def warm_memory(size=4 * rig.GIB):
    """A page that its virtual machine has to get first costs more than all else here, and which process meets it (the server) is chance."""
    with mmap.mmap(-1, size) as memory:
        memory.madvise(MADV_POPULATE_WRITE)


def wait_until_idle(pid):
    """Until a daemon has done what it does for the next save."""
    for _ in range(200):
        before = cpu_of(pid)
        time.sleep(0.3)
        if cpu_of(pid) - before < 0.02:
            return
    raise TimeoutError("the daemon does not rest")


def timed(function, *args):
    begin = time.monotonic()
    function(*args)
    return time.monotonic() - begin


def measured(bench, case, pid, function, *args):
    """The seconds that it takes, in warm memory; its processor time is noted."""
    warm_memory()
    with account(bench, case, pid):
        return timed(function, *args)


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")


def save(bench, path):
    """A checkpoint: all pieces, one after the other, into one file."""
    with rig.opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644) as fd:
        for piece in bench.pieces:
            rig.write_all(fd, rig.read_file(piece))


def read_all(path, expected):
    buffer, done = bytearray(8 * rig.MIB), 0
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            done += count
    assert done == expected, f"{path}: {done} of {expected} bytes"


# ---------------------------------------------------------------- curl

def curl(bench, transfers, parallel):
    """Run transfers [(method, url path, options)], signed beforehand, as many at once as said."""
    client, lines = bench.client, []
    for method, path, payload, options in transfers:
        headers = client.signed(method, path, "", payload, {})
        lines += [f'url = "http://{client.host}{path}"', *(f'header = "{name}: {value}"' for name, value in headers.items())]
        lines += [*options, 'output = "/dev/null"', "fail", "next"]
    config = rig.write_file(os.path.join(bench.root, "curl.config"), "\n".join(lines[:-1]).encode())
    command = ["curl", "-s", "-S", "--no-progress-meter", "-K", config]
    if parallel > 1:
        command[1:1] = ["--parallel", "--parallel-immediate", "--parallel-max", str(parallel)]
    done = []
    seconds = measured(bench, "curl " + transfers[0][0], None, lambda: done.append(subprocess.run(command, capture_output=True, text=True)))
    assert done[0].returncode == 0, done[0].stderr[-500:]
    return seconds


def curl_put(bench, remote, parallel=CONNECTIONS):
    bench.client = s3_client.S3Client(remote.endpoint)
    transfers = [
        ("PUT", f"/{remote.bucket}/{remote.prefix}/{os.path.basename(piece)}", rig.read_file(piece),
         [f'upload-file = "{piece}"', 'header = "Expect:"'])
        for piece in bench.pieces
    ]
    return curl(bench, transfers, parallel)


def curl_get(bench, remote, parallel=CONNECTIONS, part=None):
    """Ranged GETs of all objects; `part` bytes each."""
    bench.client = s3_client.S3Client(remote.endpoint)
    part = part or PIECE
    transfers = [
        ("GET", f"/{remote.bucket}/{remote.prefix}/{os.path.basename(piece)}", b"", [f'header = "Range: bytes={at}-{at + part - 1}"'])
        for piece in bench.pieces
        for at in range(0, PIECE, part)
    ]
    return curl(bench, transfers, parallel)


# ---------------------------------------------------------------- copies, where the remote is a directory

def each_piece(function, pieces):
    with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(function, pieces))


def copy_durably(piece, target):
    """As the mount must: durable before it is there."""
    with open(piece, "rb") as source, open(target, "wb") as file:
        rig.shutil.copyfileobj(source, file, 8 * rig.MIB)
        file.flush()
        os.fsync(file.fileno())


def copies_put(bench, remote):
    return timed(each_piece, lambda piece: copy_durably(piece, remote.file(os.path.basename(piece))), bench.pieces)


def copies_get(bench, remote):
    return timed(each_piece, lambda piece: read_all(remote.file(os.path.basename(piece)), PIECE), bench.pieces)


def put_all(bench, remote):
    return curl_put(bench, remote) if bench.rgw else copies_put(bench, remote)


# ---------------------------------------------------------------- the parts

def cases_of(bench, mine, others):
    return {**({} if bench.args.no_mount else mine), **others}


def measure(bench, title, cases, pairs, results):
    bench.cpu.clear()
    times = bench_common.interleave(bench.args.rounds, cases, drop_caches)
    figures = bench_common.summary(times, bench.total)
    ratios = {f"{case} against {base}": bench_common.pair_ratio(times, case, base) for case, base in pairs if case in times
              and base in times}
    bench_common.show(f"{title}, {bench.total / 1e9:.2f} GB", figures, ratios)
    cpu = {case: statistics.median(seconds) / bench.total * 1e9 for case, seconds in bench.cpu.items()}
    for case, seconds in cpu.items():
        print(f"{case:<34}{seconds:>10.2f} s of processor time a GB, without the server's")
    results[title] = {"cases": figures, "ratios": ratios, "times": times, "cpu_s_gb": cpu}


def part_upload(bench, results):
    """From NVMe to the remote: the limit holds the upload back until `wait` lifts it."""

    def mine():
        remote = bench.remote()
        made = bench.mount(remote, upload_limit="4K", upload_threads=CONNECTIONS)
        save(bench, os.path.join(made.mnt, "checkpoint"))
        made.wait(level="nvme", timeout="600s")
        wait_until_idle(made.proc.pid)
        drop_caches()
        seconds = measured(bench, "mount", made.proc.pid, made.wait_remote, None, "600s")
        bench.drop(made, remote)
        return seconds

    def theirs():
        remote = bench.remote()
        seconds = put_all(bench, remote)
        bench.forget(remote)
        return seconds

    def signing():
        """Hashing what is sent, as the mount does, on as many threads as there are processors."""

        def sign_all():
            with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(lambda piece: hashlib.sha256(rig.read_file(piece)).digest(), bench.pieces))

        return timed(sign_all) + theirs()

    name = "curl PUT" if bench.rgw else "copies"
    others = {name: theirs, **({"curl PUT, with its signing": signing} if bench.rgw else {})}
    cases = cases_of(bench, {"mount": mine}, others)
    measure(bench, "upload", cases, [("mount", other) for other in others], results)


def published(bench):
    """A prefix with one checkpoint in it."""
    remote = bench.remote()
    made = bench.mount(remote)
    save(bench, os.path.join(made.mnt, "checkpoint"))
    made.wait_remote(timeout="600s")
    made.umount()
    bench.drop(made)
    return remote


def restore(bench, remote):
    """A fresh node: the store is empty."""
    made = bench.mount(remote, ro=True)
    seconds = measured(bench, "mount", made.proc.pid, read_all, os.path.join(made.mnt, "checkpoint"), bench.total)
    bench.drop(made)
    return seconds


class Floor:
    """A daemon that brings the bytes, verifies them and answers from where it received them, and nothing else."""

    def __init__(self, bench):
        self.bench, self.tool = bench, os.path.join(bench.root, "null_remote")
        source = os.path.join(bench_common.HERE, "null_remote.c")
        subprocess.run(["cc", "-O2", "-Wall", "-o", self.tool, source, *self.flags()], check=True)

    def flags(self):
        """BLAKE3 as the mount is built with it."""
        library = os.path.join(self.bench.args.build, "src", "codec", "libblake3.a")
        headers = sorted(glob.glob("/usr/share/cargo/registry/blake3-*/c"))
        own = [library, f"-I{headers[-1]}"] if os.path.exists(library) and headers else ["-lblake3"]
        return [*own, *rig.run("pkg-config", "--cflags", "--libs", "fuse3", "libcurl").split()]

    def write_list(self, remote, part):
        client, lines = s3_client.S3Client(remote.endpoint), []
        for piece in self.bench.pieces:
            path = f"/{remote.bucket}/{remote.prefix}/{os.path.basename(piece)}"
            for at in range(0, PIECE, part):
                headers = {**client.signed("GET", path, "", b"", {}), "Range": f"bytes={at}-{at + part - 1}"}
                fields = [str(part), f"http://{client.host}{path}", *(f"{name}: {value}" for name, value in headers.items())]
                lines.append("\t".join(fields))
        path = rig.write_file(os.path.join(self.bench.root, "null_remote.list"), "\n".join(lines).encode())
        return path

    def restore(self, remote):
        mnt = self.bench.directory("floor")
        proc = subprocess.Popen([self.tool, mnt, self.write_list(remote, 8 * rig.MIB), str(CONNECTIONS)])
        try:
            file = os.path.join(mnt, "file")
            rig.poll(lambda: os.path.exists(file), 10, "the daemon that only brings and verifies")
            device = os.stat(mnt).st_dev
            rig.write_file(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb", READAHEAD_KB.encode(), os.O_WRONLY)
            return measured(self.bench, "floor", proc.pid, read_all, file, self.bench.total)
        finally:
            rig.file_systems_unmount(mnt)
            proc.wait(20)


def part_restore(bench, results):
    objects = bench.remote()
    put_all(bench, objects)
    stored = None if bench.args.no_mount else published(bench)
    others = {"copies": lambda: copies_get(bench, objects)}
    if bench.rgw:
        floor = Floor(bench)
        others = {
            "curl GET, whole objects": lambda: curl_get(bench, objects),
            "curl GET, 8 MiB": lambda: curl_get(bench, objects, part=8 * rig.MIB),
            "floor": lambda: floor.restore(objects),
        }
    cases = cases_of(bench, {"mount": lambda: restore(bench, stored)}, others)
    pairs = [("mount", name) for name in others] + [("floor", name) for name in others if name != "floor" and bench.rgw]
    measure(bench, "cold restore", cases, pairs, results)
    forget(bench, objects, stored)


def part_limited(bench, results):
    """The server sends less than the processors could take: what then counts is whether the way is kept full."""
    proxy = bench.proxy()
    objects = bench.remote(proxy)
    curl_put(bench, objects)
    stored = None if bench.args.no_mount else published(bench).through(proxy)
    proxy.set(rate=LIMIT)
    others = {"curl GET, 8 MiB": lambda: curl_get(bench, objects, part=8 * rig.MIB)}
    cases = cases_of(bench, {"mount": lambda: restore(bench, stored)}, others)
    measure(bench, f"cold restore at {LIMIT / 1e6:.0f} MB/s", cases, [("mount", name) for name in others], results)
    forget(bench, objects, stored)


def forget(bench, *prefixes):
    for prefix in prefixes:
        if prefix:
            bench.forget(prefix)


def part_latency(bench, results):
    """The same way with and without latency, so that the proxy itself is on both sides."""
    proxy = bench.proxy()
    objects = bench.remote(proxy)
    curl_put(bench, objects)
    stored = None if bench.args.no_mount else published(bench).through(proxy)

    def with_latency(seconds, function, *args):
        proxy.set(latency=seconds)
        try:
            return function(*args)
        finally:
            proxy.set(latency=0.0)

    mine = {
        "mount, no latency": lambda: restore(bench, stored),
        "mount, 50 ms": lambda: with_latency(LATENCY, restore, bench, stored),
    }
    others = {
        f"{size >> 20} MiB after the other, 50 ms": lambda size=size: with_latency(LATENCY, curl_get, bench, objects, 1, size)
        for size in (PIECE, 8 * rig.MIB)
    }
    cases = cases_of(bench, mine, others)
    pairs = [("mount, 50 ms", "mount, no latency"), *(("mount, 50 ms", name) for name in others)]
    measure(bench, "cold sequential read with latency", cases, pairs, results)
    forget(bench, objects, stored)


def part_blocked(bench, results):
    """How long a save blocks, with no remote and with one that takes 10 MB/s."""
    if bench.args.no_mount:
        return
    proxy = bench.proxy() if bench.rgw else None
    limit = {} if proxy else {"upload_limit": str(THROTTLED)}
    if proxy:
        proxy.set(rate=THROTTLED)

    def blocked(remote):
        made = bench.mount(remote, **(limit if remote else {}))
        save(bench, os.path.join(made.mnt, "warm"))  # the pool of memory is faulted in
        os.unlink(os.path.join(made.mnt, "warm"))
        made.wait(level="nvme", timeout="600s")
        seconds = timed(save, bench, os.path.join(made.mnt, "checkpoint"))
        bench.drop(made, remote)
        return seconds

    cases = {"no remote": lambda: blocked(None), "remote at 10 MB/s": lambda: blocked(bench.remote(proxy))}
    measure(bench, "blocked by a save", cases, [("remote at 10 MB/s", "no remote")], results)


def part_first(bench, results):
    """A fresh node on many small files: from the start of `cairn mount` to the first byte of one of them."""
    if bench.args.no_mount:
        return
    stored = bench.remote()
    made = bench.mount(None)
    for number in range(FILES):
        if number % 1000 == 0:
            os.mkdir(os.path.join(made.mnt, f"d{number // 1000}"))
        rig.write_file(os.path.join(made.mnt, f"d{number // 1000}", f"f{number % 1000}"), b"%0200d" % number)
    made.wait(timeout="600s")
    made.umount()
    drain = remotes.RemoteMount(bench.directory("node"), bench.binary, stored, store=made.store, stage=bench.args.stage)
    bench.open.append(drain.close)
    drain.mount()
    drain.wait_remote(timeout="600s")
    drain.umount()
    bench.drop(drain)
    bench.drop(made)

    def first():
        begin = time.monotonic()
        fresh = bench.mount(stored, ro=True)
        with open(os.path.join(fresh.mnt, f"d{FILES // 2000}", "f7"), "rb") as file:
            assert len(file.read(1)) == 1
        seconds = time.monotonic() - begin
        bench.drop(fresh)
        return seconds

    measure(bench, f"first byte on a fresh node, {FILES} files", {"mount": first}, [], results)
    bench.forget(stored)


# ---------------------------------------------------------------- other mounts

def tool_save(bench, kind, totals):
    """Blocked: until close has returned. Total: until the object is there."""
    tool = kind(bench)
    tool.remote.put("", b"")  # s3fs wants the directory to be there
    tool.mount()
    try:
        begin = time.monotonic()
        save(bench, os.path.join(tool.mnt, "checkpoint"))
        blocked = time.monotonic() - begin
        rig.poll(tool.is_there, 600, f"the upload of {tool.name}", 0.05)
        totals.append(time.monotonic() - begin)
    finally:
        tool.umount()
        forget(bench, tool.remote)
        rig.shutil.rmtree(tool.root, ignore_errors=True)
    return blocked


def tool_restore(bench, kind, remote):
    tool = kind(bench)
    tool.remote = remote
    tool.mount()
    try:
        return timed(read_all, os.path.join(tool.mnt, "checkpoint"), bench.total)
    finally:
        tool.umount()
        rig.shutil.rmtree(tool.root, ignore_errors=True)


def mount_save(bench, totals):
    remote = bench.remote()
    made = bench.mount(remote)
    begin = time.monotonic()
    save(bench, os.path.join(made.mnt, "checkpoint"))
    blocked = time.monotonic() - begin
    made.wait_remote(timeout="600s")
    totals.append(time.monotonic() - begin)
    bench.drop(made, remote)
    return blocked


def part_tools(bench, results):
    """Saving and restoring one checkpoint through other filesystems over S3."""
    bench.make_pieces(min(bench.total, bench.args.tool_total))
    kinds = [kind for kind in (Rclone, S3fs) if rig.shutil.which(kind.name)]
    for kind in (Rclone, S3fs):
        if kind not in kinds:
            print(f"{kind.name} is not installed (Debian package {kind.name}): left out")
    totals = {name: [] for name in ("mount", *(kind.name for kind in kinds))}
    others = {kind.name: lambda kind=kind: tool_save(bench, kind, totals[kind.name]) for kind in kinds}
    cases = cases_of(bench, {"mount": lambda: mount_save(bench, totals["mount"])}, others)
    measure(bench, "save, blocked", cases, [("mount", name) for name in others], results)
    totals = {name: times for name, times in totals.items() if times}
    figures = bench_common.summary(totals, bench.total)
    ratios = {f"mount against {name}": bench_common.pair_ratio(totals, "mount", name) for name in others if "mount" in totals}
    bench_common.show("save, until it is in the remote", figures, ratios)
    results["save, total"] = {"cases": figures, "ratios": ratios, "times": totals}
    restore_tools(bench, kinds, results)


def restore_tools(bench, kinds, results):
    whole = bench.remote()
    whole.put("", b"")
    if bench.total > 4 * rig.GIB:
        sys.exit("--tool-total: at most 4 GiB, one object of one PUT")
    whole.put("checkpoint", b"".join(rig.read_file(piece) for piece in bench.pieces))
    stored = None if bench.args.no_mount else published(bench)
    others = {kind.name: lambda kind=kind: tool_restore(bench, kind, whole) for kind in kinds}
    cases = cases_of(bench, {"mount": lambda: restore(bench, stored)}, others)
    measure(bench, "cold restore beside other mounts", cases, [("mount", name) for name in others], results)
    forget(bench, whole, stored)


def main():
    parser = bench_common.parser(__doc__.splitlines()[0], 2_000_000_000)
    parser.set_defaults(rounds=5, stage="3G")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--tool-total", type=int, default=500_000_000, help="bytes of a checkpoint for rclone and s3fs")
    parser.add_argument("--dir", action="store_true", help="the remote is a directory beside the store")
    parser.add_argument("--no-mount", action="store_true", help="only the others, to try the script")
    args = parser.parse_args()
    unknown = set(args.parts.split(",")) - set(PARTS)
    if args.dir and {"limited", "latency", "tools"} & set(args.parts.split(",")):
        parser.error("--dir: not the parts limited, latency and tools")
    if unknown or args.plain:
        parser.error(f"unknown part: {unknown}" if unknown else "--plain means nothing here: --no-mount")
    bench, results = Bench(args), {}
    with contextlib.closing(bench):
        for part in args.parts.split(","):
            bench.make_pieces(args.total)
            globals()["part_" + part](bench, results)
    bench_common.save(args, results)


if __name__ == "__main__":
    main()

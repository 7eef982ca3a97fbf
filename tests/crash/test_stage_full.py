"""P1, P11: four times the stage without pause: full rate, others served, memory bounded."""
import json
import os
import subprocess
import sys
import threading

import pytest

import rig

STAGE = 128 * rig.MIB

PROBE = """
import os, sys, time
folder, stop = sys.argv[1], sys.argv[2]
worst = {"ls": 0.0, "read": 0.0}
count = 0
while not os.path.exists(stop):
    begin = time.monotonic()
    os.listdir(folder)
    [entry.stat() for entry in os.scandir(folder)]
    middle = time.monotonic()
    with open(os.path.join(folder, "probe"), "rb") as file:
        assert len(file.read(4096)) == 4096
    end = time.monotonic()
    worst["ls"] = max(worst["ls"], middle - begin)
    worst["read"] = max(worst["read"], end - middle)
    count += 1
    time.sleep(0.005)
import json
print(json.dumps({**worst, "count": count}))
"""


class Memory(threading.Thread):
    """The largest resident memory of the daemon."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.largest, self.over = pid, 0, threading.Event()

    def run(self):
        while not self.over.wait(0.02):
            self.largest = max(self.largest, rig.rss_bytes(self.pid))


def write_stream(folder, total, seed):
    """One writer, 16 MiB writes into files of 64 MiB; returns the seconds until the last close."""
    block = bytearray(rig.seeded_bytes(seed, 16 * rig.MIB))
    begin = rig.time.monotonic()
    for number in range(total // (64 * rig.MIB)):
        fd = os.open(os.path.join(folder, f"file-{number}"), os.O_WRONLY | os.O_CREAT, 0o644)
        for part in range(4):
            refresh(block, number * 4 + part)
            rig.write_all(fd, block)
        os.close(fd)
    return rig.time.monotonic() - begin


def refresh(block, number):
    """Change 16 bytes of every 4 KiB, so that no chunk equals an earlier one."""
    stamp = number.to_bytes(8, "little") * 2
    for at in range(0, len(block), 4096):
        block[at : at + 16] = stamp


def written(cairn):
    return cairn.status()["nvme"]["written_bytes_total"]


@pytest.mark.alone
@pytest.mark.timeout(240)
@pytest.mark.parametrize("limit", [None, "100M"], ids=["free", "100M"])
def test_four_times_the_stage(cairn, rng, folder, report, sanitized, limit):
    """P1, P11: total rate >= 0.9 x writeback rate; ls and a 4 KiB read < 100 ms; memory <= stage + 256 MiB."""
    options = {"stage": STAGE, "nvme": "4G"}
    if limit:
        options["writeback_limit"] = limit
    cairn.mount(**options)
    rig.write_file(os.path.join(cairn.mnt, "probe"), rig.seeded_bytes(1, 100_000))
    cairn.wait()
    figures = measure(cairn, rng, folder, 4 * STAGE)
    report(f"stage-full-{limit or 'free'}", figures)
    if cairn.plain or sanitized:
        return
    assert figures["ratio"] >= 0.9
    assert figures["ls"] < 0.1 and figures["read"] < 0.1
    assert figures["memory_mib"] <= (STAGE + 256 * rig.MIB) / rig.MIB


def measure(cairn, rng, folder, total):
    stop = os.path.join(folder, "stop")
    pids = cairn.pids() or [os.getpid()]
    memory = Memory(pids[0])
    before = 0 if cairn.plain else written(cairn)
    probe = subprocess.Popen([sys.executable, "-c", PROBE, cairn.mnt, stop], stdout=subprocess.PIPE, text=True)
    memory.start()
    begin = rig.time.monotonic()
    try:
        seconds = write_stream(cairn.mnt, total, rng.random())
        cairn.wait()
        drained = rig.time.monotonic() - begin
    finally:
        memory.over.set()
        open(stop, "w").close()
        answer = probe.communicate(timeout=300)[0]
    rate = total / drained if cairn.plain else (written(cairn) - before) / drained
    return {
        **json.loads(answer),
        "write_rate": total / seconds / rig.MIB,
        "writeback_rate": rate / rig.MIB,
        "ratio": (total / seconds) / rate,
        "memory_mib": memory.largest / rig.MIB,
    }


def test_file_larger_than_the_stage(cairn, rng):
    """P1: one file of three times the stage, written, read, and there after a crash."""
    cairn.mount(stage="64M")
    path = os.path.join(cairn.mnt, "large")
    data = rig.seeded_bytes(rng.random(), 192 * rig.MIB)
    with open(path, "wb", buffering=0) as file:
        rig.write_all(file.fileno(), data)
        assert rig.read_file(path) == data
    cairn.kill9()
    cairn.mount(stage="64M")
    assert rig.read_file(path) == data
    cairn.umount()
    assert cairn.fsck().returncode == 0


@pytest.mark.alone
def test_many_writers_are_served_in_turn(cairn, rng, sanitized):
    """P1: with a full stage, eight writers all come forward: none waits for the others to end."""
    cairn.mount(stage="64M", writeback_limit="60M")
    begin = rig.time.monotonic()

    def write(number):
        fd = os.open(os.path.join(cairn.mnt, f"w{number}"), os.O_WRONLY | os.O_CREAT, 0o644)
        for part in range(6):
            rig.write_all(fd, rig.seeded_bytes(100 * number + part, 4 * rig.MIB))
        os.close(fd)
        return 0

    ends = []
    pids = {}
    for number in range(8):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = write(number)
            finally:
                os._exit(code)
        pids[pid] = number
    for _ in range(8):
        pid, status = os.wait()
        assert status == 0, f"writer {pids[pid]}"
        ends.append(rig.time.monotonic() - begin)
    if not sanitized and not cairn.plain:
        # The first may have had the empty stage to itself.
        assert ends[2] > 0.4 * max(ends), f"served one after the other: {ends}"
    for number in range(8):
        assert os.path.getsize(os.path.join(cairn.mnt, f"w{number}")) == 24 * rig.MIB

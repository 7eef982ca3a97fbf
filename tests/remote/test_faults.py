# SPDX-License-Identifier: Apache-2.0
"""A bad network (P5, P8, P9): nothing lost, no wrong byte, no storm of requests; a dead remote stops no program."""
import contextlib
import errno
import os

import pytest

import history
import judge
import rig

pytestmark = pytest.mark.needs_mount

# Weights; their sum is the share of requests that get a fault.
MIX = {
    "500": 3, "503": 3, "503_retry_after": 1, "reset_before": 2, "reset_request": 2, "reset_answer": 2, "stall": 1,
    "stall_request": 1, "truncate": 3, "short": 2, "corrupt": 3, "duplicate": 2, "lost_answer": 3, "delay": 3, "expired": 1,
    "error200": 2,
}  # fmt: skip


def share(total):
    """The mix with a given share of all requests."""
    scale = total / sum(MIX.values())
    return {fault: weight * scale for fault, weight in MIX.items()}


@pytest.fixture
def behind_proxy(s3, proxy):
    """The remote, reached through the proxy."""
    return s3.through(proxy)


def settle(mount, writers):
    """The writers end by themselves; all they did is in the remote."""
    writers.wait(120)
    mount.wait_remote(timeout="120s")


def run_until_faults(mount, proxy, rng, log, wanted):
    """Writers in turns, small cuts, until enough faults were given in saving."""
    path, turn = os.path.join(mount.mnt, "run"), 0
    logs = []
    while proxy.stats()["fault_count"] < wanted:
        turn += 1
        logs.append((f"{path}-{turn}", f"{log}-{turn}"))
        with history.writing(*logs[-1], rng.randrange(1 << 30), ready=0, seconds=4, pause=0.02, shard=1 << 20) as writers:
            mount.quiet(writers)
            settle(mount, writers)
        assert turn < 100, f"only {proxy.stats()} in {turn} turns"
    return logs


def check_all(mount, logs):
    for path, log in logs:
        judge.check_live(path, log)


@pytest.mark.timeout(240)
def test_faults_lose_nothing(on_remote, behind_proxy, proxy, rng, shm_directory, full, report):
    """P5, P8, P9: 2,000 faults (200 by default) while saving and while a fresh node reads: every byte is right."""
    wanted = 2000 if full else 200
    mount = on_remote(behind_proxy, stage="128M", writeback_delay="100ms", gc_grace="1s").mount()
    proxy.set(faults=share(0.3), stall_s=1.5, delay_s=0.5)
    logs = run_until_faults(mount, proxy, rng, os.path.join(shm_directory, "log"), wanted * 3 // 4)
    check_all(mount, logs)
    mount.umount()
    saving = proxy.reset()
    reads = 0
    while reads < 3 or proxy.stats()["fault_count"] < wanted // 4:
        fresh = mount.fresh()
        fresh.mount(ro=True, timeout=300)
        check_all(fresh, [(path.replace(mount.mnt, fresh.mnt), log) for path, log in logs])
        fresh.umount()
        fresh.wipe()
        reads += 1
        assert reads < 100
    reading = proxy.stats()
    report("faults", {"saving": saving, "reading": reading})
    proxy.calm()
    after = mount.fresh().mount(takeover=True)
    check_all(after, [(path.replace(mount.mnt, after.mnt), log) for path, log in logs])
    after.umount_whole()


def save_in_rounds(mount, rng_seed, rounds):
    """The same content each time it is called; each round is its own cut, so that runs can be compared."""
    for number in range(rounds):
        directory = rig.mkdir(os.path.join(mount.mnt, f"step-{number}"))
        for part in range(3):
            rig.write_file(os.path.join(directory, f"part-{part}"), rig.seeded_bytes(f"{rng_seed} {number} {part}", 300_000))
        mount.wait_remote(timeout="120s")


def heads_published(log):
    """A busy machine is slow between the files of a round, which then becomes several."""
    return len({entry["path"].split("?")[0] for entry in log if entry["method"] == "PUT" and "/heads/" in entry["path"]})


@pytest.mark.noise  # dense cuts have several small packs, which are merged when a stall makes a pause: 30 to 40 requests
@pytest.mark.timeout(240)
def test_requests_stay_bounded(on_remote, s3, behind_proxy, proxy, rng, full, report):
    """A tenth of the requests fail: no more than 1.3 x the requests that a clean run makes for each head."""
    rounds, seed, counts = 200 if full else 20, rng.random(), {}
    for name, faults in (("clean", {}), ("faults", share(0.1))):
        proxy.calm()
        mount = on_remote(s3.beside(name).through(proxy), writeback_delay="20ms").mount()
        proxy.reset()
        proxy.set(faults=faults, stall_s=1.0, delay_s=0.3)
        save_in_rounds(mount, seed, rounds)
        counts[name] = proxy.stats() | {"heads": heads_published(proxy.log())}
        mount.umount()
    per_head = {name: count["requests"] / count["heads"] for name, count in counts.items()}
    ratio = per_head["faults"] / per_head["clean"]
    report("fault-requests", {"ratio": ratio, **counts})
    assert counts["faults"]["fault_count"] >= counts["faults"]["requests"] / 40, "chance gave hardly any fault"
    assert ratio <= 1.3


@pytest.mark.timeout(180)
def test_long_stall_is_ended(on_remote, behind_proxy, proxy, rng):
    """A transfer without a byte for long is tried again on another connection."""
    mount = on_remote(behind_proxy).mount()
    proxy.set(script=[{"method": "PUT", "path": "/packs/", "fault": "stall_request"}], stall_s=100.0)
    path = os.path.join(mount.mnt, "file")
    data = rig.seeded_bytes(rng.random(), 4 * rig.MIB)
    rig.write_file(path, data)
    mount.wait_remote()
    assert proxy.stats()["faults"] == {"stall_request": 1}
    mount.umount()


def save_until_full(mount, rng):
    """Files of 8 MiB until ENOSPC; name -> seed of those that were taken."""
    taken = {}
    for number in range(200):
        path, seed = os.path.join(mount.mnt, f"file-{number}"), rng.random()
        try:
            rig.write_file(path, rig.seeded_bytes(seed, 8 * rig.MIB))
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
            with contextlib.suppress(FileNotFoundError):  # not even that had room
                os.unlink(path)
            return taken
        taken[f"file-{number}"] = seed
    raise AssertionError("the store has no end")


def check_files(mount, taken):
    for name, seed in taken.items():
        assert rig.read_file(os.path.join(mount.mnt, name)) == rig.seeded_bytes(seed, 8 * rig.MIB), name


@pytest.mark.timeout(240)
def test_remote_dead_for_the_whole_run(on_remote, behind_proxy, proxy, rng):
    """P1, P9: saving goes on until NVMe is full; umount does not wait; the next mount carries on when it is back."""
    room = 256 * rig.MIB
    mount = on_remote(behind_proxy, stage="64M", nvme=room).mount()
    mount.umount()
    proxy.set(down=True)
    mount.mount(timeout=300)
    taken = save_until_full(mount, rng)
    assert len(taken) * 8 * rig.MIB >= room // 2, f"ENOSPC after {len(taken)} files"
    check_files(mount, taken)
    status = mount.remote_status()
    assert status["errors"] and status["error"] and status["unreachable_s"] > 0
    mount.wait(level="nvme")
    assert os.getxattr(os.path.join(mount.mnt, "file-0"), "user.cairn.level") == b"nvme"
    begin = rig.time.monotonic()
    mount.umount()
    assert rig.time.monotonic() - begin < 45, "umount waited for the remote"
    mount.mount(timeout=300)
    check_files(mount, taken)
    proxy.set(down=False)
    mount.wait_remote(timeout="120s")
    assert "unreachable_s" not in mount.remote_status()
    mount.umount()
    with mount.elsewhere() as fresh:
        check_files(fresh, taken)


@pytest.mark.timeout(120)
def test_umount_drains_with_progress_or_says_no(on_remote, behind_proxy, proxy, rng):
    """`umount --drain remote` waits for the remote; its time limit is an answer, and the mount stays."""
    mount = on_remote(behind_proxy).mount()
    proxy.set(down=True)
    rig.write_file(os.path.join(mount.mnt, "file"), rig.seeded_bytes(rng.random(), rig.MIB))
    done = mount.cairn("umount", mount.mnt, "--drain", "remote", "--timeout", "3s")
    assert done.returncode == 3 and mount.answers(), done
    proxy.set(down=False)
    mount.umount(drain="remote")
    with mount.elsewhere() as fresh:
        assert len(rig.read_file(os.path.join(fresh.mnt, "file"))) == rig.MIB


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["corrupt", "delete"])
def test_damaged_object_is_healed_from_nvme(on_remote, remote, rng, how):
    """P8: a damaged or missing pack of the remote is uploaded again while NVMe has its chunks."""
    mount = on_remote(remote).mount()
    data = rig.seeded_bytes(rng.random(), 4 * rig.MIB)
    mount.write("file", data, "remote")
    for name in remote.names("packs/"):
        remote.corrupt(name, rng) if how == "corrupt" else remote.delete(name)
    mount.verb("scrub", mount.mnt)
    mount.wait_remote()
    mount.umount()
    with mount.elsewhere() as fresh:
        assert rig.read_file(os.path.join(fresh.mnt, "file")) == data


@pytest.mark.timeout(120)
def test_damaged_object_is_never_served(on_remote, remote, rng):
    """P8, P12: on a fresh node a damaged remote gives an error or a refusal, never wrong bytes."""
    mount = on_remote(remote).mount()
    data = rig.seeded_bytes(rng.random(), 3 * rig.MIB)
    rig.write_file(os.path.join(mount.mnt, "file"), data)
    mount.umount(drain="remote")
    names = sorted(name for name, size in remote.names().items() if size)
    for name in rng.sample(names, min(4, len(names))):
        other = remote.copy()
        other.corrupt(name, rng)
        fresh = mount.fresh(other)
        try:
            fresh.mount(timeout=60, takeover=True)
            path = os.path.join(fresh.mnt, "file")
            assert not os.path.exists(path) or rig.read_file(path) == data
            fresh.umount()
        except rig.MountError as error:
            print(f"{name}: refused: {str(error)[-200:]}")
        except OSError as error:
            assert error.errno == errno.EIO, error
        finally:
            fresh.close()


@pytest.mark.noise  # the damage is put where a pack of raw bytes has some
def test_what_was_damaged_before_its_upload_is_told(on_remote, remote):
    """P3: neither fsync=remote nor a wait says that the remote has what it will never have. Other files are as ever."""
    node = on_remote(remote, fsync="remote")
    node.mount(**{name: None for name in remote.options()}, fsync="nvme")
    path, other = os.path.join(node.mnt, "file"), os.path.join(node.mnt, "other")
    rig.write_file(path, rig.seeded_bytes(1, 4 * rig.MIB))
    node.umount()
    for name in os.listdir(os.path.join(node.store, "packs")):
        rig.patch(os.path.join(node.store, "packs", name), 3 * rig.MIB, b"\x5a" * 24)
    node.mount()
    code, text = node.wait_of(path)
    assert code == 1 and "neither from NVMe nor from the remote" in text
    code, text = node.wait_of(node.mnt)
    assert code == 1 and "file" in text and "scrub" in text
    assert node.remote_status()["damaged_chunks"] == 1
    with open(path, "rb") as file, pytest.raises(OSError) as failure:
        os.fsync(file.fileno())
    assert failure.value.errno == errno.EIO
    rig.write_synced(other, b"other")
    assert node.wait_of(other) == (0, "")
    rig.write_synced(path, rig.seeded_bytes(2, 4 * rig.MIB))
    assert node.wait_of(path) == (0, "")
    assert node.wait_of(node.mnt) == (0, "")
    assert node.remote_status()["damaged_chunks"] == 0

# SPDX-License-Identifier: Apache-2.0
"""Damage in one tier is found by a scrub and healed from the other (P8)."""
import contextlib
import os
import re
import signal
import subprocess
import time

import pytest

import rig
import test_gc


@pytest.fixture
def node(on_remote, remote):
    return on_remote(remote).mount()


def scrub(node, *flags, code=0):
    return node.verb("scrub", *flags, node.mnt, code=code).stdout


def fill(node, rng, count=3, size=3 * rig.MIB):
    content = {f"f{number}": test_gc.save(node, f"f{number}", size, rng) for number in range(count)}
    node.wait_remote()
    return content


def local_packs(node):
    directory = os.path.join(node.store, "packs")
    return sorted(os.path.join(top, name) for top, _, names in os.walk(directory) for name in names)


def flip_object(remote, name, offset):
    data = bytearray(remote.get(name))
    data[offset] ^= 0x10
    remote.put(name, bytes(data))


def check_all(node, content):
    test_gc.check(node.mnt, content)
    test_gc.check_copy(node, content)
    assert scrub(node).strip().endswith("clean")
    node.umount_whole()
    node.mount()
    test_gc.check(node.mnt, content)


def test_a_whole_store_is_clean(node, rng):
    content = fill(node, rng)
    said = scrub(node)
    assert "clean" in said, said
    check_all(node, content)


def test_damage_on_nvme_is_healed(node, rng):
    content = fill(node, rng)
    rig.flip(local_packs(node)[0], 700000)
    said = scrub(node)
    assert re.search(r"NVMe: packs/.* (\d+) damaged or missing, \1 healed, 0 not healed", said, re.DOTALL), said  # others may rest on it
    check_all(node, content)


@pytest.mark.parametrize("damage", ["trailer", "truncated", "deleted"])
def test_a_spoiled_pack_on_nvme_is_healed(node, rng, damage):
    content = fill(node, rng)
    path = local_packs(node)[0]
    size = os.path.getsize(path)
    if damage == "trailer":
        rig.flip(path, size - 40)
    elif damage == "truncated":
        os.truncate(path, size // 2 & ~4095)
    else:
        os.unlink(path)
    said = scrub(node)
    assert " 0 not healed" in said and "damaged or missing" in said, said
    check_all(node, content)


def test_a_damaged_chunk_in_the_remote_is_healed(node, rng):
    content = fill(node, rng)
    name = sorted(test_gc.packs(node.remote))[0]
    flip_object(node.remote, name, 500000)
    said = scrub(node, "--remote")
    assert name in said and "1 damaged or missing, 1 healed, 0 not healed" in said, said
    check_all(node, content)


@pytest.mark.parametrize("damage", ["trailer", "truncated", "deleted", "replaced"])
def test_a_spoiled_pack_in_the_remote_is_healed(node, rng, damage):
    content = fill(node, rng)
    name = sorted(test_gc.packs(node.remote))[0]
    size = len(node.remote.get(name))
    if damage == "trailer":
        flip_object(node.remote, name, size - 40)
    elif damage == "truncated":
        node.remote.put(name, node.remote.get(name)[: size // 2])
    elif damage == "replaced":
        node.remote.put(name, b"something else" * 1000)
    else:
        node.remote.delete(name)
    said = scrub(node)
    assert " 0 not healed" in said and "damaged or missing" in said, said
    check_all(node, content)


def test_damage_in_both_tiers_is_told(node, rng):
    """What is whole in one tier is healed in the other; what is whole in none is named, and reads as EIO."""
    content = fill(node, rng, count=1, size=rig.MIB)
    node.remount()  # the stage would heal it
    for path in local_packs(node):
        rig.flip(path, 300000)
    for name in test_gc.packs(node.remote):
        flip_object(node.remote, name, 300000)
    said = scrub(node, code=1)
    assert "/f0" in said and "not healed" in said, said
    assert node.status()["damage"], node.status()
    # The same content again heals it.
    node.write("f0", content["f0"], "remote")
    rig.poll(lambda: "clean" in node.cairn("scrub", node.mnt).stdout, 20, "a clean scrub", 0.5)
    test_gc.check_copy(node, content)


def test_damage_without_a_remote_is_told(cairn, rng, mnt):
    test_gc.save(cairn, "f", rig.MIB, rng)
    cairn.remount()  # the stage would heal it
    rig.flip(local_packs(cairn)[0], 300000)
    said = scrub(cairn, code=1)
    assert "/f: bytes from" in said and "1 not healed" in said, said
    assert cairn.cairn("scrub", "--remote", mnt).returncode == 1


def test_what_no_pack_holds_is_told(cairn, rng, mnt):
    """A pack is lost, and the view is made anew: it knows no place of these chunks, so no pack tells of them."""
    test_gc.save(cairn, "f", rig.MIB, rng)
    cairn.umount()
    for path in local_packs(cairn):
        os.unlink(path)
    cairn.mount_anew()
    said = scrub(cairn, code=1)
    assert "/f: bytes from" in said and "1 file lacks bytes" in said and "clean" not in said, said


def test_a_slow_scrub_is_cancelled(node, rng):
    fill(node, rng)
    command = [node.binary, "scrub", "--rate", "1M", node.mnt]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=node.env) as proc:
        time.sleep(1)
        assert node.cairn("gc", node.mnt).returncode == 1, "one job at a time"
        proc.send_signal(signal.SIGINT)
        assert proc.wait(200) == 130
    rig.poll(lambda: node.cairn("gc", node.mnt).returncode == 0, 10, "the scrub to end", 0.2)


def test_unmounted_during_a_scrub(node, rng):
    content = fill(node, rng)
    command = [node.binary, "scrub", "--rate", "1M", node.mnt]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=node.env) as proc:
        time.sleep(0.7)
        began = time.monotonic()
        node.umount()
        assert time.monotonic() - began < 60
        with contextlib.suppress(subprocess.TimeoutExpired):
            assert proc.wait(200) == 1
    node.mount()
    test_gc.check(node.mnt, content)

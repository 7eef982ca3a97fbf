# SPDX-License-Identifier: Apache-2.0
"""Every writer of content as an attacker: records of each kind, forged in content, names, xattrs and symlink targets before a kill. Nothing
that a user wrote is ever read as a record of ours (P12): what was there is there, and nothing else."""
import importlib.util
import os
import struct
import zlib

import pytest

import judge
import processes
import rig
from processes import NOBODY

pytestmark = pytest.mark.needs_mount

SLAB_PAYLOAD_OFFSET = 4096  # of a payload that was received into a slab
OWNED = b"OWNED BY NOBODY!" * 8
OWNED_AT = 700 * rig.KIB  # where in the content the forged records' payload lies


def load_seeds():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz", "seeds.py")
    spec = importlib.util.spec_from_file_location("seeds", path)
    seeds = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(seeds)
    return seeds


seeds = load_seeds()


class Victim:
    """What an attacker may know: inode numbers, and how sequence numbers are made."""

    def __init__(self, path, status):
        self.ino = os.stat(path).st_ino
        self.store = bytes.fromhex(status["store_id"])
        epoch = status["epoch"]
        self.seqs = [(epoch << 40) + 200_000, ((epoch + 1) << 40) + 5, (1 << 64) - 2, 0xFFFFFE0000000000, 7]


def slab_record(victim, rng, seq, generation, payload):
    """As version 1 of the stage had them: magic and CRC-32. Its tag of today is 8 bytes that cannot be known."""
    rest = struct.pack("<IIQQQQIIq", generation, 1, seq, victim.ino, 2, 0, len(OWNED), payload, 5)
    check = struct.pack("<II", 0x52424C53, zlib.crc32(rest))
    return (check if rng.randrange(8) else rng.randbytes(8)) + rest


def slab_image(victim, rng, uses=4):
    """A payload of 1 MiB that is a record wherever one may begin. What they name: the bytes that follow, as records in shared slabs do, or
    one place for all. Most slabs are used for the second or third time, some about as often as is said; most numbers are such that a
    recovery takes them."""
    data = bytearray(rig.seeded_bytes(rng.random(), rig.MIB))
    follows = rng.randrange(5) > 0
    end = rig.MIB - 4096 if follows else OWNED_AT
    data[OWNED_AT : OWNED_AT + len(OWNED)] = OWNED
    starts = range(0, end - 64, 64)
    generations = rng.choices((2, 2, 2, 3, 3, rng.randrange(1, uses + 3)), k=len(starts))
    seqs = rng.choices((victim.seqs[0], victim.seqs[0], rng.choice(victim.seqs)), k=len(starts))
    for at, generation, seq in zip(starts, generations, seqs):
        payload = SLAB_PAYLOAD_OFFSET + (at + 64 if follows else OWNED_AT)
        data[at : at + 64] = slab_record(victim, rng, seq + at // 64 if seq < 1 << 63 else seq, generation, payload)
    return bytes(data)


def log_records(victim, rng):
    """Operations and cuts, as they stand in the stage's log and in the journal."""
    q = lambda *numbers: struct.pack("<%dQ" % len(numbers), *numbers)
    seq = rng.choice(victim.seqs)
    cut = seeds.record(33, q(victim.ino, 2, 0, (1 << 64) - 1) + seeds.attrs(0), 0, seq)
    reap = seeds.record(9, q(victim.ino), 0, seq)
    unlink = seeds.record(4, q(victim.ino, 1) + seeds.named(b"secret"), 0, seq)
    chmod = seeds.record(6, q(victim.ino) + struct.pack("<I", 7) + seeds.attrs(0), 0, seq)
    return (cut + reap + unlink + chmod) * 4


def structures(victim, rng):
    """Whole files of ours, with this store's id where they name a store."""
    names = ("segment.bin", "pack.bin", "head.bin", "lease.bin", "prefix-info.bin", "superblock.bin")
    parts = [seeds.golden(name) for name in names] + [seeds.run_file([seeds.run_row(0, b"Iaaaaaaaa", b"one")]),
                                                      seeds.golden("segment.bin")[128:]]
    rng.shuffle(parts)
    return b"".join(part.ljust((len(part) + 63) // 64 * 64, b"\0") for part in parts)


def without(data, *bytes_):
    for byte in bytes_:
        data = data.replace(byte, b"\x01")
    return data


class Attack:
    """What one user does in a directory of their own, all of it allowed."""

    def __init__(self, directory, victim, rng):
        self.directory, self.victim, self.rng = directory, victim, rng

    def path(self, name):
        return os.fsencode(name)

    def content(self):
        return self.rng.choice((slab_image, slab_image, log_records, structures))(self.victim, self.rng)

    def fill_slabs(self, times):
        """Files come and go, so that the slabs that are used next, for one large write or for small ones, hold what was in them."""
        for i in range(times):
            rig.write_file(self.path("scratch"), slab_image(self.victim, self.rng, i // 4))
            os.truncate(self.path("scratch"), 0)
            rig.write_file(self.path(f"over-{i}"), b"x" * (self.rng.randrange(256 * rig.KIB, 500_000) if i % 2 else 200_000))

    def write(self, number):
        size = self.rng.choice((10, 700, 5000, 70_000, 300_000, 1_000_000))
        rig.write_file(self.path(f"file-{number}"), (self.content() * 2)[:size])

    def name(self, number):
        raw = without(log_records(self.victim, self.rng)[:240], b"\0", b"/")
        rig.write_file(self.path(str(number).encode() + raw), b"named")

    def xattr(self, number):
        rig.write_file(self.path(f"xattr-{number}"), b"")
        value = (log_records(self.victim, self.rng) + structures(self.victim, self.rng))[: self.rng.choice((300, 4000, 60_000))]
        os.setxattr(self.path(f"xattr-{number}"), "user.forged", value)

    def symlink(self, number):
        target = without(self.content()[:4000], b"\0")
        os.symlink(target, self.path(f"link-{number}"))

    def run(self):
        os.chdir(self.directory)  # what lies above it is root's
        processes.become_nobody()
        self.fill_slabs(60)
        for number in range(24):
            self.rng.choice((self.write, self.write, self.name, self.xattr, self.symlink))(number)


def check_all(cairn, picture, secret):
    assert rig.read_file(cairn.mnt + "/secret") == secret, "a user changed a file that they may not open"
    assert judge.snapshot(cairn.mnt) == picture
    rig.sync(cairn.mnt + "/secret")


@pytest.fixture
def rounds(full):
    return 40 if full else 4


@pytest.mark.timeout(300)
def test_forged_records(cairn, rng, rounds):
    """P12: after kill -9, and after a power loss, the tree is what it was, whoever wrote what into it."""
    cairn.options["allow_other"] = True
    secret = b"root's own"
    for number in range(rounds):
        cairn.mount(stage="64M", writeback_delay="1h")
        if number == 0:
            rig.write_file(cairn.mnt + "/secret", secret)
            os.chmod(cairn.mnt + "/secret", 0o600)
            cairn.wait()
        directory = rig.mkdir(f"{cairn.mnt}/attack-{number}")
        os.chown(directory, NOBODY, NOBODY)
        rig.in_child(Attack(directory, Victim(cairn.mnt + "/secret", cairn.status()), rng).run)
        rng.random()  # the child's draws are its own
        picture = judge.snapshot(cairn.mnt)
        if number % 4 == 3:  # a power loss: journal and packs are what is read
            cairn.wait()
            cairn.lose_power()
        else:
            cairn.kill9()
        cairn.mount()
        check_all(cairn, picture, secret)
        cairn.umount()
        done = cairn.fsck()
        assert done.returncode == 0, f"fsck: {done.stdout}{done.stderr}"
        cairn.mount_anew()
        check_all(cairn, picture, secret)
        cairn.umount()

# SPDX-License-Identifier: Apache-2.0
"""Two daemons on one prefix (P5): one history, whatever dies, stands or goes on."""
import contextlib
import os
import struct

import pytest

import remote as remotes
import rig

LEASE = 3.0


class Node:
    """One node's daemon; it numbers the files that it saves, so that a prefix can be told from its names."""

    def __init__(self, name, mount):
        self.name, self.mount = name, mount
        self.sessions = 0

    def begin(self, **options):
        """Mount; what is there then is the base of this session."""
        self.sessions += 1
        self.mount.mount(**options)
        self.base = listing(self.mount.mnt)
        self.saved, self.safe = [], 0

    def save(self):
        name = f"{self.name}{self.sessions}-{len(self.saved):04d}"
        with self.mount.whole():
            rig.write_file(os.path.join(self.mount.mnt, name), content(name))
        self.saved.append(name)

    def make_safe(self):
        self.mount.wait_remote()
        self.safe = len(self.saved)

    def replace(self):
        """The node is given up: an empty one takes its place."""
        self.mount.kill9()
        old, self.mount = self.mount, self.mount.fresh()
        rig.file_systems_unmount(old.mnt)


def content(name):
    return name.encode() * 2000


def listing(mnt):
    """The names that are there, each with the right content."""
    names = sorted(os.listdir(mnt))
    for name in names:
        assert rig.read_file(os.path.join(mnt, name)) == content(name), name
    return names


def check_follows(names, node):
    """What is there is what the node began with and a prefix of what it saved, with all that was said to be safe."""
    rest = [name for name in names if name not in set(node.base)]
    assert set(node.base) <= set(names), f"lost: {sorted(set(node.base) - set(names))[:5]}"
    assert rest == node.saved[: len(rest)], f"no prefix: {rest} of {node.saved}"
    assert len(rest) >= node.safe, f"{len(rest)} of {node.safe} that were safe"


class Head:
    """What a head says, as docs/on-disk-format.md tells."""

    def __init__(self, data):
        assert data[:8] == b"CAIRNHED", data[:8]
        self.number = struct.unpack_from("<Q", data, 16)[0]
        self.history, self.store = data[24:40], data[40:56]
        self.epoch, self.cut = struct.unpack_from("<Q", data, 72)[0], struct.unpack_from("<Q", data, 104)[0]

    def follows(self, before):
        """One chain: the same history, cuts that never go back, a larger epoch for each new holder."""
        assert self.history == before.history
        assert self.cut >= before.cut, f"head {self.number} goes back from {before.cut} to {self.cut}"
        assert self.epoch >= before.epoch and (self.store == before.store or self.epoch > before.epoch), (
            f"head {self.number}: epoch {self.epoch} after {before.epoch}"
        )


class Chain:
    """The heads as they are seen from time to time: one number, one content, for ever; no number left out."""

    def __init__(self, remote, plain):
        self.remote, self.plain, self.seen = remote, plain, {}

    def look(self):
        """The numbers that are there now."""
        heads = self.remote.heads()
        for number, data in heads.items():
            assert self.seen.setdefault(number, data) == data, f"head {number} was written twice"
        return sorted(heads)

    def check(self):
        now = self.look()
        assert now == list(range(now[0], now[-1] + 1)), f"heads are missing in {now}"
        assert now[-1] == max(self.seen), "the newest head went back"
        if self.plain:
            return
        heads = {number: Head(self.seen[number]) for number in sorted(self.seen)}
        for number, head in heads.items():
            assert head.number == number
            if number - 1 in heads:
                head.follows(heads[number - 1])


def look_elsewhere(node):
    """What a reader on another node sees now."""
    reader = node.mount.fresh()
    reader.mount(ro=True)
    with rig.discarded(reader):
        return listing(reader.mnt)


class Fight:
    """Two nodes; one holds the prefix until something happens to it."""

    def __init__(self, on_remote, remote, rng):
        self.rng = rng
        self.holder, self.other = (Node(name, on_remote(remote, lease="3s", writeback_delay="20ms")) for name in "ab")
        self.chain = Chain(remote, self.holder.mount.plain)
        self.holder.begin()

    def work(self):
        """The holder saves some files; some of them it waits for, the last ones not."""
        for _ in range(self.rng.randrange(2, 8)):
            self.holder.save()
        if self.rng.random() < 0.7:
            self.holder.make_safe()
        for _ in range(self.rng.randrange(0, 5)):
            self.holder.save()
        rig.time.sleep(self.rng.random() * 0.3)
        self.chain.look()

    def swap(self):
        self.holder, self.other = self.other, self.holder

    def killed(self):
        """The holder dies; the other takes over, by force or when the lease has run out."""
        self.holder.mount.kill9()
        self.other.begin(**self.rng.choice(({"takeover": True}, {})))
        check_follows(self.other.base, self.holder)
        self.holder.replace()
        self.swap()

    def stands(self):
        """The holder stands for longer than its lease, is taken over, and goes on: it is fenced."""
        self.holder.mount.pause()
        if self.rng.random() < 0.7:
            rig.time.sleep(LEASE * 1.3)
            self.other.begin()
        else:
            self.other.begin(takeover=True)
        check_follows(self.other.base, self.holder)
        self.other.save()
        self.other.make_safe()
        self.holder.mount.go_on()
        self.fenced(self.holder)
        self.holder.replace()
        self.swap()

    def fenced(self, node):
        """It says so and why; what it could not publish can still be read; nothing of it gets into the remote."""
        with contextlib.suppress(OSError):  # whether it still takes writes is its own affair
            node.save()
        status = rig.poll(lambda: self.state(node) == "fenced" and node.mount.remote_status(), 20, "the holder to notice")
        assert status["error"], status
        assert listing(node.mount.mnt) == sorted(node.base + node.saved)
        names = look_elsewhere(self.other)
        check_follows(names, self.other)

    def state(self, node):
        return node.mount.remote_status()["state"]

    def forced(self):
        """A live holder is taken over by force."""
        self.other.begin(takeover=True)
        check_follows(self.other.base, self.holder)
        self.other.save()
        self.other.make_safe()
        self.fenced(self.holder)
        self.holder.replace()
        self.swap()

    def handed_over(self):
        """A clean umount releases the prefix: no wait, nothing missing."""
        self.holder.mount.umount(drain="remote")
        self.other.begin()
        assert "does not wait" not in self.other.mount.log()[-2000:], "it waited for the lease"
        assert self.other.base == sorted(self.holder.base + self.holder.saved)
        self.holder.replace()
        self.swap()

    def rest(self):
        """The holder stands and goes on, and no other store wants its place: nothing happens."""
        self.holder.mount.pause()
        rig.time.sleep(self.rng.random() * LEASE * 1.5)
        self.holder.mount.go_on()
        self.holder.make_safe()


@pytest.mark.timeout(240)
def test_two_daemons_never_make_two_histories(on_remote, remote, rng, full):
    """P5: killed, stopped for longer than the lease, taken over by force, handed over, at random: one history."""
    fight = Fight(on_remote, remote, rng)
    events = [Fight.killed, Fight.stands, Fight.forced, Fight.handed_over, Fight.rest]
    rng.shuffle(events)
    for number in range(60 if full else len(events)):
        fight.work()
        event = events[number] if number < len(events) else rng.choice(events)
        print(f"round {number}: {event.__name__}")
        event(fight)
        fight.chain.check()
    fight.work()
    fight.holder.make_safe()
    assert look_elsewhere(fight.holder) == sorted(fight.holder.base + fight.holder.saved)
    fight.chain.check()
    fight.holder.mount.umount()


@pytest.mark.needs_mount
def test_live_holder_is_named(on_remote, remote, directory):
    """A second mount says for which store it waits, and is refused in one line when that turns out to live; the first is unharmed."""
    first = on_remote(remote, lease="16s").mount()
    first.write("file", b"x", "remote")
    second = on_remote(remote, lease="16s")
    done = second.cairn("mount", second.store, second.mnt, "-o", second.option_string({}), timeout=300)
    *waits, refusal = done.stderr.strip().splitlines()
    assert done.returncode in (1, 32) and len(waits) <= 1, done
    assert all(str(first.proc.pid) in line for line in (*waits, refusal)), done
    assert all("takeover" not in line for line in waits), waits
    for advice in ("one writer at a time", "a prefix of its own", "-o ro", "unmount it there", "what it has not published stays there"):
        assert advice in refusal, refusal
    first.write("more", b"y", "remote")
    first.umount()


@pytest.mark.needs_mount
def test_fenced_mount_says_what_is_only_there(on_remote, remote):
    """What is never published is not behind: status and metrics say how much it is, and that it stays; a level says so for each file."""
    first = on_remote(remote, lease="3s").mount()
    first.write("published", b"x" * 5000, "remote")
    assert "unpublished_files" not in first.remote_status() and "not yet uploaded" in first.cairn("status", first.mnt).stdout
    second = on_remote(remote, lease="3s").mount(takeover=True)
    rig.write_file(os.path.join(first.mnt, "small"), b"y" * 100)
    rig.write_file(os.path.join(first.mnt, "large"), rig.seeded_bytes(1, 4 * rig.MIB))
    rig.poll(lambda: first.remote_status()["state"] == "fenced", 30, "the first to be fenced")
    os.unlink(os.path.join(first.mnt, "published"))
    first.write("later", b"z" * 1000, "nvme")
    status = first.remote_status()
    assert (status["unpublished_files"], status["unpublished_bytes"]) == (3, 4 * rig.MIB + 1100), status
    assert status["unpublished_changes"] >= 4 and status["unpublished_more"] is False and status["seconds_behind"] > 0
    assert "behind_bytes" not in status
    text = first.cairn("status", first.mnt).stdout.partition("remote ")[2]
    assert "only here" in text and "not published by this mount" in text and "not yet uploaded" not in text, text
    metrics = first.cairn("metrics", first.mnt).stdout
    assert f"cairnfs_remote_unpublished_bytes {status['unpublished_bytes']}\n" in metrics and "remote_behind_bytes" not in metrics
    for name in ("small", "large", "later"):
        assert os.getxattr(os.path.join(first.mnt, name), "user.cairn.level") == b"nvme", name
    assert first.status()["nvme"]["evictable_bytes"] == 0
    first.umount()
    second.umount(drain="remote")
    own = type(remote)(os.path.join(first.root, "own")) if isinstance(remote, remotes.DirRemote) else None
    if own:  # as it says: with a prefix of its own all of it is published
        first.mount(**own.options())
        first.wait_remote()
        assert sorted(os.listdir(first.mnt)) == ["large", "later", "small"]
        first.umount()


@pytest.mark.needs_mount
def test_fenced_mount_that_never_published(on_remote, remote):
    """All that it has is only there."""
    first = on_remote(remote, lease="3s").mount()
    second = on_remote(remote, lease="3s").mount(takeover=True)
    rig.write_file(os.path.join(first.mnt, "file"), b"x" * 100)
    rig.poll(lambda: first.remote_status()["state"] == "fenced", 30, "the first to be fenced")
    first.wait()
    status = first.remote_status()
    assert (status["unpublished_files"], status["unpublished_bytes"], status["unpublished_more"]) == (1, 100, False)
    assert "1 files, 100 B, of 1 changes" in first.cairn("status", first.mnt).stdout
    first.umount()
    second.umount()


@pytest.mark.needs_mount
def test_old_store_does_not_publish(on_remote, remote):
    """A store with unpublished history comes back after another took over: refused or fenced, and the remote unharmed."""
    first = on_remote(remote, lease="3s", upload_limit="100K").mount()
    first.write("kept", b"kept", "remote")
    first.write("lost", rig.seeded_bytes(1, 4 * rig.MIB), "nvme")
    first.kill9()
    second = on_remote(remote, lease="3s").mount(takeover=True)
    rig.write_file(os.path.join(second.mnt, "other"), b"other")
    second.umount(drain="remote")
    try:
        first.mount(upload_limit=None)
        assert sorted(os.listdir(first.mnt)) == ["kept", "lost"]
        rig.poll(lambda: first.remote_status()["state"] == "fenced", 20, "the old store to be fenced")
    except rig.MountError as error:
        print(f"refused: {str(error)[-300:]}")
    first.close()
    reader = on_remote(remote).mount(ro=True)
    assert sorted(os.listdir(reader.mnt)) == ["kept", "other"]
    reader.umount()


@pytest.mark.needs_mount
@pytest.mark.parametrize(
    "names, blind",
    [(("unpublished",), False), (("unpublished", "neither"), False), (("unpublished",), True)],
    ids=["in the last segment", "before it", "with a view that cannot be read now"],
)
def test_a_damaged_journal_goes_on_from_nobody(on_remote, remote, names, blind):
    """A store whose journal cannot be compared with what another writer published is refused, also where its own view needs no journal,
    and nothing that it has is lost by that."""
    first = on_remote(remote, lease="3s").mount()
    rig.write_file(os.path.join(first.mnt, "one"), b"one")
    first.umount(drain="remote")
    alone = dict.fromkeys(remote.options())  # without it
    for name in names:
        first.mount(**alone)
        rig.write_file(os.path.join(first.mnt, name), b"x")
        first.umount()
    second = on_remote(remote, lease="3s").mount(takeover=True)
    rig.write_file(os.path.join(second.mnt, "two"), b"two")
    second.umount(drain="remote")
    journal = os.path.join(first.store, "journal")
    sizes = {name: len(rig.read_file(os.path.join(journal, name)).rstrip(b"\0")) for name in sorted(os.listdir(journal))}
    segment = next(name for name, size in sizes.items() if size > 400)  # the first with a batch
    rig.flip(os.path.join(journal, segment), sizes[segment] - 20)
    lock = os.path.join(first.store, "view", "LOCK")
    if blind:
        os.unlink(lock), os.mkdir(lock)
    with pytest.raises(rig.MountError, match="journal is damaged"):
        first.mount()
    if blind:
        os.rmdir(lock)
    rig.flip(os.path.join(journal, segment), sizes[segment] - 20)
    with pytest.raises(rig.MountError, match="published"):
        first.mount()
    first.mount(**alone)
    assert sorted(os.listdir(first.mnt)) == sorted(["one", *names])
    first.close()
    reader = on_remote(remote).mount(ro=True)
    assert sorted(os.listdir(reader.mnt)) == ["one", "two"]
    reader.umount()


@pytest.mark.needs_mount
def test_readers_follow(on_remote, remote):
    """A read-only mount follows another writer's heads."""
    writer = on_remote(remote).mount()
    reader = on_remote(remote).mount(ro=True, follow="1s")
    for number in range(3):
        name = f"file-{number}"
        writer.write(name, name.encode(), "remote")
        rig.poll(lambda: os.path.exists(os.path.join(reader.mnt, name)), 10, f"{name} at the reader")
        assert rig.read_file(os.path.join(reader.mnt, name)) == name.encode()
    reader.umount()
    writer.umount()

# SPDX-License-Identifier: Apache-2.0
"""Mounts of several stores join one prefix, tell their operations at common rounds, and leave."""
import os
import signal
import subprocess
import time
import zlib

import pytest

import feeds
import processes
import remote as remotes
import rig
import successor


@pytest.fixture
def node(on_remote, shared):
    """node() makes one more store for the same prefix, not yet mounted."""
    def make(**options):
        return on_remote(shared, **{"nodes": True, "writeback_delay": "50ms", **options})

    make.remote = shared
    return make


def save(mount, name, size=100000):
    rig.write_file(os.path.join(mount.mnt, name), os.urandom(size))


def told(remote, epoch):
    return feeds.feeds_of(remote).get(epoch, [])


def await_told(remote, epoch, records, timeout=20):
    """Until the feeds of a stay have so many records."""
    rig.poll(lambda: sum(feed.records for feed in told(remote, epoch)) >= records, timeout, f"{records} records of {epoch:x}")


def await_uploaded(mount):
    """Unlike a wait for the remote, also while no union head can have it."""
    def is_uploaded():
        answer = mount.ask(verb="horizon")
        return answer["uploaded"] >= answer["newest"]
    rig.poll(is_uploaded, 30, "the upload")


def stay_of(mount):
    with open(os.path.join(mount.store, "node")) as file:
        return int(file.readlines()[1].split()[1], 16)


def test_two_stores_write_one_prefix(node):
    a, b = node().mount(), node().mount()
    save(a, "of-a")
    save(b, "of-b")
    assert {stay_of(a), stay_of(b)} == {16, 32}
    for mount in (a, b):
        await_told(node.remote, stay_of(mount), 1)
    names = node.remote.names()
    assert {name for name in names if name.startswith("writers/")} == {f"writers/{number:016x}" for number in (16, 32)}
    packs = [int(name.split("/")[1], 16) >> 24 for name in names if name.startswith("packs/")]
    assert set(packs) == {16, 32}, "each has its own numbers"
    for mount in (a, b):
        feeds.check_line(told(node.remote, stay_of(mount)))
        mount.umount()
    for mount in (a, b):
        mount.mount()
    for mount in (a, b):
        rig.poll(lambda mount=mount: sorted(os.listdir(mount.mnt)) == ["of-a", "of-b"], 30, "what both wrote")


def test_idle_nodes_tell_that_nothing_happened(node):
    a = node().mount()
    save(a, "file")
    await_told(node.remote, 16, 1)
    last = told(node.remote, 16)[-1]
    rig.poll(lambda: told(node.remote, 16)[-1].hi > last.hi, 20, "a feed without records")
    line = told(node.remote, 16)
    feeds.check_line(line)
    idle = [feed for feed in line if feed.hi > last.hi]
    assert {(feed.records, feed.to) for feed in idle} == {(0, last.to)}
    assert idle[0].lo == last.hi + 1, "all rounds since then are told"


def test_a_node_that_does_nothing_tells_each_round_while_others_work(node):
    """It hears of their work by the union: else they would wait for what it has not told."""
    a, b = node(lease="60s").mount(), node(lease="60s").mount()

    save(a, "file")
    rig.poll(lambda: os.path.exists(os.path.join(b.mnt, "file")), 60, "the file, on the other node")

    def tells_often():
        last = told(node.remote, 32)[-4:]
        return len({feed.to for feed in last}) == 1 and len(last) == 4 and last[-1].hi - last[0].hi <= 6

    rig.poll(tells_often, 20, "four feeds in a row", 1)  # at each round; an idle node tells every fifth
    assert all(feed.records == 0 for feed in told(node.remote, 32))
    b.umount()


def test_leaving_ends_the_stay(node):
    a = node().mount()
    save(a, "file")
    a.umount()
    line = told(node.remote, 16)
    assert (line[-1].flags, line[-1].hi) == (feeds.LEAVES, feeds.FOR_EVER)
    assert sum(feed.records for feed in line) == 1, "all is told before"
    assert stay_of(a) == 0
    a.mount()
    assert stay_of(a) == 32
    save(a, "again")
    await_told(node.remote, 32, 1)
    assert told(node.remote, 32)[0].start == line[-1].to, "it goes on where the stay before ended"


def test_a_mount_that_did_nothing_leaves(node):
    node().mount().umount()
    *idle, last = [(feed.flags, feed.records) for feed in told(node.remote, 16)]
    assert last == (feeds.LEAVES, 0)
    assert set(idle) <= {(0, 0)}, "on a slow machine it told that nothing happened"


def test_a_daemon_that_dies_goes_on_with_the_stay(node):
    """What its predecessor published and did not tell, and what it had only in its stage, is told."""
    a = node().mount()
    for i in range(6):
        save(a, f"file{i}")
        time.sleep(0.4 * i)  # it dies at other moments of a round each time
        a.kill9()
        a.mount()
    await_told(node.remote, 16, 6, 30)
    assert list(feeds.feeds_of(node.remote)) == [16]
    line = told(node.remote, 16)
    feeds.check_line(line)
    assert sum(feed.records for feed in line) == 6, "each once"
    assert line[-1].to >> 40 > 16, "later sessions have later numbers"


def remembered(mount):
    return rig.read_file(os.path.join(mount.store, "feed"))


def test_a_daemon_that_dies_as_it_leaves(node):
    """STORE/feed is of before a feed that another daemon had put: the next stay tells nothing again, which would be done twice."""
    a = node().mount()
    save(a, "first")
    await_told(node.remote, 16, 1)
    helpers = processes.dir_helpers(a.proc.pid)
    for pid in helpers:
        os.kill(pid, signal.SIGSTOP)
    save(a, "second")
    rig.poll(lambda: feeds.Feed(remembered(a)).records, 20, "a feed that is prepared")
    before = remembered(a)
    for pid in helpers:
        os.kill(pid, signal.SIGCONT)
    await_told(node.remote, 16, 2)
    a.umount()
    note_leaving(a, 16)
    rig.write_file(os.path.join(a.store, "feed"), before)
    a.mount()
    assert stay_of(a) == 32
    save(a, "third")
    await_told(node.remote, 32, 1)
    assert told(node.remote, 32)[0].start == told(node.remote, 16)[-1].to
    assert sum(feed.records for feed in told(node.remote, 32)) == 1


def test_numbers_are_there_before_they_are_needed(node):
    """Sixteen daemons begin with the numbers of one entry; another one is made when half of them did."""
    a = node().mount()
    save(a, "file")
    await_told(node.remote, 16, 1)
    for _ in range(8):
        a.kill9()
        a.mount()
    rig.poll(lambda: len(node.remote.names("writers")) == 2, 20, "another entry")
    for _ in range(10):
        a.kill9()
        a.mount()
    assert sorted(node.remote.names("writers")) == [f"writers/{number:016x}" for number in (16, 32)]
    save(a, "again")
    await_told(node.remote, 16, 2)
    feeds.check_line(told(node.remote, 16))


@pytest.mark.parametrize("case", ["one writer's prefix", "without nodes", "a node's store elsewhere", "another store"])
def test_what_does_not_fit_is_refused(node, on_remote, case):
    if case == "one writer's prefix":
        one = on_remote(node.remote).mount()
        save(one, "file")
        one.wait_remote()
        assert "takes one writer" in node().refused()
    elif case == "another store":
        one = on_remote(remotes.DirRemote(node.remote.root + "-other")).mount()
        one.umount()
        one.use(node.remote)
        assert "was made without -o nodes" in one.refused(nodes=True)
    else:
        a = node().mount()
        a.umount()
        if case == "without nodes":
            assert "several nodes write" in on_remote(node.remote).refused(nodes=False)
        else:
            assert "belongs to one of several nodes" in a.refused(nodes=False, remote=None)


@pytest.mark.parametrize("options, is_refused", [("vers=4.2", True), ("noac", True), ("lookupcache=none,vers=4.2", True),
                                                 ("noac,lookupcache=none", False), ("noaction,lookupcache=none", True)])
def test_nfs_whose_lists_may_be_old(node, directory, sanitized, options, is_refused):
    """Its client remembers what a directory lists. The mounts of this machine are of NFS here, as far as the kernel says."""
    if sanitized:
        pytest.skip("skipped: a sanitizer cannot be preloaded")
    a = node()
    a.env = {**a.env, "LD_PRELOAD": successor.preload(directory, "nfs_mounts")[0], "CAIRN_TEST_NFS": options}
    if is_refused:
        said = a.refused()
        assert "is on nfs4 server:/export, whose client remembers" in said and "noac and lookupcache=none" in said, said
        assert not node.remote.names("writers")
    else:
        a.mount()
        save(a, "file")
        a.wait_remote()


@pytest.mark.parametrize("option, says", [("ro", "exclude each other"), ("takeover", "one writer"), ("rollback", "one writer")])
def test_options_that_exclude_each_other(node, option, says):
    done = (mount := node()).verb("mount", mount.store, mount.mnt, "-o", mount.option_string({option: True}), code=1)
    assert says in done.stderr


def test_what_a_feed_names_outlives_the_grace(node):
    """Also of a stay that is over: the union shows it until the node is back."""
    a, b = node(gc_grace="1s", lease="60s").mount(), node(gc_grace="1s", lease="60s").mount()
    save(a, "file")
    a.umount()
    b.kill9()  # from now on the union stands still
    a.mount()
    for i in range(8):
        save(a, f"more{i}")
        await_uploaded(a)
        time.sleep(0.7)  # heads at several rounds
    a.verb("gc", a.mnt)
    heads = sorted(int(name.split("/")[-1], 16) for name in node.remote.names(f"nodes/{16:016x}/heads") if not name.endswith("cairn"))
    lines = [feed for line in feeds.feeds_of(node.remote).values() for feed in line if feed.node == 16 and feed.head]
    assert heads[0] <= min(feed.head for feed in lines) < heads[-1] - 2


def test_a_feed_that_cannot_be_prepared_is_told_later(node):
    """What is told meanwhile, of rounds before it, is that nothing was done."""
    a = node(lease="24s").mount()
    save(a, "one")
    await_told(node.remote, 16, 1)
    a.kill9()
    a.mount()
    first = told(node.remote, 16)[-1]
    rig.poll(lambda: told(node.remote, 16)[-1].hi > first.hi, 20, "a feed without records")
    kept = os.path.join(a.store, "feed")
    os.rename(kept, kept + "-away")
    os.mkdir(kept)  # it cannot be written
    last = told(node.remote, 16)[-1]
    save(a, "two")
    rig.poll(lambda: "the upload stopped" in a.log(), 20, "the trouble")
    os.rmdir(kept)
    os.rename(kept + "-away", kept)
    await_told(node.remote, 16, 2)
    line = told(node.remote, 16)
    feeds.check_line(line)
    assert all((feed.head, feed.records) == (last.head, 0) for feed in line if feed.to == last.to and feed.hi > last.hi)


def rewrite(mount, change):
    """STORE/node with other lines."""
    path = os.path.join(mount.store, "node")
    text = "\n".join([*change(rig.read_file(path).decode().splitlines()[:-1]), ""])
    rig.write_file(path, (text + f"crc32 {zlib.crc32(text.encode()):08x}\n").encode())


def note_leaving(mount, stay):
    """As a mount does that ends."""
    rewrite(mount, lambda lines: [lines[0], f"leaves {stay:016x}", *lines[2:]])


@pytest.mark.parametrize("entry", ["made", "not made", "another's"])
def test_a_daemon_that_dies_while_it_joins(node, entry):
    """It may have made its entry: none stays that no store knows of, for the union would wait for it."""
    a, b = node().mount(), node().mount()
    b.kill9()
    b.drop_stage()
    rewrite(b, lambda lines: [lines[0], f"stay {0:016x}", lines[2], f"wants {32:016x}"])
    for name in set(os.listdir(b.store)) - {"node"}:
        subprocess.run(["rm", "-rf", os.path.join(b.store, name)], check=True)
    made = f"writers/{32:016x}"
    data = node.remote.get(made)
    if entry != "made":
        node.remote.delete(made)
    if entry == "another's":
        other = data[:32] + bytes(16) + data[48:-4]
        node.remote.put(made, other + zlib.crc32(other).to_bytes(4, "little"))
    b.mount()
    number = 48 if entry == "another's" else 32
    assert stay_of(b) == number
    assert sorted(node.remote.names("writers"))[1:] == [f"writers/{at:016x}" for at in range(32, number + 1, 16)]
    save(b, "file")
    await_told(node.remote, number, 1)
    a.umount()


@pytest.mark.parametrize("lands", [True, False])
def test_a_node_that_may_have_left_begins_a_new_stay(node, lands):
    """Its daemon died while its last feed was on its way."""
    a = node().mount()
    save(a, "file")
    a.umount()
    note_leaving(a, 16)
    last = f"feeds/{feeds.FOR_EVER:016x}-{16:016x}"
    then = node.remote.get(last)
    if not lands:
        node.remote.delete(last)
    hidden = node.remote.file("feeds") + ".away"
    os.rename(node.remote.file("feeds"), hidden)
    rig.write_file(node.remote.file("feeds"), b"")
    assert "was leaving" in a.refused(), "it must ask"
    os.unlink(node.remote.file("feeds"))
    os.rename(hidden, node.remote.file("feeds"))
    a.mount()
    assert stay_of(a) == 32
    assert (feeds.Feed(node.remote.get(last)).to, feeds.Feed(node.remote.get(last)).flags) == (feeds.Feed(then).to, feeds.LEAVES)
    feeds.check_line(told(node.remote, 16))
    save(a, "again")
    await_told(node.remote, 32, 1)


def test_a_first_mount_that_fails_keeps_its_number(node):
    """It has joined, and cannot make its own prefix."""
    a = node()
    rig.write_file(node.remote.file("nodes"), b"")
    a.refused()
    assert len(node.remote.names("writers")) == 1
    os.unlink(node.remote.file("nodes"))
    a.mount()
    assert stay_of(a) == 16 and len(node.remote.names("writers")) == 1

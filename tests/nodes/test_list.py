# SPDX-License-Identifier: Apache-2.0
"""`cairn nodes`: who writes the prefix and whom the others wait for, on the mount of any node; and what was set aside."""
import json
import os
import re
import subprocess
import sys
import time

import pytest

import rig

LEASE_S = 6


@pytest.fixture
def node(on_remote, shared):
    return lambda **options: on_remote(shared, **{"nodes": True, "writeback_delay": "50ms", "lease": f"{LEASE_S}s", **options}).mount()


def look(mount):
    return json.loads(mount.verb("nodes", "--json", mount.mnt).stdout)


def states(mount):
    """{store: state} as this mount lists it."""
    return {re.search(r":(/.*) pid ", stay["holder"])[1]: stay["state"] for stay in look(mount)["nodes"]}


def own(mount):
    """The line of a mount, as it lists itself."""
    (stay,) = (stay for stay in look(mount)["nodes"] if stay["is_this"])
    assert mount.store in stay["holder"]
    return stay


def shown(mount, *words):
    return mount.verb("nodes", *words, mount.mnt).stdout.splitlines()


def wait_for(mount, wanted):
    rig.poll(lambda: states(mount) == wanted, 60, f"{wanted}")


def test_every_mount_lists_all_nodes(node):
    """Also one that does not merge; and a node that left stays in the list, as long as the union has content of it."""
    mounts = [node(), node()]
    for mount in mounts:
        rig.write_file(os.path.join(mount.mnt, f"of-{own(mount)['node']}"), b"x")
    for mount in mounts:
        wait_for(mount, {other.store: "lives" for other in mounts})
        rig.poll(lambda mount=mount: look(mount)["union"]["head"] > 0, 30, "a union")
    first, second = (look(mount) for mount in mounts)
    assert first["union"].keys() >= {"head", "generation", "round", "age_s", "merged_here", "merger"}
    assert first["union"]["generation"] == 0 and first["union"]["merged_here"] != second["union"]["merged_here"]
    assert first["union"]["merger"] == second["union"]["merger"] != "" and "held_back_by" not in first["union"]
    epochs = [[stay["epoch"] for stay in reply["nodes"]] for reply in (first, second)]
    assert epochs[0] == epochs[1] == sorted(epochs[0]) and len(set(epochs[0])) == 2
    for stay in first["nodes"]:
        assert stay.keys() == {"epoch", "node", "holder", "is_this", "state", "round", "merged", "behind_s", "heard_s_ago", "clock_error_s"}
        assert 0.05 <= stay["clock_error_s"] <= 0.25
        assert -1 < stay["heard_s_ago"] < LEASE_S and -1 < stay["behind_s"] < 60 and stay["round"] > 0
    lines = shown(mounts[0])
    assert re.fullmatch(r"All is well: 2 nodes write, readers see the state of [0-9.]+ s ago\.", lines[0]), lines
    assert max(map(len, lines[2:])) <= 100 and len(lines) == len(shown(mounts[0], "list")) == 6
    mounts[1].umount()
    wait_for(mounts[0], {mounts[0].store: "lives", mounts[1].store: "left"})
    assert shown(mounts[0])[0].startswith("All is well: 1 node writes")


def test_nodes_that_are_silent_are_named_on_the_mount_of_another(node):
    """Two of three: more than half, which no node ends by itself."""
    silent, other, mount = node(), node(), node()
    epoch = own(silent)["epoch"]
    wait_for(mount, {each.store: "lives" for each in (silent, other, mount)})
    silent.pause()
    other.pause()
    try:
        wait_for(mount, {silent.store: "silent", other.store: "silent", mount.store: "lives"})
        reply, lines = look(mount), shown(mount)
        (stay,) = (stay for stay in reply["nodes"] if stay["epoch"] == epoch)
        assert stay["heard_s_ago"] > LEASE_S and stay["behind_s"] > LEASE_S
        held_back_by = reply["union"]["held_back_by"]
        (holder,) = (stay["holder"] for stay in reply["nodes"] if stay["epoch"] == held_back_by)
        assert held_back_by in (epoch, own_epoch(reply, other)), reply
        said = f"{holder} (epoch {held_back_by}) holds the union back, for "
        assert lines[0].startswith(said) and lines[0].endswith("Z: it was not heard of for longer than the lease."), lines
        assert [line for line in lines if re.match(rf" *{held_back_by} .* ! ", line)], lines
        rig.poll(lambda: mount.status()["remote"]["nodes"]["silent_s"] > LEASE_S, 60, "the time of silence")
        assert not reply["settled"] and reply["waits_for"].endswith("): is silent"), reply
        done = mount.verb("nodes", "settle", "--timeout", "1s", mount.mnt, code=3)
        assert done.stderr.splitlines()[-1].startswith("cairn nodes: timed out: waits for "), done
        settles = subprocess.Popen([mount.binary, "nodes", "settle", mount.mnt], stderr=subprocess.PIPE, text=True, start_new_session=True)
        assert settles.stderr.readline().startswith("waits for ")
        assert settles.poll() is None and not os.path.exists(os.path.join(mount.store, "rejoined"))
    finally:
        silent.go_on()
        other.go_on()
    settles.communicate(timeout=120)
    assert settles.returncode == 0 and f"group {settles.pid} " in rig.read_text(os.path.join(mount.store, "rejoined"))
    assert look(mount)["settled"]
    wait_for(mount, {each.store: "lives" for each in (silent, other, mount)})
    rig.poll(lambda: shown(mount)[0].startswith("All is well: 3 nodes"), 60, "all to be well")


def own_epoch(reply, mount):
    (stay,) = (stay for stay in reply["nodes"] if mount.store in stay["holder"])
    return stay["epoch"]


def feeds_behind(shared, epoch, cut):
    """Names of the feeds of a stay that no head has, the oldest first."""
    names = [re.fullmatch(r"feeds/([0-9a-f]{16})-([0-9a-f]{16})", name) for name in shared.names("feeds")]
    return sorted(name[0] for name in names if name and int(name[2], 16) == epoch and int(name[1], 16) > cut)


def test_a_node_whose_feeds_are_not_counted_is_named_with_the_reason(node, shared):
    """One of its feeds is gone from the prefix, and another one follows it. The node that merges is away meanwhile."""
    mounts = [node(lease="60s"), node(lease="60s")]
    wait_for(mounts[0], {mount.store: "lives" for mount in mounts})
    rig.poll(lambda: look(mounts[0])["union"]["head"] > 0, 30, "a union")
    (asked,) = (mount for mount in mounts if not look(mount)["union"]["merged_here"])
    (merger,) = (mount for mount in mounts if mount != asked)
    epoch = own(asked)["epoch"]
    rig.poll(lambda: own(asked)["merged"] > 0 or own(asked)["round"] > 0, 30, "a feed")
    merger.pause()
    try:
        cut = look(asked)["union"]["round"]
        for number in range(60):
            rig.write_file(f"{asked.mnt}/file-{number}", b"x")
            feeds = feeds_behind(shared, epoch, cut)
            if len(feeds) > 1:
                break
            time.sleep(1)  # the next file is of another round, and so of another feed
        shared.delete(feeds[0])
        rig.poll(lambda: "not_counted" in own(asked), 30, "the reason")
        stay, reply = own(asked), look(asked)
        assert stay["state"] == "silent" and "it follows another feed" in stay["not_counted"], stay
        assert reply["union"]["held_back_by"] == epoch
        lines = shown(asked)
        assert f"(epoch {epoch}) holds the union back" in lines[0] and lines[0].endswith(f": {stay['not_counted']}."), lines
        assert lines[-1] == f"what epoch {epoch} tells is not counted: {stay['not_counted']}"
    finally:
        merger.go_on()


def test_a_remote_that_cannot_be_read_is_told(node, shared):
    mount = node()
    look(mount)
    writers = os.path.join(shared.path, "writers")
    os.rename(writers, writers + "-away")
    rig.write_file(writers, b"no directory")
    try:
        done = mount.cairn("nodes", mount.mnt)
        assert done.returncode == 1 and "the remote cannot be read: " in done.stderr, done
    finally:
        os.remove(writers)
        os.rename(writers + "-away", writers)
    assert own(mount)["state"] == "lives"


def test_other_mounts_have_no_nodes(cairn, mnt):
    for words in (["list", mnt], ["rejoin", mnt]):
        done = cairn.cairn("nodes", *words)
        assert done.returncode == 1 and "is not one of several nodes" in done.stderr, done
    assert json.loads(cairn.verb("nodes", "aside", "--json", mnt).stdout) == []
    assert cairn.verb("nodes", "aside", mnt).stdout == "nothing was set aside\n"


def test_what_is_aside_is_listed_and_can_be_read(cairn, mnt):
    """A tree of hard links to the store, as going back makes it."""
    rig.write_file(mnt + "/kept", rig.noise(1, 300_000))
    cairn.umount()
    aside = os.path.join(cairn.store, "aside")
    os.mkdir(aside)
    generations = [2, 10, 11, 100, 101, 1000]
    for generation in generations:
        rig.run("sh", "-c", f"mkdir {aside}/new && for f in $(ls {cairn.store}); do [ $f = aside ] || cp -al {cairn.store}/$f {aside}/new/; done")
        os.rename(f"{aside}/new", f"{aside}/{generation}")
    os.mkdir(f"{aside}/new")  # one that was not finished
    rig.write_file(f"{aside}/2/extra", b"y" * 5000)
    listed = json.loads(cairn.verb("nodes", "aside", "--json", cairn.store).stdout)
    assert [one["generation"] for one in listed] == generations
    assert [one["only_there_bytes"] for one in listed] == [5000, 0, 0, 0, 0, 0] and all(one["bytes"] > 300_000 for one in listed)
    lines = cairn.verb("nodes", "aside", cairn.store).stdout.splitlines()
    assert len(lines) == 9 and max(map(len, lines)) <= 100, lines
    command = lines[-1].removeprefix("read one: cairn ").split()
    assert command == ["ls", f"{aside}/1000:/"] and cairn.verb(*command).stdout == "kept\n"
    os.makedirs(mnt, exist_ok=True)
    cairn.mount()
    assert [one["generation"] for one in json.loads(cairn.verb("nodes", "aside", "--json", mnt).stdout)] == generations


def test_a_group_rejoins(node):
    mount = node()
    assert look(mount)["settled"] and "waits_for" not in look(mount)
    path = os.path.join(mount.store, "rejoined")
    mount.verb("nodes", "rejoin", mount.mnt)
    assert f"group {os.getpgrp()} " in rig.read_text(path)
    # In a PID namespace of its own: there its number is another process's.
    script = f"echo $$ $(cut -d' ' -f5 /proc/self/stat); {mount.binary} nodes rejoin {mount.mnt}"
    inner = rig.run("unshare", "--pid", "--fork", "--mount-proc", "setsid", "--wait", "sh", "-c", script)
    assert len(rig.read_text(path).splitlines()) == 5, (inner, rig.read_text(path))
    leader = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    mount.verb("nodes", "rejoin", mount.mnt, str(leader.pid))
    assert f"group {leader.pid} " in rig.read_text(path)
    leader.communicate(b"\n")
    assert "sees no such process" in mount.verb("nodes", "rejoin", mount.mnt, str(leader.pid), code=1).stderr
    for words in (["0"], ["x"], ["1", "2"]):
        mount.verb("nodes", "rejoin", mount.mnt, *words, code=2)

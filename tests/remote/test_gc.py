# SPDX-License-Identifier: Apache-2.0
"""What nothing needs leaves the remote; what anything may need stays."""
import os
import time

import pytest

import remote as remotes
import rig

GRACE = "1s"
CONSTANT = 8 * rig.MIB  # heads and runs of the last grace, one pack that is half full


@pytest.fixture
def node(on_remote, remote):
    """A mounted store with a short grace."""
    return on_remote(remote, gc_grace=GRACE).mount()


def save(node, name, size, rng):
    data = rng.randbytes(size)
    rig.write_file(os.path.join(node.mnt, name), data)
    return data


def live_bytes(content):
    return sum(len(data) for data in content.values())


def check(mnt, content):
    assert sorted(os.listdir(mnt)) == sorted(content)
    rig.check_files(mnt, content)


def check_copy(node, content):
    """A fresh node on a copy of the remote as it is now shows this content."""
    fresh = node.fresh(remote=node.remote.copy())
    fresh.mount(takeover=True)  # the copied lease is young
    try:
        check(fresh.mnt, content)
    finally:
        fresh.umount()


def packs(remote):
    return {name: size for name, size in remote.names("packs/").items() if not os.path.basename(name).startswith(".")}


def settle(node, condition, what, timeout=60):
    """A change makes the uploader tell what it deleted; gc comes each second."""
    rig.poll(condition, timeout, what, 0.2)


def gc(node, *flags):
    return node.verb("gc", *flags, node.mnt).stdout


def keep_last_two(node, rng, steps, size=6 * rig.MIB, after=lambda content: None):
    content = {}
    for step in range(steps):
        name = f"step{step}"
        content[name] = save(node, name, size, rng)
        if step >= 2:
            os.unlink(os.path.join(node.mnt, f"step{step - 2}"))
            del content[f"step{step - 2}"]
        node.wait_remote()
        after(content)
    return content


def test_objects_and_bytes_stay_bounded(node, rng):
    most = {"bytes": 0, "objects": 0}

    def look(content):
        time.sleep(0.3)
        most["bytes"] = max(most["bytes"], node.remote.bytes())
        most["objects"] = max(most["objects"], len(node.remote.names()))

    content = keep_last_two(node, rng, 16, after=look)
    limit = 2.5 * live_bytes(content) + CONSTANT
    # While it runs, what was superseded within the grace, and until the next pass, is there too.
    assert most["bytes"] <= limit + 8 * 6 * rig.MIB, most
    settle(node, lambda: node.remote.bytes() <= limit, f"at most {limit} bytes")
    settle(node, lambda: len(node.remote.names()) <= 24, "few objects")
    settle(node, lambda: len(node.remote.heads()) == 1, "one head")
    check_copy(node, content)


def test_right_after_every_gc(node, rng):
    def look(content):
        gc(node)
        check_copy(node, content)

    keep_last_two(node, rng, 6, size=3 * rig.MIB, after=look)


def test_all_that_a_head_names_is_there(node, rng):
    """The moment at which the remote is said to have it."""
    keep_last_two(node, rng, 5, size=2 * rig.MIB, after=lambda content: check_copy(node, content))


def test_nothing_goes_before_the_head_that_drops_it(on_remote, remote, rng):
    """While the upload of the next state is under way, the remote shows the one before."""
    node = on_remote(remote, gc_grace=GRACE, upload_limit="8M", upload_threads=1).mount()
    old = {"f": save(node, "f", 2 * rig.MIB, rng)}
    node.wait_remote()
    before = set(packs(remote))
    new = {"f": save(node, "f", 60 * rig.MIB, rng)}
    rig.poll(lambda: set(packs(remote)) - before, 20, "the next upload")
    time.sleep(1.5)  # longer than the grace: time in which nothing of the old state may go
    check_copy(node, old)
    node.wait_remote()
    check_copy(node, new)


def test_small_packs_are_merged(node, rng):
    content = {}
    for number in range(60):
        content[f"f{number}"] = save(node, f"f{number}", 40000, rng)
        node.wait_remote()
    settle(node, lambda: len(packs(node.remote)) <= 24, "few packs")
    uploaded = node.remote_status()["uploaded_bytes_total"]
    assert uploaded <= 6 * live_bytes(content) + 4 * rig.MIB, uploaded
    check_copy(node, content)


def test_mostly_dead_packs_are_rewritten(node, rng):
    """One file of many stays from each pack."""
    content = {}
    for turn in range(4):
        for number in range(16):
            content[f"t{turn}-{number}"] = save(node, f"t{turn}-{number}", rig.MIB, rng)
        node.wait_remote()
    for name in list(content):
        if not name.endswith("-0"):
            os.unlink(os.path.join(node.mnt, name))
            del content[name]
    node.wait_remote()
    save_more = lambda: content.update(last=save(node, "last", 20000, rng))  # noqa: E731
    save_more()
    node.wait_remote()
    settle(node, lambda: node.remote.bytes() <= 2.5 * live_bytes(content) + CONSTANT, "few bytes")
    check_copy(node, content)


def test_leftovers_of_dead_writers_go(node, rng):
    content = {"a": save(node, "a", rig.MIB, rng)}
    node.wait_remote()
    strange = {"packs/0001000002000001": b"x" * 8192, "runs/0001000002000002": b"y" * 500, "probe/00000000deadbeef": b"p" * 64}
    kept = {"packs/note.txt": b"of another program", "other/thing": b"too"}
    for name, data in {**strange, **kept}.items():
        node.remote.put(name, data)
    settle(node, lambda: not set(strange) & set(node.remote.names()), "the leftovers to go")
    assert set(kept) <= set(node.remote.names())
    check_copy(node, content)


def test_nothing_goes_within_the_grace(on_remote, remote, rng):
    node = on_remote(remote, gc_grace="1h").mount()
    content = {}
    seen = set()
    for number in range(4):
        content["f"] = save(node, "f", rig.MIB, rng)
        node.wait_remote()
        seen |= {name for name in remote.names() if name.startswith(("heads/", "packs/", "runs/"))}
    assert "remote: deleted" not in gc(node)
    assert seen <= set(remote.names())


def test_dry_run_says_what_and_why(on_remote, remote, rng):
    node = on_remote(remote, gc_grace="5s", reduce="fast").mount()  # else what is deleted may stay, for others are stored by it
    rig.write_file(os.path.join(node.mnt, "other"), rig.seeded_bytes(1, rig.MIB))  # nothing is stored by what it had
    node.wait_remote()
    os.unlink(os.path.join(node.mnt, "other"))
    # S3 tells when a head was put in whole seconds: only one that is a second younger is certainly from after a pack was doomed.
    content = keep_last_two(node, rng, 4, size=rig.MIB, after=lambda content: time.sleep(1.1))
    for _ in range(5):
        node.kill9()
        time.sleep(6)
        node.mount()
        before = set(remote.names())
        said = gc(node, "--dry-run")
        if "would delete" in said:
            break
        content["again"] = save(node, "again", rig.MIB, rng)  # on a slow machine the daemon's own gc came before
        node.wait_remote()
    assert "would delete" in said and "no head has needed it" in said, said
    gone = {word.rstrip(",") for line in said.splitlines() if line.startswith("remote: would") for word in line.split()[3:4]}
    assert gone and gone <= before, said
    time.sleep(0.2)
    settle(node, lambda: not gone & set(remote.names()), "all that was announced to go")
    check_copy(node, content)


def test_a_missing_pack_is_stored_again(node, rng):
    content = {"a": save(node, "a", 3 * rig.MIB, rng)}
    node.wait_remote()
    for name in packs(node.remote):
        node.remote.delete(name)
    settle(node, lambda: packs(node.remote), "the pack to come back")
    settle(node, lambda: node.remote_status()["behind_bytes"] == 0, "all to be there")
    time.sleep(0.5)
    check_copy(node, content)


@pytest.mark.parametrize("turn", range(3))
def test_killed_while_collecting(node, rng, turn):
    content = {}
    for step in range(8):
        content = {**content, f"step{step}": save(node, f"step{step}", 2 * rig.MIB, rng)}
        if step >= 2:
            os.unlink(os.path.join(node.mnt, f"step{step - 2}"))
            del content[f"step{step - 2}"]
        node.wait_remote()
        time.sleep(rng.random() * 1.5)
        node.kill9()
        check_copy(node, content)
        rig.file_systems_unmount(node.mnt)
        node.mount()
    check(node.mnt, content)


def test_a_fenced_writer_deletes_nothing(on_remote, remote, rng):
    """Paused until another has taken over and has published what the first does not know."""
    first = on_remote(remote, gc_grace=GRACE, lease="1s").mount()
    content = keep_last_two(first, rng, 4, size=rig.MIB)
    first.pause()
    with first.elsewhere(takeover=True) as second:
        check(second.mnt, content)
        for number in range(3):
            content[f"new{number}"] = save(second, f"new{number}", 2 * rig.MIB, rng)
            second.wait_remote()
    time.sleep(2.5)  # all of it is past the grace
    before = set(remote.names())
    first.go_on()
    time.sleep(5)
    gone = {name for name in before - set(remote.names()) if not name.startswith("lease/")}
    assert not gone, gone
    rig.poll(lambda: first.remote_status()["state"] == "fenced", 20, "the first to see that it is fenced")
    check_copy(second, content)


def test_gc_ends_where_the_remote_went(on_remote, directory):
    """Uploads are tried again without end, and a pass comes behind them: a job that runs gc every night must not hang on that."""
    remote = remotes.DirRemote(os.path.join(directory, "remotes"))
    node = on_remote(remote, lease="4s", remote_timeout="2s").mount()
    node.write("first", b"1", "remote")
    os.rename(remote.path, remote.path + ".aside")
    node.write("second", b"2" * 5000)
    rig.poll(lambda: node.status()["remote"]["state"] == "unreachable", 60, "the remote to be unreachable")
    said = node.verb("gc", node.mnt, code=1, timeout=60 * rig.PATIENCE)
    assert "it cannot be reached now" in said.stdout, said
    os.rename(remote.path + ".aside", remote.path)
    node.wait_remote()
    node.verb("gc", node.mnt)

# SPDX-License-Identifier: Apache-2.0
"""-o keep: states of a remote that stay for longer than the grace, whole, and nothing else beside them."""
import contextlib
import json
import os
import re
import shutil
import struct
import time

import pytest

import by_reference
import remote as remotes
import rig
import trained
from remote import runs_of

pytestmark = [pytest.mark.needs_mount, pytest.mark.timeout(240)]

GRACE = 1  # seconds
SMALL = {"stage": "128M", "writeback_delay": "50ms", "reduce": "dense", "reduce_after": "0s", "gc_grace": f"{GRACE}s", "lease": "2s"}


def cut_of(head):
    return struct.unpack_from("<Q", head, 104)[0]


def top(mount, *below):
    return os.path.join(mount.mnt, ".history", *below)


def tree(path):
    """What is below it, whole."""
    found = [os.path.join(directory, name) for directory, _, names in os.walk(path) for name in names]
    return {os.path.relpath(name, path): rig.read_file(name) for name in found if not os.path.islink(name)}


class Kept:
    """A writer, and the tree of every state that it published, by its cut: heads that follow each other with one cut are one state."""

    def __init__(self, node, directory):
        self.node, self.directory = node, directory
        self.tree, self.states, self.seen = {}, {}, {}
        self.steps = [({}, None)]  # since the last one that is durable: each tree, and the name that the step to it changed

    @property
    def remote(self):
        return self.node.remote

    def note(self, name=None):
        self.steps.append((dict(self.tree), name))

    def note_durable(self):
        self.steps = [(dict(self.tree), None)]

    def put(self, name, seed, size=400_000):
        data = trained.trained_bytes(seed, size)
        path = os.path.join(self.node.mnt, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        rig.write_file(path, data)
        self.tree[name] = data
        self.note(name)

    def bring_back(self, state, name, data, by_command):
        """By reference, over what is there."""
        path = os.path.join(self.node.mnt, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if by_command:
            self.node.verb("restore", *self.remote.flags(), "--replace", "--at", state, path)
        else:
            by_reference.copy(top(self.node, state, name), path)
        self.tree[name] = data
        self.note(name)

    def remove(self, name):
        os.unlink(os.path.join(self.node.mnt, name))
        del self.tree[name]
        self.note()

    def rename(self, name, new):
        os.rename(os.path.join(self.node.mnt, name), os.path.join(self.node.mnt, new))
        self.tree[new] = self.tree.pop(name)
        self.note()

    def truncate(self, name, size):
        os.truncate(os.path.join(self.node.mnt, name), size)
        self.tree[name] = self.tree[name][:size]
        self.note()

    def sync(self):
        rig.sync(self.node.mnt)
        self.note_durable()

    def find_after_power_loss(self):
        """What is there is a tree that is no older than the last durable one; of the step behind it a part may be there: the beginning of a
        file. Returns how many steps are lost."""
        for directory, _, names in os.walk(self.node.mnt):
            for name in names:
                if re.search(r"\.cairn-\d+-\d+$", name):  # what a restore had not named yet
                    os.unlink(os.path.join(directory, name))
        found = tree(self.node.mnt)

        def is_part(before, after, name):
            others = [{other: data for other, data in one.items() if other != name} for one in (found, before)]
            return name in found and after[name].startswith(found[name]) and others[0] == others[1]

        last = [step for step, (before, _) in enumerate(self.steps) if before == found]
        last += [step for step in range(len(self.steps) - 1) if is_part(self.steps[step][0], *self.steps[step + 1])]
        assert last, (sorted(found), [(name, sorted(known)) for known, name in self.steps])
        lost = len(self.steps) - 1 - max(last)
        self.tree = found
        return lost

    def publish(self):
        """The tree is a state; its cut."""
        self.node.wait_remote()
        self.note_durable()
        heads = self.look()
        cut = cut_of(heads[max(heads)])
        self.states[cut] = dict(self.tree)
        return cut

    def look(self):
        heads = self.remote.heads()
        self.seen.update((number, cut_of(head)) for number, head in heads.items() if runs_of(head))
        return heads

    def cuts(self, heads=None):
        """Of the heads that are there, in order, each once."""
        heads = self.look() if heads is None else heads
        return list(dict.fromkeys(cut_of(heads[number]) for number in sorted(heads) if runs_of(heads[number])))

    def gc(self):
        return self.node.verb("gc", self.node.mnt).stdout

    def settle(self, count, named=0):
        """Nothing but the policy's states and those with names stays: of each one head, of those with names perhaps also that by which
        another writer took over; all runs that one of them names, and no other."""

        def is_settled():
            self.gc()
            heads = self.look()
            with_state = {number: head for number, head in heads.items() if runs_of(head)}
            of_heads = {run for head in heads.values() for run in runs_of(head)}
            runs = {int(name[-16:], 16) for place in ("runs", "copies") for name in self.remote.names(f"{place}/")
                    if not os.path.basename(name).startswith(".")}
            assert of_heads <= runs or self.remote.heads() != heads, of_heads - runs
            few = len(heads) == len(with_state) == len(self.cuts(heads)) <= count if named == 0 else len(heads) <= count + 2 * named
            return few and runs == of_heads

        rig.poll(is_settled, 60, f"{count} states", 0.5)

    def expected(self, count):
        """The cuts of the newest states that were ever seen."""
        return list(dict.fromkeys(self.seen[number] for number in sorted(self.seen)))[-count:]

    def shown(self, *args):
        out = os.path.join(self.directory, "out")
        shutil.rmtree(out, ignore_errors=True)
        os.mkdir(out)
        self.node.verb("cp", "-r", *self.remote.flags(), *args, self.remote.spec("/"), out)
        return tree(out)

    def browsed_names(self):
        """{a name in .history: the number of its head} of states that are known: by number, and by time."""
        heads = {number: head for number, head in self.look().items() if runs_of(head) and cut_of(head) in self.states}
        told = json.loads(self.node.verb("history", *self.remote.flags(), "--json", self.node.mnt).stdout)["states"]
        times = {state["time"]: state["head"] for state in reversed(told) if "time" in state}  # of several in one second, the newest
        return {**{str(number): number for number in heads}, **{time: head for time, head in times.items() if head in heads}}

    def check_browsed(self, mount, rng, named):
        """`.history` of this mount, or of another, shows the trees of the states, by number and time, and of some with a name."""
        listed, names = os.listdir(top(mount)), self.browsed_names()
        for name in rng.sample(sorted(names), min(3, len(names))):
            assert name in listed or name.isdigit() or names[name] not in self.remote.heads(), (name, listed)
            rig.poll(lambda name=name: self.is_shown(mount, name), 10, f"the state of {name}")
        for name in rng.sample(sorted(named), min(2, len(named))):
            assert tree(top(mount, name)) == named[name], name

    def is_shown(self, mount, name):
        """Or its time is over. A time may stand for a head that went a moment ago, until the mount lists again: the next one has that name."""
        head = self.browsed_names().get(name)
        with contextlib.suppress(OSError):
            shown = tree(top(mount, name))
            if shown or (head and not self.states[self.seen[head]]):  # os.walk() passes over a directory that cannot be listed
                assert shown in self.states.values(), name
                return head is None or shown == self.states[self.seen[head]]
        return head is None or head not in self.remote.heads()

    def check_elsewhere(self, rng, named):
        """The same on a node that has nothing of it yet."""
        with self.node.elsewhere(ro=True) as reader:
            self.check_browsed(reader, rng, named)
            assert tree(reader.mnt) == self.tree
        shutil.rmtree(reader.root)

    def evict(self):
        """True: nothing but the newest names is on NVMe."""
        self.publish()
        return self.node.cairn("evict", self.node.mnt).returncode == 0

    def check(self, least):
        """Each head that is there shows the tree of its state. A state of which nothing is known is one between two changes."""
        heads, checked = self.look(), set()
        for number in sorted(heads, reverse=True):
            cut = cut_of(heads[number])
            if cut in checked or cut not in self.states or not runs_of(heads[number]):
                continue
            try:
                shown, expected = self.shown("--at", str(number)), self.states[cut]
            except AssertionError:
                if number not in self.remote.heads():
                    continue  # its time was over
                raise
            checked.add(cut)
            assert sorted(shown) == sorted(expected), number
            assert not [name for name in shown if shown[name] != expected[name]], number
        assert len(checked) >= least, (len(checked), len(heads))


@pytest.fixture
def kept(on_remote, remote, directory):
    return Kept(on_remote(remote, **SMALL), directory)


def checkpoints(kept, count, first=0):
    """Each replaces the one before."""
    for step in range(first, first + count):
        kept.put("latest.pt", step)
        kept.publish()


def test_the_newest_states_stay(kept):
    """Also where what they need was deleted, renamed, written over and truncated since."""
    kept.node.mount(keep="last:5")
    kept.put("step1/model.pt", 1)
    kept.put("step1/optimizer.pt", 2)
    kept.publish()
    kept.put("step2/model.pt", 3)
    kept.publish()
    kept.remove("step1/model.pt")
    kept.publish()
    kept.rename("step2/model.pt", "best.pt")
    kept.publish()
    kept.truncate("step1/optimizer.pt", 5000)
    kept.publish()
    time.sleep(GRACE + 0.5)
    kept.settle(5)
    assert kept.cuts() == kept.expected(5)
    kept.check(3)
    checkpoints(kept, 6)
    kept.settle(5)
    assert kept.cuts() == kept.expected(5)
    kept.check(4)


def test_what_stays_is_no_more_than_it_needs(kept):
    """States that share nothing: the remote holds what so many live ones hold."""
    size = 2 * rig.MIB
    kept.node.mount(keep="last:4", reduce="fast")
    for step in range(9):
        kept.tree["latest.pt"] = data = rig.seeded_bytes(step, size)
        rig.write_file(os.path.join(kept.node.mnt, "latest.pt"), data)
        kept.publish()
    kept.settle(4)
    kept.check(2)
    count = len({kept.states[cut]["latest.pt"] for cut in kept.cuts() if cut in kept.states})

    def packs():
        kept.gc()
        return sum(kept.remote.names("packs/").values())

    rig.poll(lambda: packs() <= (count + 1) * size * 1.03, 30, f"{count} states' bytes", 0.5)
    assert packs() >= count * size
    status = kept.node.status()["remote"]
    assert status["kept_states"] == 4
    assert status["kept_bytes"] + status["pack_bytes"] == packs()
    told = json.loads(kept.node.verb("history", *kept.remote.flags(), "--json", kept.node.mnt).stdout)["states"]
    only = [state["only_bytes"] for state in told]  # the newest first, which is live
    assert len(only) >= 4 and sum(only[1:]) <= status["kept_bytes"] and all(not n or n >= size for n in only), only
    alone = count - 1 - (4 - count)  # a slow upload publishes one content with two heads; the newest content is live
    assert sum(only[1:]) >= alone * size, (count, only)
    assert alone <= 0 or "MiB of it alone" in kept.node.verb("history", *kept.remote.flags(), kept.node.mnt).stdout


def test_what_a_state_is_stored_by_stays(kept):
    """Chunks of versions before it, which no state that stays has itself, and no file of now."""
    kept.node.mount(keep="none")
    for seed in range(3):
        kept.tree["latest.pt"] = data = trained.trained_bytes(seed, 4 * rig.MIB, True)
        rig.write_file(os.path.join(kept.node.mnt, "latest.pt"), data)
        kept.publish()
    assert sum(kept.remote.names("packs/").values()) < 0.4 * 3 * len(data)
    kept.node.verb("snapshot", "create", kept.node.mnt, "whole")
    kept.remove("latest.pt")
    for seed in range(3):
        kept.put("other", seed, 4000)
        kept.publish()
        time.sleep(GRACE + 0.5)  # gc deletes only objects that are older
        kept.gc()
    kept.settle(1, 1)
    assert kept.shown("--at", "whole") == {"latest.pt": data}


def test_without_the_option_it_is_what_the_mount_before_said(kept):
    """On any node; `none` ends it."""
    kept.node.mount(keep="last:3")
    checkpoints(kept, 5)
    kept.node.umount(drain="remote")
    fresh = Kept(kept.node.fresh(), kept.directory)
    fresh.tree, fresh.states, fresh.seen = kept.tree, kept.states, kept.seen
    fresh.node.mount(takeover=True)
    checkpoints(fresh, 4, 10)
    time.sleep(GRACE + 0.5)
    fresh.settle(3)
    fresh.check(2)
    fresh.node.umount(drain="remote")
    fresh.node.mount(keep="none")
    fresh.put("more", 99)
    fresh.publish()
    time.sleep(GRACE + 0.5)
    fresh.settle(1)
    fresh.node.umount()


def test_a_taker_over_keeps_what_the_one_before_left(kept):
    """It only knows since when packs are unreferenced, not from which head on."""
    kept.node.mount(keep="last:6")
    checkpoints(kept, 6)
    kept.node.umount(drain="remote")
    fresh = Kept(kept.node.fresh(), kept.directory)
    fresh.tree, fresh.states, fresh.seen = kept.tree, kept.states, kept.seen
    fresh.node.mount(takeover=True)
    time.sleep(GRACE + 0.5)
    for _ in range(3):
        fresh.gc()
    fresh.check(4)
    fresh.node.umount()


def test_a_head_that_is_damaged_costs_no_other(kept, rng):
    kept.node.mount(keep="last:8")
    checkpoints(kept, 6)
    heads = kept.look()
    damaged = sorted(heads)[len(heads) // 2]
    kept.node.umount(drain="remote")  # the next mount has to read them
    kept.remote.corrupt(f"heads/{damaged:016x}", rng)
    kept.node.mount()
    time.sleep(GRACE + 0.5)
    for _ in range(3):
        kept.gc()
    assert f"head {damaged} cannot be read" in kept.node.log()
    kept.remote.delete(f"heads/{damaged:016x}")
    kept.check(4)


@pytest.mark.parametrize("keep, says", [
    ("yearly:1", "'yearly:1' is no rule"),
    ("last", "'last' is no rule"),
    ("last:0", "no number from 1 to 1000"),
    ("last:1,last:2", "last is given twice"),
    ("", "empty value"),
])
def test_a_policy_that_does_not_parse(kept, keep, says):
    done = kept.node.verb("mount", kept.node.store, kept.node.mnt, "-o", kept.node.option_string({"keep": keep}), code=1)
    assert says in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_where_no_policy_can_be(on_remote, remote):
    node = on_remote(remote, **SMALL)
    refused = node.verb("mount", node.store, node.mnt, "-o", node.option_string({"keep": "last:1", "nodes": True}), code=1).stderr
    assert "keep and nodes exclude each other" in refused


# --- campaign --------------------------------------------------------------------------------------------------------------------------

ROUNDS = 1000


def change(kept, rng, step, named):
    names, states = sorted(kept.tree), sorted(state for state in named if named[state])
    what = rng.choice(["put"] * 4 + ["over", "remove", "rename", "truncate", "back"])
    if what == "back" and states:
        state = rng.choice(states)
        name = rng.choice(sorted(named[state]))
        kept.bring_back(state, name, named[state][name], rng.random() < 0.5)
    elif what == "put" or not names:
        kept.put(f"run/step{step}.pt", rng.randrange(1 << 30), rng.randrange(1, 900_000))
    elif what == "over":
        kept.put(rng.choice(names), rng.randrange(1 << 30), rng.randrange(1, 900_000))
    elif what == "remove" or len(names) > 8:
        kept.remove(rng.choice(names))
    elif what == "rename":
        kept.rename(rng.choice(names), f"run/renamed{step}.pt")
    else:
        name = rng.choice(names)
        kept.truncate(name, rng.randrange(len(kept.tree[name]) + 1))


def choose_policy(rng):
    """And how many states it keeps at most: a campaign sees one full hour or day begin, or none."""
    last = rng.randrange(3, 9)
    return rng.choice([(f"last:{last}", last), (f"last:{last},hourly:24,daily:7", last + 1), ("hourly:6,daily:7,weekly:4", 2)])


def restart(kept, rng, named, options):
    """The daemon dies, or the power does, or another node takes over. Returns how many steps are lost."""
    what = rng.choice(["kill", "power", "power", "umount", "view", "node"])
    for number in range(rng.randrange(4) if what == "power" else 0):
        change(kept, rng, f"-late{number}", named)
    if what in ("kill", "power"):
        kept.node.kill9()
    else:
        kept.node.umount(drain="remote")
    if what == "power":
        kept.node.drop_stage()
    if what == "view":
        kept.node.delete_view()
    if what == "node":
        kept.node = kept.node.fresh()
    kept.node.mount(**options, **({"takeover": True} if what == "node" else {}))
    return kept.find_after_power_loss() if what == "power" else 0


def name_state(kept, rng, named):
    """The state of now gets a name, or another one gets another name, or loses it."""
    what = rng.choice(["create", "create", "rename", "delete"]) if named else "create"
    if what == "create" and len(named) < 6:
        name = f"s{rng.randrange(1 << 30)}"
        kept.node.verb("snapshot", "create", kept.node.mnt, name)
        named[name] = dict(kept.tree)
    elif what == "rename":
        old, new = rng.choice(sorted(named)), f"r{rng.randrange(1 << 30)}"
        kept.node.verb("snapshot", "rename", kept.node.mnt, old, new)
        named[new] = named.pop(old)
    elif named:
        name = rng.choice(sorted(named))
        kept.node.verb("snapshot", "delete", kept.node.mnt, name)
        del named[name]
    kept.publish()


def check_named(kept, named):
    assert all(kept.shown("--at", name) == tree for name, tree in named.items())


@pytest.mark.timeout(600)
@pytest.mark.pieces(10)
def test_campaign(on_remote, directory, rng, piece):
    """What stays is the policy's, whole, whatever was changed, collected, evicted, killed and taken over; what else there was goes. So says
    `cairn cp --at`, and so does .history: of the mount that went on, and of a node that has nothing yet."""
    kept = Kept(on_remote(remotes.DirRemote(os.path.join(directory, "remotes")), **SMALL), directory)
    full = piece.count > 1
    keep, count = choose_policy(rng)
    kept.node.mount(keep=keep)
    named, evicted, lost = {}, 0, 0
    for step in range(piece.share(ROUNDS) if full else ROUNDS // 10):
        change(kept, rng, step, named)
        if rng.random() < 0.1:
            kept.sync()
        if rng.random() < 0.6:
            kept.publish()
        if rng.random() < 0.3:
            kept.gc()
        if rng.random() < 0.08:
            options = {"writeback_delay": rng.choice(["50ms", "2s"])}
            if rng.random() < 0.3:
                options["keep"], count = choose_policy(rng)
            lost += restart(kept, rng, named, options)
            kept.publish()
            kept.check_browsed(kept.node, rng, named)
        if rng.random() < 0.1:
            name_state(kept, rng, named)
        if rng.random() < 0.06:
            evicted += kept.evict()
        if rng.random() < 0.06:
            kept.publish()
            kept.check(1)
            check_named(kept, named)
        if rng.random() < 0.03:
            kept.publish()
            kept.check_elsewhere(rng, named)
        if rng.random() < 0.03:
            kept.node.remount()  # states that are open stay for a minute
            kept.settle(count, len(named))
    evicted += kept.evict()
    assert evicted
    kept.node.remount()
    kept.settle(count, len(named))
    kept.check(1)
    check_named(kept, named)
    kept.check_browsed(kept.node, rng, named)
    kept.check_elsewhere(rng, named)
    assert tree(kept.node.mnt) == kept.tree
    kept.node.umount(drain="remote")
    print(f"{lost} steps lost with the power")

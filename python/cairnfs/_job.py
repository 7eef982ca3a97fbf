# SPDX-License-Identifier: Apache-2.0
"""One order of saves for all ranks of a job: CAIRN_LAZY=1 with torch.distributed.

torch.save counts itself in the key-value store of the job before it returns, and gets a number. Files get their names in the order of
these numbers, whichever rank saves them; a rank that changes a file waits for all numbers that were given before. So a rank may learn of
a save of another rank in any way (a collective, the store, a socket, shared memory), and no collective has to wait.
docs/architecture-client.md has the proof.

Keys below "cairnfs/order": `begun` is the highest number that was given, `done` the highest that has ended. `N` is the text of save N
until it has ended, and `end/N` tells N+1 of that. `failed` lists the newest saves that failed. `lost` is the save whose process ended
without it: no number above it ends any more. `writers` counts the ranks that hold files open for writing.
"""
import collections
import datetime
import errno
import json
import os
import threading
import time

import torch.distributed as distributed

from . import _log, _process
from . import _library as lib

ANSWER = datetime.timedelta(seconds=60)  # the store is taken for dead after it
SHORT, LONG = 0.001, 0.02  # seconds between two looks at the store
WARN = 60.0  # seconds of a wait that is told
ALIVE = 1.0  # seconds between two looks whether a process lives
FAILED = 64  # failures that are told
NOTHING = "-"
COUNTERS, TEXTS = ("begun", "done", "writers"), ("failed", "lost")
RANKS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS")

_job = None
_binding = threading.RLock()
_rank = None
_inherited = None  # the store of the process that this one was forked from: its connection is not ours


class Lost(OSError):
    """A save of another rank that came before will never have its name."""


class Ticket:
    """The place of one save in the order. The thread of the job gives the name when it is its turn."""

    def __init__(self, job, number, text):
        self.job, self.number, self.text, self.save = job, number, text, None
        self.moved = threading.Event()
        self.may, self.void = False, False

    def commit(self):
        """The bytes are there: the file gets its name in its turn."""
        self.may = True
        self.moved.set()

    def end(self):
        """There is no save to wait for."""
        self.void = True
        self.moved.set()

    def over(self):
        return self.void or self.save is not None and self.save.over(lib.PUBLISHED)


class Job:
    def __init__(self, source):
        self.source = source
        self.store, self.line = connect(source), connect(source)  # a wait in one keeps the other free
        self.lock = threading.RLock()
        self.texts, self.own, self.told = {}, set(), set()
        self.queue, self.queued, self.thread = collections.deque(), threading.Condition(), None
        self.silent = 0, 0.0  # the oldest save that had not ended, and since when it is that
        self.dead = None  # why the store is no use any more
        self.writes = False
        for name in COUNTERS:
            self.store.add(name, 0)
        for name in TEXTS:
            self.store.compare_set(name, "", NOTHING)

    # --- saves of this rank

    def begin(self, place, domain):
        """A ticket for a save that is begun now; None: the store is dead."""
        text = {"place": place, "domain": domain, **identity()}
        try:
            with self.lock:
                number = self.store.add("begun", 1)
                self.own.add(number)
                self.store.set(str(number), json.dumps(text))
        except RuntimeError as why:
            self.give_up(why)
            return None
        ticket = Ticket(self, number, text)
        with self.queued:
            self.queue.append(ticket)
            self.queue = collections.deque(sorted(self.queue, key=lambda one: one.number))
            self.queued.notify_all()
            if self.thread is None:
                self.thread = threading.Thread(target=self.run, name="cairnfs-job", daemon=True)
                self.thread.start()
        return ticket

    def run(self):
        """The thread: one ticket after the other."""
        _process.quiet.on = True  # a finalizer that runs here must not wait for what only this thread can end
        while True:
            with self.queued:
                while not self.queue:
                    self.queued.wait()
                ticket = self.queue.popleft()
            try:
                why = self.dead or self.wait_turn(ticket.number)
                self.give_name(ticket, why)
                self.announce(ticket)
            except RuntimeError as error:
                self.give_up(error)
                self.give_name(ticket, self.dead)

    def wait_turn(self, number):
        """None: all saves before have ended; or why this one must not get its name."""
        looked, key = time.monotonic(), f"end/{number - 1}"
        while True:
            state = self.state(self.line)
            if number > state["lost"]["number"] > 0:
                return lost_text(state["lost"])
            if state["done"] >= number - 1:
                return None
            try:
                self.line.wait([key], datetime.timedelta(seconds=ALIVE))
            except RuntimeError:  # not yet, or the store is gone: state() tells
                pass
            if time.monotonic() > looked + ALIVE:
                looked = time.monotonic()
                self.look_for_death(self.line, state["done"] + 1)

    def give_name(self, ticket, why):
        """Waits until the save has its name, or has failed: with `why`, if there is one."""
        process, committed = _process.current(), False
        while not ticket.over():
            save = ticket.save
            if save is not None and why is not None:
                lib.library().cairn_save_fail(save.handle, -errno.ECANCELED, why.encode())
            elif ticket.may and not committed:
                committed = True
                lib.library().cairn_save_commit(save.handle)
            if committed or why is not None and save is not None:
                save.wait_slice(lib.PUBLISHED)
            else:
                ticket.moved.wait(LONG)
                ticket.moved.clear()
            process.look()

    def announce(self, ticket):
        """The turn is this rank's: no other one changes `failed` now."""
        number, save, state = ticket.number, ticket.save, self.state(self.line)
        if state["done"] != number - 1:
            return  # an earlier one is lost
        if save is not None and save.error is not None:
            failed = [*state["failed"], {**ticket.text, "number": number, "cause": save.error.strerror}]
            self.line.set("failed", json.dumps(failed[-FAILED:]))
        self.line.add("done", 1)
        self.line.set(f"end/{number}", "1")
        for key in (f"end/{number - 1}", str(number)):
            self.line.delete_key(key)

    # --- what a rank waits for

    def wait(self, concerns, changes):
        """Until the saves of other ranks have ended that were begun before, and of whose text concerns() is true. changes: raises what
        such a save failed with, once."""
        if self.dead:
            return
        try:
            state = self.wait_for(concerns)
        except RuntimeError as why:
            self.give_up(why)
            return
        if not changes:
            return
        lost = state["lost"]
        if lost["number"] and concerns(lost):
            raise Lost(errno.ECANCELED, lost_text(lost), lost["place"])
        for one in state["failed"]:
            if one["number"] not in self.own | self.told and concerns(one):
                self.told.add(one["number"])
                raise OSError(errno.ECANCELED, f"{one['place']} of another rank was not saved: {one['cause']}", one["place"])

    def wait_for(self, concerns):
        state, pause, begin = self.state(), SHORT, time.monotonic()
        looked = begin
        numbers = [number for number in range(state["done"] + 1, state["begun"] + 1) if number not in self.own]
        last = max((number for number in numbers if (text := self.text(number)) is None or concerns(text)), default=0)
        while state["done"] < last and not 0 < state["lost"]["number"] <= last:
            _process.current().look()  # saves of this rank may come before
            time.sleep(pause)
            pause = min(2 * pause, LONG)
            if time.monotonic() > looked + ALIVE:
                looked = time.monotonic()
                with self.lock:
                    self.look_for_death(self.store, state["done"] + 1)
                if looked > begin + WARN:
                    _log.once(f"waiting for {self.text(state['done'] + 1) or 'a save'} of another rank")
            state = self.state()
        return state

    def text(self, number):
        """None: not known; it may just have begun or ended."""
        if number not in self.texts:
            with self.lock:
                found = self.store.compare_set(str(number), NOTHING, NOTHING).decode()
            if found == NOTHING:
                return None
            if len(self.texts) > 10000:
                self.texts.clear()
            self.texts[number] = json.loads(found)
        return self.texts[number]

    def state(self, store=None):
        if store is None:
            with self.lock:
                return self.state(self.store)
        values = read(store)
        return {
            **{name: int(value) for name, value in zip(COUNTERS, values)},
            "failed": [] if values[3] == NOTHING else json.loads(values[3]),
            "lost": {"number": 0} if values[4] == NOTHING else json.loads(values[4]),
        }

    def look_for_death(self, store, number):
        """The process of the oldest save that has not ended may be gone."""
        text = store.compare_set(str(number), NOTHING, NOTHING).decode()
        if self.silent[0] != number:
            self.silent = number, time.monotonic()
        if text == NOTHING:  # the process may be between its number and its text
            dead, text = time.monotonic() > self.silent[1] + ANSWER.seconds, {"place": "a file", "domain": None}
        else:
            dead, text = is_dead(json.loads(text)), json.loads(text)
        if dead and self.state(store)["done"] < number <= self.state(store)["begun"]:
            store.compare_set("lost", NOTHING, json.dumps({**text, "number": number}))

    # --- what no rank can wait for

    def note_writer(self, writes):
        """This rank holds files open for writing, or does not any more. True: a rank does."""
        try:
            with self.lock:
                if writes != self.writes:
                    self.writes = writes
                    self.store.add("writers", 1 if writes else -1)
            return self.state()["writers"] > 0
        except RuntimeError as why:
            self.give_up(why)
            return writes

    def give_up(self, why):
        if self.dead is None:
            self.dead = "the store of the job is gone, so it is not known whether earlier saves of other ranks have their names"
            _log.once(f"the store of torch.distributed does not answer ({str(why).splitlines()[0]}): torch.save returns when the file is there")

    def linger(self):
        """The end of rank 0, whose process may be the one that has the store: other ranks need it until their saves have ended."""
        limit = time.monotonic() + _process.EXIT_WAIT
        try:
            while not self.dead and _rank == 0 and time.monotonic() < limit:
                state = self.state()
                if state["done"] >= state["begun"] or state["lost"]["number"]:
                    return
                self.look_for_death(self.store, state["done"] + 1)
                time.sleep(LONG)
        except RuntimeError as why:
            self.give_up(why)


def connect(source):
    """A connection of its own, where the store has connections."""
    base = source
    while isinstance(base, distributed.PrefixStore):
        base = base.underlying_store
    if isinstance(base, distributed.TCPStore) and hasattr(source, "clone"):
        source = source.clone()
        source.set_timeout(ANSWER)
    return distributed.PrefixStore("cairnfs/order", source)


def read(store):
    names = [*COUNTERS, *TEXTS]
    found = store.multi_get(names) if store.has_extended_api() else [store.get(name) for name in names]
    return [value.decode() for value in found]


def lost_text(lost):
    return f"{lost['place']} of another rank was not saved: its process ended before"


def identity():
    """Tells a process from all others of the machine."""
    return {"host": host(), "pid": os.getpid(), "began": began(os.getpid())}


def host():
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"


def began(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def is_dead(text):
    return text["host"] == host() and began(text["pid"]) != text["began"]


def current():
    """The order of the job that this process is a rank of; None: there are no other ranks, or none with a store."""
    global _job, _rank
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        source = distributed.distributed_c10d._get_default_store()
        if source is not None and source is not _inherited and (_job is None or _job.source is not source):
            bind(source)
    return _job if _job is not None and not _job.dead else None


def bind(source):
    global _job, _rank
    with _binding, _process.quietly():  # the store's own methods ask for the order of the job, which is made here
        older = _job
        if older is not None and older.source is source:
            return
        if older is not None:
            older.wait(lambda text: True, changes=False)
        try:
            _job, _rank = Job(source), distributed.get_rank()
        except RuntimeError as why:
            _log.once(f"the store of torch.distributed does not answer: {why}")


def is_hidden():
    """This process is one of several, and what they do is not seen: saves are not lazy then."""
    if current() is not None:
        return False
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size() > 1
    return any(os.environ.get(name, "1") not in ("", "0", "1") for name in RANKS)


def before_end():
    if _job is not None and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":  # torchrun has the store else
        _job.linger()


def after_fork():
    global _job, _binding, _inherited
    if distributed.is_available() and distributed.is_initialized():
        _inherited = distributed.distributed_c10d._get_default_store()
    _job, _binding = None, threading.RLock()


os.register_at_fork(after_in_child=after_fork)
_process.at_end.append(before_end)

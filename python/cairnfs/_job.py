# SPDX-License-Identifier: Apache-2.0
"""One order of saves for all ranks of a job: CAIRN_LAZY=1 with torch.distributed.

torch.save counts itself in the key-value store of the job before it returns, and gets a number. Files get their names in the order of
these numbers, whichever rank saves them; a rank that changes a file waits for all numbers that were given before. So a rank may learn of
a save of another rank in any way (a collective, the store, a socket, shared memory), and no collective has to wait.
docs/architecture-client.md has the proof.

Keys below "cairnfs/order/EPOCH":

- `begun`: the highest number that was given. `done`: the highest number whose save has ended.
- `N`: the text of save N, until it has ended. `end/N`: save N has ended; removed by the owner of N+1, who waits for it.
- `failed`: the newest saves that failed. `lost`: the save whose process ended without it; larger numbers never end in this epoch.
- `next`: the ranks have made a new process group since then, which counts from 1 again in the next epoch.
- `writers`: the number of ranks that hold files open for writing. `writes/RANK`: the process of such a rank.
- `rank/RANK`: the process that is this rank. `alive/RANK`: counts while that process has saves that have not ended.
- `left`: the number of ranks that have destroyed a group. `closed/LEFT`: all have, LEFT of them in older groups.
- `board/HOST`, `boards/RANK`, `read/RANK`, `boards`: of _board.py.
"""
import collections
import datetime
import errno
import functools
import json
import os
import threading
import time

import torch.distributed as distributed

from . import _log, _process
from ._board import Board, all_ended
from . import _library as lib

ANSWER = datetime.timedelta(seconds=60)  # the store is taken for dead after it
SHORT, LONG = 0.001, 0.02  # seconds between two looks at the store
WARN = 60.0  # seconds of a wait that is told
ALIVE = 1.0  # seconds between two looks whether a process lives
SILENT = float(os.environ.get("CAIRN_RANK_WAIT", "600"))  # seconds without a sign of life, after which a process counts as dead
LEAVE = 5.0  # seconds that destroy_process_group() waits for other ranks to call it
BEAT = min(10.0, SILENT / 4)  # seconds between two signs of life
FAILED = 64  # failures that the store remembers
NOTHING = "-"
COUNTERS, TEXTS = ("begun", "done", "writers", "boards"), ("failed", "lost", "next")
RANKS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS")

_job = None
_binding = threading.RLock()
_rank = None
_inherited = None  # the store of the process that this one was forked from: its connection is not ours


class Lost(OSError):
    """An earlier save of another rank will never have its name: its process has ended."""


class Left:
    """In the place of the store when the group is destroyed: each call fails as if the store did not answer."""

    def __getattr__(self, name):
        raise RuntimeError("the process group is destroyed")


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
    def __init__(self, source, is_new_group):
        """is_new_group: the processes have just made this group, so a loss of an older group on the same store is no affair of it."""
        self.source = source
        self.rank, self.ranks, self.me = distributed.get_rank(), distributed.get_world_size(), identity()
        self.lock = threading.RLock()  # of `store`
        self.texts, self.own, self.told = {}, set(), set()
        self.queue, self.queued, self.thread = collections.deque(), threading.Condition(), None
        self.ticket = None  # that the thread works on
        self.silent = 0, 0.0  # the oldest save that had not ended, and since when it is that
        self.heard = None, 0.0  # the last sign of life of its process, and when it came
        self.dead = None  # why the store is no use any more
        self.is_over = False  # the ranks are in the next epoch
        self.is_left = threading.Event()  # the group is destroyed, and no rank needs this order any more
        self.calm = None  # counters of the board with which nothing was left to wait for or to tell
        self.checked = 0.0  # when the board was last asked whether it is complete
        clones = clone(source), clone(source)  # a wait in one keeps the other free
        epoch = 0
        while not self.enter(clones, epoch, is_new_group):
            epoch += 1
        with self.lock:
            self.introduce()

    def enter(self, clones, epoch, is_new_group):
        """False: this epoch is over, or ends now."""
        self.store, self.line = (distributed.PrefixStore(f"cairnfs/order/{epoch}", one) for one in clones)
        for name in COUNTERS:
            self.store.add(name, 0)
        for name in TEXTS:
            self.store.compare_set(name, "", NOTHING)
        state = self.state()
        if is_new_group and state["done"] < state["begun"] and not state["next"]:
            with self.lock:
                self.store.set(f"rank/{self.rank}", json.dumps(self.me))  # another process that was this rank ends nothing more
                self.look_for_death(self.store, state["done"] + 1)
            state = self.state()
        if is_new_group and state["lost"]["number"] and not state["next"]:
            self.store.set("next", "1")
            return False
        return not state["next"]

    def introduce(self):
        """This process is the rank from now on: a registration of another process as this rank is void."""
        self.store.set(f"rank/{self.rank}", json.dumps(self.me))
        self.left_before = self.store.add("left", 0)  # by older groups, where the store is a lasting one
        held = self.store.compare_set(f"writes/{self.rank}", "", NOTHING).decode()
        self.writes = held == json.dumps(self.me)  # in an older group on this store
        if held != NOTHING and not self.writes:
            self.store.set(f"writes/{self.rank}", NOTHING)
            self.store.add("writers", -1)
        try:
            self.board = Board(self.store, self.rank, self.ranks, self.me, is_dead)
        except OSError:  # e.g. the process that made it is of another user
            self.board = None

    # --- saves of this rank

    def begin(self, place):
        """A ticket for a save that is begun now; None: the store is dead."""
        text = {"place": place, "rank": self.rank, **self.me}
        try:
            with self.lock:  # leave() either finds the ticket in the queue, or ends later tickets here
                if self.board is not None:
                    self.board.begin()
                number = self.store.add("begun", 1)
                self.own.add(number)
                self.store.set(str(number), json.dumps(text))
                ticket = Ticket(self, number, text)
                self.enqueue(ticket)
        except RuntimeError as why:
            self.give_up(why)
            return None
        return ticket

    def enqueue(self, ticket):
        with self.queued:
            self.queue.append(ticket)
            self.queue = collections.deque(sorted(self.queue, key=lambda one: one.number))
            self.queued.notify_all()
            if self.thread is None:
                self.thread = threading.Thread(target=self.run, name="cairnfs-job", daemon=True)
                self.thread.start()
                threading.Thread(target=self.beat, name="cairnfs-beat", daemon=True).start()

    def beat(self):
        """The thread that gives signs of life: the other one may wait for a fence."""
        _process.quiet.on = True
        while not self.dead and not self.is_left.wait(BEAT):
            try:
                with self.lock:
                    if not self.is_left.is_set() and (self.ticket is not None or self.queue):
                        self.store.add(f"alive/{self.rank}", 1)
            except RuntimeError as why:
                self.give_up(why)

    def run(self):
        """The thread: one ticket after the other."""
        _process.quiet.on = True  # a finalizer that runs here must not wait for a save that only this thread can end
        while True:
            with self.queued:
                while not self.queue:
                    if self.is_left.is_set():
                        return
                    self.queued.wait()
                ticket = self.ticket = self.queue.popleft()
            try:
                why = self.dead or self.wait_turn(ticket.number)
                self.give_name(ticket, why)
                self.announce(ticket)
                self.look_at_board(self.state(self.line))
            except RuntimeError as error:
                self.give_up(error)
                self.give_name(ticket, self.dead)
            self.ticket = None

    def wait_turn(self, number):
        """None: all saves before have ended; or why this one must not get its name."""
        looked, key = time.monotonic(), f"end/{number - 1}"
        while True:
            state = self.state(self.line)
            if number >= state["lost"]["number"] > 0:  # other ranks take this process for dead, if the numbers are equal
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
        if state["done"] != number - 1 or state["lost"]["number"] == number:
            return  # it is lost, or an earlier one
        if save is not None and save.error is not None:
            failed = [*state["failed"], {**ticket.text, "number": number, "cause": save.error.strerror}]
            self.line.set("failed", json.dumps(failed[-FAILED:]))
        self.line.add("done", 1)
        self.line.set(f"end/{number}", "1")
        for key in (f"end/{number - 1}", str(number)):
            self.line.delete_key(key)
        if self.board is not None:
            self.board.end()

    # --- waits for saves of other ranks

    def wait(self, concerns, changes):
        """Returns when all earlier saves of other ranks whose text satisfies concerns() have ended. changes: raises the error of one that
        failed, once."""
        board = self.board
        counters = board.others() if board is not None else None
        if self.dead or self.is_left.is_set() or self.is_calm():
            return
        try:
            state = self.wait_for(concerns)
            self.look_at_board(state)
        except RuntimeError as why:
            self.give_up(why)
            return
        if changes:
            self.raise_failures(state, concerns)
        if state["next"]:
            self.is_over = True
        elif counters is not None and all_ended(counters) and not state["lost"]["number"] and not self.untold(state):
            self.calm = counters  # read before the state: saves that they count have ended in it

    def is_calm(self):
        """No save of another rank has begun or ended since this rank had nothing to wait for, and nothing to tell."""
        board, calm = self.board, self.calm  # another thread may be in leave()
        return board is not None and calm is not None and board.others() == calm

    def look_at_board(self, state):
        board = self.board
        if board is None or board.is_complete or state["boards"] < self.ranks or time.monotonic() < self.checked + ALIVE:
            return
        self.checked = time.monotonic()
        with self.lock:
            board.complete()

    def untold(self, state):
        """Failures of other ranks."""
        return [one for one in state["failed"] if one["number"] not in self.own | self.told]

    def raise_failures(self, state, concerns):
        lost = state["lost"]
        if lost["number"] and concerns(lost):
            raise Lost(errno.ECANCELED, lost_text(lost), lost["place"])
        for one in self.untold(state):
            if concerns(one):
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
        found = {
            **{name: int(value) for name, value in zip(COUNTERS, values)},
            **{name: None if value == NOTHING else json.loads(value) for name, value in zip(TEXTS, values[len(COUNTERS) :])},
        }
        return {**found, "failed": found["failed"] or [], "lost": found["lost"] or {"number": 0}}

    def look_for_death(self, store, number):
        """The process of the oldest save that has not ended may be gone."""
        text = store.compare_set(str(number), NOTHING, NOTHING).decode()
        if self.silent[0] != number:
            self.silent = number, time.monotonic()
        if text == NOTHING:  # the process may be between its number and its text
            dead, text = time.monotonic() > self.silent[1] + ANSWER.seconds, {"place": "a file"}
        else:
            text = json.loads(text)
            dead = self.is_gone(store, text)
        if dead and self.state(store)["done"] < number <= self.state(store)["begun"]:
            store.compare_set("lost", NOTHING, json.dumps({**text, "number": number}))

    def is_gone(self, store, text):
        """The process of a save has ended, is another one as this rank, or gives no sign of life."""
        if is_dead(text) or not is_me(text, store.compare_set(f"rank/{text['rank']}", NOTHING, NOTHING).decode()):
            return True
        sign = text["rank"], text["pid"], text["began"], store.add(f"alive/{text['rank']}", 0)
        if sign != self.heard[0]:
            self.heard = sign, time.monotonic()
        return time.monotonic() > self.heard[1] + SILENT

    # --- files that are open for writing, whose changes are not seen

    def note_writer(self, writes):
        """This rank holds files open for writing, or does not any more. True: a rank does."""
        try:
            with self.lock:
                if writes != self.writes:
                    self.writes = writes
                    self.store.set(f"writes/{self.rank}", json.dumps(self.me) if writes else NOTHING)
                    self.store.add("writers", 1 if writes else -1)
                return self.state()["writers"] > 0 and any(self.has_writer(rank) for rank in range(self.ranks))
        except RuntimeError as why:
            self.give_up(why)
            return writes

    def has_writer(self, rank):
        """A process that died as a writer is still counted."""
        held, process = (self.store.compare_set(f"{key}/{rank}", NOTHING, NOTHING).decode() for key in ("writes", "rank"))
        return held not in ("", NOTHING) and is_me(json.loads(held), process) and not is_dead(json.loads(held))

    def give_up(self, why):
        if self.dead is None:
            self.dead = "the store of the job is gone, so it is not known whether earlier saves of other ranks have their names"
            if not self.is_left.is_set():
                said = f"the store of torch.distributed does not answer ({str(why).splitlines()[0]})"
                _log.once(f"{said}: torch.save returns when the file is there")

    def leave(self):
        """The group is destroyed, and all saves of this rank have ended. True: so it is on all ranks, or one of them is dead. Then the
        connections are closed. An open one would keep the server of rank 0, and with it the keys of this group for the next one."""
        limit = time.monotonic() + LEAVE
        try:
            left, closed = self.store.add("left", 1), f"closed/{self.left_before}"
            while self.rank == 0 and left < self.left_before + self.ranks and not self.state()["lost"]["number"]:
                if time.monotonic() > limit:
                    return False
                time.sleep(SHORT)
                left = self.store.add("left", 0)
            if self.rank == 0:
                self.store.set(closed, "1")
            else:
                self.line.wait([closed], datetime.timedelta(seconds=LEAVE))
        except RuntimeError:
            return self.rank == 0 or time.monotonic() < limit  # else rank 0 has closed its server
        with self.lock, self.queued:
            if self.queue or self.ticket is not None:
                return False  # another thread has begun a save meanwhile
            self.is_left.set()
            self.queued.notify_all()
            self.source = self.calm = self.board = None
            self.store = self.line = Left()  # other threads may be about to call it
        return True

    def drop_unbegun(self):
        """The process ends: a save that a thread, or the call that a signal interrupted, is about to begin has no name to wait for."""
        with self.queued:
            for ticket in [*self.queue, *filter(None, [self.ticket])]:
                if ticket.save is None:
                    ticket.end()

    def linger(self):
        """At the end of rank 0, whose process may have the server of the store: returns when the saves of all ranks have ended."""
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


def clone(source):
    """A connection of its own, where the store has connections."""
    base = source
    while isinstance(base, distributed.PrefixStore):
        base = base.underlying_store
    if isinstance(base, distributed.TCPStore) and hasattr(source, "clone"):
        source = source.clone()
        source.set_timeout(ANSWER)
    return source


def read(store):
    names = [*COUNTERS, *TEXTS]
    found = store.multi_get(names) if store.has_extended_api() else [store.get(name) for name in names]
    return [value.decode() for value in found]


def lost_text(lost):
    return f"{lost['place']} of another rank was not saved: its process ended before"


def is_me(text, identity):
    """A save was begun by the process of this identity (JSON)."""
    return identity == NOTHING or {"host": text["host"], "pid": text["pid"], "began": text["began"]} == json.loads(identity)


def identity():
    """Tells a process from all others of the machine."""
    return {"host": host(), "pid": os.getpid(), "began": began(os.getpid())}


@functools.cache
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
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        source = distributed.distributed_c10d._get_default_store()
        if source is not None and source is not _inherited and (_job is None or _job.source is not source or _job.is_over):
            bind(source, is_new_group=_job is not None and _job.source is not source)
    return _job if _job is not None and not _job.dead else None


def is_calm():
    return _job is not None and _job.is_calm()


def group_is_new():
    """The program has called init_process_group()."""
    if distributed.is_initialized() and distributed.get_world_size() > 1:
        source = distributed.distributed_c10d._get_default_store()
        if source is not None and source is not _inherited:
            bind(source, is_new_group=True)


def group_is_gone():
    """The program has called destroy_process_group()."""
    global _job
    job = _job
    if job is None or job.dead or job.is_over:
        return
    with _process.quietly():
        _process.wait_all(list(_process.current().pending), lib.PUBLISHED, None)
        job.wait(lambda text: True, changes=False)
        while (job.ticket is not None or job.queue) and not job.dead:
            time.sleep(SHORT)  # the last save has its name, and the thread is about to announce it
        if not job.dead and job.leave():
            _job = None


def bind(source, is_new_group):
    global _job, _rank
    with _binding, _process.quietly():  # the store's own methods ask for the order of the job, which is made here
        older = _job
        if older is not None and older.source is source and not older.is_over:
            return
        if older is not None and not older.is_over:
            older.wait(lambda text: True, changes=False)
        try:
            _job, _rank = Job(source, is_new_group), distributed.get_rank()
        except RuntimeError as why:
            _log.once(f"the store of torch.distributed does not answer: {why}")


def is_hidden():
    """This process is one of several, and has no order with the others: its saves are not lazy."""
    if current() is not None:
        return False
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size() > 1
    return any(os.environ.get(name, "1") not in ("", "0", "1") for name in RANKS)


def before_end():
    if _job is not None:
        _job.drop_unbegun()
    if _job is not None and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":  # torchrun has the store else
        _job.linger()


def after_fork():
    global _job, _binding, _inherited
    if distributed.is_available() and distributed.is_initialized():
        _inherited = distributed.distributed_c10d._get_default_store()
    _job, _binding = None, threading.RLock()


os.register_at_fork(after_in_child=after_fork)
_process.at_end.append(before_end)

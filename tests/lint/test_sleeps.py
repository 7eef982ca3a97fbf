# SPDX-License-Identifier: Apache-2.0
"""A thread waits for state of its own process on a condition, an event (base/event.h) or a descriptor, and not by looking again and again.

What is listed here waits by the clock, since nothing signals what it waits for, or since the time itself is what it waits for."""
import collections
import os
import re

from test_circles import NOISE
from test_layers import SRC, sources

# Of each file: how often it waits by the clock, and for what.
ALLOWED = {
    "base/event.c": (1, "the wrapper itself: the caller's limit"),
    "base/lock.c": (2, "the wrapper itself"),
    "base/process.c": (1, "the end of a child, with the caller's limit"),
    "base/program.c": (1, "another program, with a limit"),
    "base/rate_limit.c": (1, "a rate: until the next bytes may go"),
    "cli/ask.c": (1, "the daemon: a successor starts"),
    "cli/copy.c": (1, "a progress line is drawn, and a signal handler's flag looked at"),
    "cli/doctor.c": (1, "other programs, with a limit"),
    "cli/horizon.c": (1, "the daemon's horizon"),
    "cli/interrupt.c": (1, "the wrapper itself"),
    "cli/job.c": (1, "the daemon's job"),
    "cli/log.c": (1, "a file that the daemon appends to"),
    "cli/nodes.c": (3, "the daemon, which asks the remote, and its successor; and what other nodes do"),
    "cli/snapshot.c": (1, "the daemon, which gives a name"),
    "cli/source.c": (1, "another command holds the store"),
    "cli/stats.c": (1, "the time of the next line"),
    "cli/top.c": (1, "the time of the next picture, or a key"),
    "cli/wait.c": (1, "the daemon uploads again what the remote lost"),
    "cli/umount.c": (2, "the kernel's mounts, and the end of the daemon"),
    "cli/upgrade.c": (1, "the daemon: its successor starts"),
    "cli/warm.c": (1, "the daemon's job"),
    "client/device_copy.c": (2, "a device: it is asked whether copies have ended, and whether there is one"),
    "client/device_register.c": (1, "lets the driver's lock go between two calls that hold it long"),
    "client/level.c": (2, "the daemon: it is asked for its horizon"),
    "client/threads.c": (1, "the caller's limit"),
    "commit/horizon.c": (2, "a disk that failed, before the next try, which ends with the store; drafts ripen, and upkeep is due, by the clock"),
    "commit/remote_pins.c": (1, "a view that takes a head in: signalled, and after a while the copy goes on by bytes"),
    "commit/round_cut.c": (1, "rounds come by the clock"),
    "commit/room.c": (1, "the disk: others fill it, too"),
    "daemon/control.c": (3, "a client's socket, with a limit; silent clients are dropped; a daemon with a full backlog"),
    "daemon/holder.c": (2, "what made daemons die passes; a daemon on trial has a limit"),
    "take/take.c": (1, "heads of the remote come by the clock, and changes wait for a round"),
    "daemon/service.c": (2, "rates, leases and the holder's link are looked at by the clock"),
    "daemon/service_remote.c": (1, "the end is reported once a second"),
    "daemon/store_directory.c": (1, "another process holds the store's lock"),
    "daemon/service_answers.c": (1, "nothing is sealed until the clock is past a round"),
    "fetch/prefetch.c": (1, "memory that was not used for a while is given back"),
    "fs/bring.c": (1, "as fuse/loop.c: a round passes by the clock"),
    "fuse/front.c": (1, "a signal may come before the read that it is to interrupt: sent again"),
    "fuse/hold.c": (1, "as front.c"),
    "fuse/loop.c": (1, "callers are looked at for a fatal signal, which the kernel does not always tell"),
    "fuse/turns.c": (1, "no thread has received for a while: another one does"),
    "prefix/check.c": (1, "the remote, which may not show all: before the next look"),
    "nodes/news.c": (1, "the prefix pauses, before the next try; a feed on its way lands"),
    "prefix/heads.c": (3, "the remote, before the next try"),
    "prefix/lease.c": (1, "another holder's lease runs out"),
    "prefix/object.c": (1, "the remote, before the next try"),
    "prefix/prefix.c": (1, "the remote, which may not show all: before the next look"),
    "prefix/run_fetch.c": (1, "the remote, before the next try"),
    "prefix/runs.c": (1, "as run_fetch.c"),
    "remote/gc_ask.c": (1, "the remote, which has been out of reach for a lease by the clock"),
    "remote/again.c": (1, "the remote, which may not show all: before the next look"),
    "remote/follow.c": (1, "a newer head in the remote"),
    "remote/remote.c": (2, "the remote takes the lease back: no longer than a moment; its prefix pauses"),
    "remote/renewer.c": (1, "our lease is renewed"),
    "remote/state.c": (1, "the wrapper itself"),
    "remote/upload.c": (2, "heads and gc are due by the clock; what made a round fail passes"),
    "remote/upload_packs.c": (2, "the remote and a full disk, before the next try"),
    "remote/watch.c": (1, "the caller's question whether the start is given up"),
    "stage/shm.c": (1, "another process, which was killed, lets go of its lock"),
    "stage/slabs.c": (1, "slabs are given back, or made ready, by the clock"),
    "store/lookback_list.c": (1, "the remote, before the next try"),
    "store/open.c": (1, "a round that is near; a disk that takes no file: a limit"),
    "store/job.c": (1, "a rate of reading"),
    "tier/dir_client.c": (1, "the helper process hangs in its filesystem"),
    "tier/dir_talk.c": (1, "the helper process, with a limit"),
    "tier/retry.c": (1, "the remote, before the next try"),
    "tier/s3/credentials_process.c": (1, "another program, with a limit"),
    "tier/s3/credentials_source.c": (1, "a service that gives credentials, before the next try: 0.3 s in all"),
    "view/db.c": (1, "RocksDB compacts, and has no notification of it"),
    "view/use.c": (1, "readers of the view let go of it: a limit"),
    "view/view.c": (1, "as db.c"),
}
# Calls that end by the clock. A wait for a condition with the limit -1 and a poll with 0 or -1 do not.
SLEEP = re.compile(r"\b(nanosleep|clock_nanosleep|usleep|sleep|sched_yield|pthread_cond_timedwait|interrupt_sleep_ms|remote_pause|prefix_pause|mutex_wait_until)\((?!0\))")
LIMITED = re.compile(r"\b(poll|ppoll|epoll_wait|mutex_wait|event_wait)\(((?:[^();]|\((?:[^();]|\([^();]*\))*\))*)\)")
NO_LIMIT = re.compile(r",\s*(-1|0|INT64_MAX|until|until_ns|deadline)\s*$")
DEFINITION = re.compile(r"^[a-z][^\n;{}()=]*\b\w+\([^;{}]*\)\s*\{", re.MULTILINE)


def waits(src):
    """path -> how often it waits by the clock."""
    found = collections.Counter()
    for path in sources(src, ".c"):
        with open(path) as file:
            text = DEFINITION.sub("{", NOISE.sub(" ", file.read()))
        limited = sum(not NO_LIMIT.search(arguments) for _, arguments in LIMITED.findall(text))
        found[os.path.relpath(path, src)] = len(SLEEP.findall(text)) + limited
    return +found


def test_who_waits_by_the_clock_is_listed_with_the_reason():
    found = waits(SRC)
    assert found == {path: count for path, (count, _) in ALLOWED.items()}, \
        "wait on a condition or an event that is signalled where the state changes; what is outside of the process is listed with the reason"


def test_a_new_sleep_is_found(tmp_path):
    (tmp_path / "a.c").write_text("void a(void)\n{\n    usleep(5);\n    poll(&p, 1, (int)f(2) + 1);\n    mutex_wait(&l, &c, 100);\n}\n"
                                  "static bool mutex_wait(struct cairn_mutex *m, int64_t ms)\n{\n    sleep(1); /* usleep(5) */\n}\n")
    (tmp_path / "b.c").write_text("void b(void)\n{\n    poll(&p, 1, 0);\n    mutex_wait(&l, &c, -1);\n    event_wait(&e, &seen, until);\n}\n")
    assert waits(str(tmp_path)) == {"a.c": 4}

# SPDX-License-Identifier: Apache-2.0
"""What /proc says of processes and their threads."""
import contextlib
import os


def of_threads(pid, name):
    """The file of that name in /proc of each thread of a process, as bytes; threads that end meanwhile are passed over."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                with open(f"/proc/{pid}/task/{task}/{name}", "rb") as file:
                    yield file.read()


def process_state(pid):
    """Of all threads: "T" if every one is stopped."""
    states = {stat.rsplit(b")", 1)[1].split()[0].decode() for stat in of_threads(pid, "stat")}
    return "T" if states == {"T"} else "".join(sorted(states))


def open_files(pid):
    """Where the descriptors of a process lead."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            yield os.readlink(f"/proc/{pid}/fd/{fd}")


def nice_values(pid, name):
    """Of the daemon's threads of this name."""
    stats = [stat.decode().rsplit(")", 1) for stat in of_threads(pid, "stat")]
    return {int(after.split()[16]) for before, after in stats if before.endswith("(" + name)}


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def rss_bytes(pid):
    """Resident memory of a process: anonymous and shared."""
    total = 0
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) * 1024
    return total


def waited_for_cpu():
    """Seconds for which this thread could have run and no processor was free for it: what a busy machine adds to a measured time."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except FileNotFoundError:
        return 0.0

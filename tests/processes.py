# SPDX-License-Identifier: Apache-2.0
"""Processes and threads of the tests, and what /proc says of them."""
import concurrent.futures
import contextlib
import os
import socket
import threading

NOBODY = 65534


def become_nobody():
    """This process is an ordinary user from now on."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def drop_pages():
    """The kernel keeps no content of files that is on disk."""
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def in_threads(function, arguments):
    """Calls the function for each of the arguments at once, and waits for all. Raises what a call raised."""
    with concurrent.futures.ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(function, arguments))


def ends(function, seconds):
    """Calls the function, which ends in this time; what waits without end is left behind in a thread."""
    raised = []

    def run():
        try:
            function()
        except BaseException as error:  # noqa: BLE001: handed on
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"{function} hangs"
    if raised:
        raise raised[0]


def dir_helpers(pid):
    """The processes that make a daemon's calls into a directory that is its remote."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(f"/proc/{name}/cmdline", "rb") as file:
                is_helper = file.read().startswith(b"cairn-dir-helper\0")
            with open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rsplit(b")", 1)[1].split()[1])
            found += [int(name)] if is_helper and parent == pid else []
    return found


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


def has_read(pid, path):
    """Has a process the file open, and read all of it?"""
    size = os.path.getsize(path)
    with contextlib.suppress(FileNotFoundError):  # it has ended, or closed a file meanwhile
        for fd in os.listdir(f"/proc/{pid}/fd"):
            if os.readlink(f"/proc/{pid}/fd/{fd}") == path:
                with open(f"/proc/{pid}/fdinfo/{fd}") as file:
                    return int(file.readline().split()[1]) == size
    return False


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

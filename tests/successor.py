# SPDX-License-Identifier: Apache-2.0
"""A mount whose daemon may die: the holder runs in the foreground, the daemon is its child."""
import contextlib
import os
import signal

import remote as remotes
import rig

HERE = os.path.dirname(os.path.abspath(__file__))


class Kept(rig.Mount):
    def daemon(self):
        """The daemon that runs or starts now; None: none does at this moment."""
        try:
            children = [int(word) for word in rig.read_text(f"/proc/{self.proc.pid}/task/{self.proc.pid}/children").split()]
        except (AttributeError, FileNotFoundError):
            return None
        return children[0] if children else None

    def is_ready(self):
        """The daemon has handed the mount over, and says that it is there."""
        with open(self.log_path, "rb") as file:
            file.seek(self.log_start)
            return b"\ncairn mount: memory: " in file.read()

    def pids(self):
        return [pid for pid in (self.daemon(), self.proc and self.proc.pid) if pid]

    def kill_daemon(self, wait=False):
        """kill -9 of the daemon only. Returns at once, or when the next one starts."""
        pid = rig.poll(self.daemon, 10, "a daemon to kill")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if wait:
            rig.poll(lambda: self.daemon() not in (None, pid), 20, "the next daemon")
        return pid

    def kill_alone(self):
        """kill -9 of a daemon that has no holder."""
        rig.Mount.kill9(self)

    def successor(self):
        return self.status()["mount"]["successor"]

    def kill9(self):
        """Holder and daemon die: what a machine's crash does, but for memory."""
        if not self.proc:
            return
        self.proc.send_signal(signal.SIGSTOP)  # it starts no other meanwhile
        daemon = self.daemon()
        if daemon:
            with contextlib.suppress(ProcessLookupError):
                os.kill(daemon, signal.SIGKILL)
        super().kill9()
        if daemon:  # nobody waits for it: the store is free when it is gone
            rig.poll(lambda: not os.path.exists(f"/proc/{daemon}/exe"), 30, "the end of the daemon")


class KeptRemote(Kept, remotes.RemoteMount):
    """A mount on a remote, whose daemon may die."""


def preload(root, name="die_unanswered"):
    """A library with which a daemon dies right before an answer (or aborts: fail_check), and the file that arms it."""
    library = os.path.join(root, name + ".so")
    rig.run("cc", "-O2", "-Wall", "-shared", "-fPIC", "-o", library, os.path.join(HERE, name + ".c"), "-ldl")
    return library, os.path.join(root, "die")

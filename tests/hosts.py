# SPDX-License-Identifier: Apache-2.0
"""Network namespaces, which stand for the hosts of nodes. Each has one link, that to here, where a port leads on to a server."""
import contextlib
import fcntl
import os
import socket
import subprocess
import threading

import rig


class Door:
    """A listening port on our end of a link; what connects is connected to the server."""

    def __init__(self, address, server):
        host, port = server.rpartition("/")[2].rsplit(":", 1)
        self.server, self.listener = (host, int(port)), socket.create_server((address, 0))
        self.url = f"http://{address}:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):  # it is closed
            while True:
                outside, inside = self.listener.accept()[0], socket.create_connection(self.server)
                for ends in ((outside, inside), (inside, outside)):
                    threading.Thread(target=pump, args=ends, daemon=True).start()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def pump(source, target):
    with contextlib.suppress(OSError), source, target:
        while data := source.recv(1 << 16):
            target.sendall(data)


def free_network():
    """(number, file): the number is ours while the file is open."""
    for number in range(1, 250):
        file = open(f"/tmp/cairn-test-network-{number}", "w")
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return number, file
        file.close()
    raise RuntimeError("no network is free")


class Host:
    """`prefix` is a command that runs another one there. It ends with its holder, and so does the link."""

    def __init__(self, server):
        rig.need_root()
        self.number, self.lock = free_network()
        self.link, address = f"cairntest{self.number}", f"10.77.{self.number}"
        own = os.readlink("/proc/self/ns/net")
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        pid = self.holder.pid
        rig.poll(lambda: os.readlink(f"/proc/{pid}/ns/net") != own, 10, "a network of its own", 0.01)
        self.prefix = ("nsenter", f"--net=/proc/{pid}/ns/net")
        rig.run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        rig.run("ip", "address", "add", f"{address}.1/30", "dev", self.link)
        rig.run("ip", "link", "set", self.link, "up")
        self.inside("ip", "address", "add", f"{address}.2/30", "dev", "eth0")
        for name in ("lo", "eth0"):
            self.inside("ip", "link", "set", name, "up")
        self.door = Door(f"{address}.1", server)

    def inside(self, *command):
        return rig.run(*self.prefix, *command)

    def cut(self):
        """Nobody hears of it: what is sent is lost."""
        rig.run("ip", "link", "set", self.link, "down")

    def join(self):
        rig.run("ip", "link", "set", self.link, "up")

    def shape(self, *words):
        """What the host sends, by tc(8): a queueing discipline. False: this kernel has none of that name."""
        done = subprocess.run([*self.prefix, "tc", "qdisc", "replace", "dev", "eth0", "root", *words], capture_output=True, text=True)
        assert done.returncode == 0 or "unknown" in done.stderr or "not found" in done.stderr, done
        return done.returncode == 0

    def unshape(self):
        self.inside("tc", "qdisc", "delete", "dev", "eth0", "root")

    def close(self):
        self.holder.kill()
        self.holder.wait()
        self.door.close()
        self.lock.close()

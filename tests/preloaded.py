# SPDX-License-Identifier: Apache-2.0
"""Programs in processes that begin with their imports done, which take longer than most of what the programs do: each is a fork of one
process that has made them, and ends as any program does."""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

SERVER = """
import gc, json, os, select, signal, socket, sys, warnings
channel = socket.socket(fileno=int(sys.argv[1]))
exec(sys.argv[2])
gc.freeze()  # else each program looks for garbage among all that was imported, and again when it ends

def next_program():
    \"\"\"In a child: the program that it runs. Here it ends with the channel.\"\"\"
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    while True:
        ready = select.select([channel, awake], [], [])[0]
        if awake in ready:
            os.read(awake, 4096)
            while (ended := any_ended()) is not None:
                channel.send(json.dumps(ended).encode())
        if channel not in ready:
            continue
        message, fds, _, _ = socket.recv_fds(channel, 1 << 20, 3)
        if not message:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(awake), os.close(wake), channel.close()
            for number, fd in enumerate(fds):
                os.dup2(fd, number)
                os.close(fd)
            return json.loads(message)
        for fd in fds:
            os.close(fd)
        channel.send(json.dumps({"begun": pid}).encode())

def any_ended():
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return {"ended": pid, "code": os.waitstatus_to_exitcode(status)} if pid else None

order = next_program()
os.environ.update(order["environment"])
sys.argv = ["-c", *order["arguments"]]
exec(compile(order["program"], "<string>", "exec"), {"__name__": "__main__"})
"""


class Preloaded:
    """`imports`: statements that are executed once."""

    def __init__(self, imports, environment):
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-c", SERVER, str(theirs.fileno()), imports]
        self.process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        self.codes = {}  # of processes that have ended

    def start(self, program, arguments, environment=(), stderr=None):
        """As subprocess.Popen([python, "-c", program, *arguments], text=True), with pipes for standard input and output."""
        order = {"program": program, "arguments": arguments, "environment": dict(environment)}
        stdin, stdout = os.pipe(), os.pipe()
        socket.send_fds(self.channel, [json.dumps(order).encode()], [stdin[0], stdout[1], stderr.fileno() if stderr else 2])
        os.close(stdin[0])
        os.close(stdout[1])
        while not (pid := self.look(None)):
            pass
        return Started(self, pid, os.fdopen(stdin[1], "w", buffering=1), os.fdopen(stdout[0]))

    def run(self, program, arguments, environment=(), timeout=None):
        """As subprocess.run([python, "-c", program, *arguments], capture_output=True, text=True)."""
        with tempfile.TemporaryFile("w+") as errors, self.start(program, arguments, environment, errors) as process:
            process.stdin.close()
            output, code = process.stdout.read(), process.wait(timeout)
            errors.seek(0)
            return subprocess.CompletedProcess(program, code, output, errors.read())

    def look(self, timeout):
        """Takes one message: the pid of a process that has begun, or None."""
        self.channel.settimeout(timeout)
        message = self.channel.recv(4096)
        if not message:
            raise EOFError(f"the process that forks has ended with {self.process.wait()}")
        said = json.loads(message)
        if "ended" in said:
            self.codes[said["ended"]] = said["code"]
        return said.get("begun")

    def close(self):
        self.channel.close()
        self.process.wait()


class Started:
    """What of subprocess.Popen is used."""

    def __init__(self, preloaded, pid, stdin, stdout):
        self.preloaded, self.pid, self.stdin, self.stdout = preloaded, pid, stdin, stdout

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        self.wait()

    def wait(self, timeout=None):
        limit = None if timeout is None else time.monotonic() + timeout
        while self.pid not in self.preloaded.codes:
            left = None if limit is None else limit - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired("a preloaded program", timeout)
            try:
                self.preloaded.look(left)
            except TimeoutError:
                pass
        return self.preloaded.codes[self.pid]

    def poll(self):
        try:
            return self.wait(0.001)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def close(self):
        self.stdin.close()
        self.stdout.close()

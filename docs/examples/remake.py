#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the examples of the docs on real mounts, and puts what they print into the pages. Needs root, /dev/fuse, torch and getfattr.

    docs/examples/remake.py --build build        # all of them: two minutes

A page has `<!-- example: NAME -->` above a block of ```console; the block below it becomes what the example NAME printed. It runs in a
mount namespace of its own, in which /nvme is a directory of the disk and /nfs a tmpfs.
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TOPS = ["/nvme", "/nfs", "/mnt/ckpt", "/mnt/other"]
BLOCK = r"(<!-- example: {} -->\n```console\n).*?(^```)"
SAVE = """
import os, sys, torch
os.makedirs(sys.argv[1], exist_ok=True)
shared = torch.Generator().manual_seed(1)
own = torch.Generator().manual_seed(int(sys.argv[2]))
state = {f"layer{i}.weight": torch.randn(4 << 20, generator=shared if i < 4 else own) for i in range(16)}
print("ready", flush=True)
sys.stdin.readline()
torch.save(state, sys.argv[1] + "/model.pt")
"""


class Examples:
    """Each method is a scene, with names of its own for what it shows."""

    def __init__(self, directory):
        self.directory, self.shown = directory, {}

    def do(self, command, code=0):
        """Not shown; ends as it should (None: anyhow)."""
        done = subprocess.run(["bash", "-c", command], cwd=self.directory, capture_output=True, text=True)
        if code is not None and done.returncode != code:
            sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def show(self, name, *commands, wait=0):
        lines = []
        for command in commands:
            done = subprocess.run(["bash", "-c", f"sleep {wait}; {command}"], cwd=self.directory, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
            lines += [f"$ {command}", *([done.stdout.rstrip("\n")] if done.stdout.strip() else [])]
            if done.returncode:
                lines.append(f"(exit code {done.returncode})")
        self.shown[name] = self.shown.get(name, "") + "\n".join(lines) + "\n"

    def saver(self, directory, seed):
        """A program that has 256 MiB and saves them when it gets a line. Of two of them a quarter is the same."""
        program = subprocess.Popen([sys.executable, "-c", SAVE, directory, str(seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True)
        program.stdout.readline()
        return program

    def save(self, directory, seed):
        self.saver(directory, seed).communicate("\n")

    def bytes(self, path, size):
        self.do(f"mkdir -p {os.path.dirname(path)}; head -c {size} /dev/urandom > {path}")

    def pid(self, mountpoint):
        return int(re.search(r'"pid":\s*(\d+)', self.do(f"cairn status --json {mountpoint}"))[1])

    # --- scenes

    def one_mount(self):
        self.show("mount", "cairn mount /nvme/store /mnt/ckpt --stage 2G")
        self.do("cairn umount /mnt/ckpt; rm -rf /nvme/store")
        self.show("mount with a remote", "cairn mount /nvme/store /mnt/ckpt --remote dir:/nfs/run7 --stage 2G")
        self.save("/mnt/ckpt/step1000", 5)
        self.show("level", "getfattr --absolute-names -n user.cairn.level /mnt/ckpt/step1000/model.pt")
        self.show("wait", "cairn wait /mnt/ckpt/step1000 --level remote",
                  "getfattr --absolute-names -n user.cairn.level /mnt/ckpt/step1000/model.pt")
        self.save("/mnt/ckpt/step2000", 6)
        self.do("cairn wait /mnt/ckpt --level remote")
        self.show("status", "cairn status /mnt/ckpt")
        self.show("waits for space", "cairn status -v /mnt/ckpt | grep 'for space'")
        program = self.saver("/mnt/ckpt/step3000", 7)
        threading.Timer(1.5, program.communicate, ["\n"]).start()
        self.show("stats", "cairn stats /mnt/ckpt --count 6")
        self.do("cairn wait /mnt/ckpt --level remote")
        self.show("info", "cairn info /mnt/ckpt/step2000/model.pt", "cairn du /mnt/ckpt/step1000 /mnt/ckpt/step2000",
                  "cairn du --why /mnt/ckpt/step2000")
        self.show("metrics", "cairn metrics /mnt/ckpt | grep -v '^#' | grep nvme | head -6")
        self.show("log", "cairn log /mnt/ckpt --lines 5")
        self.show("gc", "cairn gc --dry-run /mnt/ckpt", "cairn gc /mnt/ckpt")
        self.show("scrub", "cairn scrub /mnt/ckpt")

    def death(self):
        self.show("death", f"kill -9 {self.pid('/mnt/ckpt')}", "ls /mnt/ckpt/step1000", "cairn log /mnt/ckpt --lines 1 --level warning")
        self.show("upgrade", "cairn upgrade /mnt/ckpt")

    def end(self):
        with subprocess.Popen(["sleep", "5"], cwd="/mnt/ckpt/step1000") as user:
            self.show("umount in use", "cairn umount /mnt/ckpt")
            user.terminate()
        self.show("umount", "cairn umount /mnt/ckpt --drain remote")
        self.show("fsck", "cairn fsck /nvme/store")
        self.show("cp", "cairn ls -l dir:/nfs/run7:/", "cairn cp -r dir:/nfs/run7:step1000 ./step1000", "ls step1000")
        self.show("another node", "cairn mount /nvme/other /mnt/ckpt --remote dir:/nfs/run7 --stage 1G", "ls /mnt/ckpt",
                  "cairn umount /mnt/ckpt")

    def merge(self):
        self.do("mkdir /nfs/run8")
        for node in (0, 1):
            self.do(f"cairn mount /nvme/node{node} /mnt/ckpt --remote dir:/nfs/run8/node{node} --stage 256M")
            self.bytes(f"/mnt/ckpt/step1000/__{node}_0.distcp", "20M")
            self.do(f"{'echo > /mnt/ckpt/step1000/.metadata;' if node == 0 else ''} cairn umount /mnt/ckpt --drain remote")
        self.show("merge", *(f"cairn cp -r dir:/nfs/run8/node{node}:step1000/ ./merged" for node in (0, 1)), "ls -A merged")

    def two_nodes(self):
        self.do("cairn mount /nvme/writer /mnt/ckpt --remote dir:/nfs/run9 --stage 256M")
        self.bytes("/mnt/ckpt/step1000/model.pt", "40M")
        self.do("cairn wait /mnt/ckpt --level remote")
        self.show("second writer", "cairn mount /nvme/second /mnt/other --remote dir:/nfs/run9 --stage 256M")
        self.show("follow", "cairn mount /nvme/reader /mnt/other --remote dir:/nfs/run9 --stage 256M --ro", "ls /mnt/other")
        self.bytes("/mnt/ckpt/step2000/model.pt", "40M")
        self.do("cairn wait /mnt/ckpt --level remote")
        self.show("follow", "sleep 10; ls /mnt/other")
        self.show("evict", "setfattr -n user.cairn.pin -v 1 /mnt/ckpt/step2000", "cairn evict /mnt/ckpt/step1000 /mnt/ckpt/step2000",
                  "cairn warmup /mnt/ckpt/step1000")
        self.do("cairn umount /mnt/other")
        self.show("takeover", "cairn mount /nvme/second /mnt/other --remote dir:/nfs/run9 --stage 256M --takeover")
        self.bytes("/mnt/ckpt/step3000/model.pt", "10M")
        self.show("takeover", "cairn status /mnt/ckpt | grep -A2 '  remote'", wait=8)
        self.do("cairn umount /mnt/ckpt; cairn umount /mnt/other")

    def undelete(self):
        self.do("cairn mount /nvme/undo /mnt/ckpt --remote dir:/nfs/run10 --stage 256M")
        self.bytes("/mnt/ckpt/step1000/model.pt", "40M")
        self.do("cairn wait /mnt/ckpt --level remote; sleep 5")
        self.bytes("/mnt/ckpt/step2000/model.pt", "40M")
        self.do("cairn wait /mnt/ckpt --level remote; cp -r /mnt/ckpt/step1000 expected; sleep 5; rm -rf /mnt/ckpt/step1000")
        self.do("cairn wait /mnt/ckpt --level remote")
        self.show("undelete", "cairn history /mnt/ckpt/step1000", "cairn cp -r --at 3 dir:/nfs/run10:step1000 /mnt/ckpt", "ls /mnt/ckpt")
        self.do("diff -r expected /mnt/ckpt/step1000; cairn umount /mnt/ckpt")

    def full(self):
        self.do("cairn mount /nvme/small /mnt/ckpt --nvme 128M --stage 64M")
        self.show("full", "head -c 200M /dev/urandom > /mnt/ckpt/step1000.pt", "df -h /mnt/ckpt", "rm /mnt/ckpt/step1000.pt",
                  "head -c 20M /dev/urandom > /mnt/ckpt/step2000.pt")
        self.do("cairn umount /mnt/ckpt")

    def alone(self):
        """Without a successor; a copy; a journal that is damaged."""
        self.do("cairn mount /nvme/plain /mnt/ckpt --stage 256M --successor off")
        self.bytes("/mnt/ckpt/step1000/model.pt", "40M")
        self.show("no successor", f"kill -9 {self.pid('/mnt/ckpt')}", "ls /mnt/ckpt", "cairn mount /nvme/plain /mnt/ckpt --stage 256M",
                  "ls /mnt/ckpt/step1000", wait=0.3)
        self.do("cairn umount /mnt/ckpt; cp -a /nvme/plain /nvme/copy; cairn mount /nvme/plain /mnt/ckpt --stage 256M")
        self.show("copy", "cairn mount /nvme/copy /mnt/other --stage 256M", "cairn umount /mnt/other", "cairn adopt --new-id /nvme/copy")
        for number in (1, 2, 3):
            self.bytes(f"/mnt/ckpt/logs/{number}", 12000)
            self.do("cairn wait /mnt/ckpt --level nvme")
        self.do("cairn umount /mnt/ckpt; rm -r /nvme/plain/view")
        segment = sorted(glob.glob("/nvme/plain/journal/*"))[-2]
        with open(segment, "r+b") as file:
            file.seek(20000)
            file.write(b"\xff\xfe")
        self.show("journal", "cairn mount /nvme/plain /mnt/ckpt --stage 256M", "cairn fsck --repair /nvme/plain",
                  "cairn mount /nvme/plain /mnt/ckpt --stage 256M", "ls /mnt/ckpt/logs")
        self.do("cairn umount /mnt/ckpt")

    def all(self):
        for scene in (self.one_mount, self.death, self.end, self.merge, self.two_nodes, self.undelete, self.full, self.alone):
            scene()
            print(f"{scene.__name__} done", file=sys.stderr)


def pages():
    return [os.path.join(ROOT, "README.md"), *sorted(glob.glob(os.path.join(ROOT, "docs", "*.md")))]


def put(shown):
    """The number of blocks that were filled."""
    filled = 0
    for page in pages():
        with open(page) as file:
            text = file.read()
        for name, printed in shown.items():
            text, count = re.subn(BLOCK.format(re.escape(name)), lambda match, printed=printed: match[1] + printed + match[2], text,
                                  flags=re.M | re.S)
            filled += count
        with open(page, "w") as file:
            file.write(text)
    return filled


def inside(args):
    """In a mount namespace: real directories below the names that the pages have."""
    with open("/proc/self/mounts") as file:  # a copy of somebody's mount would keep it from ending
        copies = [line.split()[1] for line in file if line.split()[2] == "fuse.cairnfs"]
    for copy in copies:
        subprocess.run(["umount", "-i", "-l", copy.encode().decode("unicode_escape")])
    made = [top for top in TOPS if not os.path.exists(top)]
    disk = tempfile.mkdtemp(prefix="cairn-examples-", dir="/var/tmp")
    for top in made:
        os.makedirs(top)
    try:
        os.makedirs(os.path.join(disk, "nvme"))
        os.makedirs(os.path.join(disk, "work"))
        subprocess.run(["mount", "--bind", os.path.join(disk, "nvme"), "/nvme"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4G", "tmpfs", "/nfs"], check=True)
        os.environ.update(PATH=f"{os.path.abspath(args.build)}/src/cli:{os.environ['PATH']}", LC_ALL="C.UTF-8")
        examples = Examples(os.path.join(disk, "work"))
        examples.all()
        print(f"{put(examples.shown)} blocks filled", file=sys.stderr)
    finally:
        subprocess.run(["umount", "-l", "/nvme", "/nfs"], stderr=subprocess.DEVNULL)
        shutil.rmtree(disk, ignore_errors=True)
        for top in made:
            os.rmdir(top)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="directory of the cairn binary")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        inside(args)
    else:
        os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, __file__, "--inside", "--build", args.build])


if __name__ == "__main__":
    main()

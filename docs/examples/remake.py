#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the examples of the docs on real mounts, and puts what they print into the pages. Needs root, /dev/fuse, torch and getfattr.

    docs/examples/remake.py --build build                        # all of them: two minutes
    docs/examples/remake.py --build build --check deleted_run    # one scene, and the pages stay as they are

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

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TOPS = ["/nvme", "/nfs", "/mnt/ckpt", "/mnt/other"]
BLOCK = r"(<!-- example: {} -->\n```console\n)(.*?)(^```)"
SAVE = """
import os, sys, torch
os.makedirs(sys.argv[1], exist_ok=True)
shared = torch.Generator().manual_seed(1)
own = torch.Generator().manual_seed(int(sys.argv[2]))
state = {f"layer{i}.weight": torch.randn(4 << 20, generator=shared if i < 4 else own) for i in range(16)}
torch.save(state, sys.argv[1] + "/model.pt")
"""
# Six versions of one file, a second apart and each in the remote; from the fourth on a weight is NaN.
NAN = """
import subprocess, sys, time, torch
torch.manual_seed(1)
state = {"model.weight": torch.randn(1 << 20), "model.bias": torch.zeros(1024), "step": 0}
for step in range(1, 7):
    state["step"] = 100 * step
    state["model.weight"] += 1e-3
    if step > 3:
        state["model.weight"][step] = float("nan")
    torch.save(state, sys.argv[1])
    if step == 3:
        torch.save(state, sys.argv[2])
    subprocess.run(["cairn", "wait", sys.argv[1], "--level", "remote"], check=True)
    time.sleep(1.1)
"""
TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ(?:\.\d+)?")
CODE = re.compile(r"^\(exit code \d+\)$", re.M)


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

    def show(self, name, *commands):
        lines = []
        for command in commands:
            done = subprocess.run(["bash", "-c", command], cwd=self.directory, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
            lines += [f"$ {command}", *([done.stdout.rstrip("\n")] if done.stdout.strip() else [])]
            if done.returncode:
                lines.append(f"(exit code {done.returncode})")
        self.shown[name] = self.shown.get(name, "") + "\n".join(lines) + "\n"
        return "\n".join(lines)

    def type(self, name):
        """Shows the commands of an example as they stand in its page, as an operator types them: a time that the page has from the output
        of a command before is the one that this command printed now. They must end as the page says."""
        now = {}
        for told in re.split(r"^(?=\$ )", block_of(name), flags=re.M)[1:]:
            command, _, output = told.removeprefix("$ ").partition("\n")
            printed = self.show(name, TIME.sub(lambda time: now.get(time[0], time[0]), command)).partition("\n")[2]
            if CODE.findall(output) != CODE.findall(printed) or len(TIME.findall(output)) != len(TIME.findall(printed)):
                sys.exit(f"{name}: '{command}' does not end as in the page, or tells of more or fewer times:\n{printed}")
            now.update(zip(TIME.findall(output), TIME.findall(printed)))

    def save(self, directory, seed):
        """Saves 256 MiB, of which two directories have a quarter in common."""
        subprocess.run([sys.executable, "-c", SAVE, directory, str(seed)], check=True)

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
        self.save("/mnt/ckpt/step3000", 7)
        self.do("cairn wait /mnt/ckpt --level remote")
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
        self.do("cairn umount /mnt/ckpt; cairn umount /mnt/other")

    # The accidents of docs/tasks/undelete.md and overwritten.md, each repaired by the commands of the page: all bytes are back.

    def run(self, number):
        """A mount on a remote of its own, with a run of two checkpoints. Each becomes part of it at once, so that it is one state."""
        self.do(f"cairn mount /nvme/run{number} /mnt/ckpt --remote dir:/nfs/run{number} --stage 256M")
        for step in (1000, 2000):
            self.bytes(f"/mnt/ckpt/new/step{step}/model.pt", "20M")
            self.bytes(f"/mnt/ckpt/new/step{step}/optimizer.pt", "10M")
            self.do(f"echo step{step} > /mnt/ckpt/new/latest; cairn wait /mnt/ckpt/new --level nvme")
            self.do("mkdir -p /mnt/ckpt/run7; mv /mnt/ckpt/new/* /mnt/ckpt/run7; cairn wait /mnt/ckpt --level remote; sleep 2")
        self.do("cp -a /mnt/ckpt/run7 expected")

    def is_back(self):
        self.do("diff -r expected /mnt/ckpt/run7 && cairn umount /mnt/ckpt && rm -r expected")

    def deleted_run(self):
        self.run(11)
        self.do("rm -rf /mnt/ckpt/run7; cairn wait /mnt/ckpt --level remote")
        self.type("deleted run")
        self.is_back()

    def truncated_files(self):
        self.run(12)
        self.do("find /mnt/ckpt/run7 -type f -exec truncate -s 0 {} +; cairn wait /mnt/ckpt --level remote")
        self.type("truncated files")
        self.is_back()

    def not_a_number(self):
        self.do("cairn mount /nvme/run13 /mnt/ckpt --remote dir:/nfs/run13 --stage 256M; mkdir expected /mnt/ckpt/run7")
        self.do(f"python - /mnt/ckpt/run7/latest.pt expected/latest.pt <<'END'{NAN}END")
        self.type("not a number")
        self.is_back()

    def full(self):
        self.do("cairn mount /nvme/small /mnt/ckpt --nvme 128M --stage 64M")
        self.show("full", "head -c 200M /dev/urandom > /mnt/ckpt/step1000.pt", "df -h /mnt/ckpt", "rm /mnt/ckpt/step1000.pt",
                  "head -c 20M /dev/urandom > /mnt/ckpt/step2000.pt")
        self.do("cairn umount /mnt/ckpt")

    def damaged_journal(self):
        self.do("cairn mount /nvme/plain /mnt/ckpt --stage 256M")
        self.bytes("/mnt/ckpt/step1000/model.pt", "40M")
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


SCENES = ["one_mount", "death", "end", "two_nodes", "deleted_run", "truncated_files", "not_a_number", "full", "damaged_journal"]


def pages():
    return [os.path.join(ROOT, "README.md"), *sorted(glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True))]


def read(page):
    with open(page) as file:
        return file.read()


def block_of(name):
    """What its page has of an example."""
    return next(found[2] for found in (re.search(BLOCK.format(re.escape(name)), read(page), re.M | re.S) for page in pages()) if found)


def put(shown):
    """The number of blocks that were filled."""
    filled = 0
    for page in pages():
        text = read(page)
        for name, printed in shown.items():
            text, count = re.subn(BLOCK.format(re.escape(name)), lambda match, printed=printed: match[1] + printed + match[3], text,
                                  flags=re.M | re.S)
            filled += count
        with open(page, "w") as file:
            file.write(text)
    return filled


def set_up_commands(build, directory):
    """`cairn` is that of the build, and `python` this one, with the package."""
    os.makedirs(directory)
    with open(os.path.join(directory, "python"), "w", opener=lambda path, flags: os.open(path, flags, 0o755)) as file:
        file.write(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    os.environ.update(PATH=f"{directory}:{build}/src/cli:{os.environ['PATH']}", LC_ALL="C.UTF-8",
                      PYTHONPATH=os.path.join(os.path.abspath(ROOT), "python"),
                      CAIRN_LIBRARY=f"{build}/src/client/libcairn.so.0")


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
        set_up_commands(os.path.abspath(args.build), os.path.join(disk, "bin"))
        examples = Examples(os.path.join(disk, "work"))
        for scene in args.scenes:
            getattr(examples, scene)()
            print(f"{scene} done", file=sys.stderr)
        if not args.check:
            print(f"{put(examples.shown)} blocks filled", file=sys.stderr)
    finally:
        for top in TOPS[2:]:  # where an example ended early
            subprocess.run(["cairn", "umount", top], stderr=subprocess.DEVNULL)
        subprocess.run(["umount", "-l", "/nvme", "/nfs"], stderr=subprocess.DEVNULL)
        shutil.rmtree(disk, ignore_errors=True)
        for top in made:
            os.rmdir(top)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="directory of the cairn binary")
    parser.add_argument("--check", action="store_true", help="change no page")
    parser.add_argument("scenes", nargs="*", metavar="SCENE", default=SCENES, help="only these; some need those before them")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        inside(args)
    else:
        os.execvp("unshare", ["unshare", "-m", "--propagation", "private", sys.executable, __file__, "--inside", *sys.argv[1:]])


if __name__ == "__main__":
    main()

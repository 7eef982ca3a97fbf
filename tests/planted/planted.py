# SPDX-License-Identifier: Apache-2.0
"""Bugs that are planted in a copy of the sources, to see that tests find them: each is a patch beside this file.

A patch has to apply exactly where it says what is there (no fuzz): one that does not any more is an error, and is written anew.
"""
import contextlib
import fcntl
import filecmp
import os
import re
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.abspath(os.path.join(HERE, "..", ".."))
# What the build of `cairn` and of libcairn reads; test_the_copy_has_what_the_build_reads.
PARTS = ("src", "include", "bench", "docs", "python", "mount-scripts", "contrib", "meson.build", "meson_options.txt", "README.md",
         "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
CAIRN = os.path.join("src", "cli", "cairn")
LIBCAIRN = os.path.join("src", "client", "libcairn.so.0")


class PatchError(Exception):
    pass


def names():
    return sorted(name[: -len(".patch")] for name in os.listdir(HERE) if name.endswith(".patch"))


def patch_of(bug):
    return os.path.join(HERE, bug + ".patch")


def changed_files(bug):
    """The files that a patch changes, from the top of the sources."""
    with open(patch_of(bug)) as file:
        return re.findall(r"^\+\+\+ b/(\S+)", file.read(), re.M)


def product(bug):
    """What is built anew with the bug: the library, if that is where it is."""
    return LIBCAIRN if all(file.startswith("src/client/") for file in changed_files(bug)) else CAIRN


def run(*command, cwd=SOURCE, timeout=300):
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=cwd)


def apply(bug, directory, *options):
    done = run("patch", "-p1", "--fuzz=0", "--forward", "--batch", "--no-backup-if-mismatch", "--reject-file=-", *options, "-i",
               patch_of(bug), cwd=directory)
    if done.returncode:
        raise PatchError(f"{bug}.patch does not apply any more: write it anew\n{done.stdout}{done.stderr}")


@contextlib.contextmanager
def applied(bug, directory):
    apply(bug, directory)
    try:
        yield
    finally:
        done = run("patch", "-p1", "--reverse", "--batch", "-i", patch_of(bug), cwd=directory)
        assert done.returncode == 0, done.stdout + done.stderr


def copy_sources(directory):
    """What differs is copied, so that only that is built again; what is no longer there goes."""
    for part in PARTS:
        source, copy = os.path.join(SOURCE, part), os.path.join(directory, part)
        if os.path.isdir(source):
            copy_directory(source, copy)
        elif not os.path.exists(copy) or not filecmp.cmp(source, copy, False):
            shutil.copyfile(source, copy)


def copy_directory(source, copy):
    os.makedirs(copy, exist_ok=True)
    for name in set(os.listdir(copy)) - set(os.listdir(source)):
        path = os.path.join(copy, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    for name in os.listdir(source):
        one, other = os.path.join(source, name), os.path.join(copy, name)
        if os.path.isdir(one):
            copy_directory(one, other)
        elif not os.path.exists(other) or not filecmp.cmp(one, other, False):
            shutil.copy(one, other)


def build(bug, build_directory):
    """A directory that serves as --build, with a `cairn`, or a libcairn, that has the bug; all else is that of build_directory."""
    build_directory = os.path.abspath(build_directory)
    work, result = build_directory + "-planted", f"{build_directory}-planted/with-{bug}"
    sources, built = os.path.join(work, "source"), os.path.join(work, "build")
    os.makedirs(sources, exist_ok=True)
    with open(os.path.join(work, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one at a time: they share what is built
        copy_sources(sources)
        if not os.path.exists(os.path.join(built, "build.ninja")):
            done = run("meson", "setup", built, sources, "-Dtests=disabled")
            assert done.returncode == 0, done.stdout + done.stderr
        with applied(bug, sources):
            made = product(bug)
            done = run("ninja", "-C", built, made, timeout=1200)
            assert done.returncode == 0, done.stdout[-3000:]
            os.makedirs(os.path.join(result, os.path.dirname(made)), exist_ok=True)
            shutil.copy(os.path.join(built, made), os.path.join(result, made))
    if not os.path.islink(os.path.join(result, "tests")):
        os.symlink(os.path.join(build_directory, "tests"), os.path.join(result, "tests"))
    return result

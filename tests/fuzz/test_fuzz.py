# SPDX-License-Identifier: Apache-2.0
"""Hostile bytes at every decoder: the libFuzzer targets of this directory, with their seeds, and for some seconds. What a target finds is
kept in BUILD/fuzz/found; put it into corpus/TARGET/ as found-WHAT when it is mended. What the runs learn stays in BUILD/fuzz/corpus."""
import fcntl
import glob
import os
import shutil
import subprocess

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
TARGETS = sorted(os.path.basename(path)[:-2] for path in glob.glob(HERE + "/*.c"))
# one target in so many runs on after its seeds, without --full; runs add up: each commit has a seed
SHARE, SECONDS, SECONDS_FULL = 4, 4, 60
# A process that is made by fork and exec begins with the peak of its parent's memory, which libFuzzer would take for its own: a
# Python that has loaded torch is over the limit. A shell's child begins with the shell's.
FORK = ["sh", "-c", '"$@"; exit $?', "sh"]
# What `cairn status` says of each wrong answer would fill the screen.
OPTIONS = {"reply": ["-close_fd_mask=3"]}


def call(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", **more)
    assert done.returncode == 0, f"{command}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"


def fuzzer_is_missing(directory):
    """Why there is no clang that links libFuzzer; None: there is."""
    if not shutil.which("clang"):
        return "needs clang"
    source = os.path.join(directory, "empty.c")
    with open(source, "w") as file:
        file.write("#include <stddef.h>\nint LLVMFuzzerTestOneInput(const char *p, size_t n) { return 0 * (p != 0) * (n != 0); }\n")
    done = subprocess.run(["clang", "-fsanitize=fuzzer,address", source, "-o", source + ".out"], capture_output=True)
    return "needs libFuzzer for clang (libclang-rt-dev)" if done.returncode else None


@pytest.fixture(scope="session")
def programs(request, full, tmp_path_factory):
    """The directory of the targets, built with clang; one process builds, the others wait for it. Optimized only where they run for long:
    sanitizers make that the most of what a build takes."""
    why = fuzzer_is_missing(str(tmp_path_factory.mktemp("clang")))
    if why:
        pytest.skip(f"skipped: {why}")
    build = os.path.join(os.path.abspath(request.config.getoption("--build")), "fuzz")
    os.makedirs(build, exist_ok=True)
    with open(build + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(build + "/build.ninja"):
            # names and lines are enough
            options = ["-Dfuzz=true", "-Dtests=disabled", "-Db_sanitize=address,undefined", "-Db_lundef=false", "-Dc_args=-g1"]
            call("meson", "setup", build, *options, cwd=os.path.join(HERE, "..", ".."), env={**os.environ, "CC": "clang"})
        call("meson", "configure", build, f"-Doptimization={2 if full else 0}")
        call("ninja", "-C", build, "fuzz")
    return build


def environment(directory, shm_directory):
    suppressed = {"LSAN_OPTIONS": "print_suppressions=0", "ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
    return {**os.environ, **suppressed, "TMPDIR": directory, "SHMDIR": shm_directory}


def shown(found):
    """The inputs that failed, for people who cannot look into the build directory."""
    for path in sorted(glob.glob(found + "*")):
        with open(path, "rb") as file:
            data = file.read()
        yield f"{path}: {len(data)} bytes: {data[:1000]!r}"


@pytest.mark.timeout(600)
@pytest.mark.together
@pytest.mark.parametrize("target", TARGETS)
def test_fuzz(programs, directory, shm_directory, full, rng, target):
    """P12: whatever the bytes are, a decoder gives an error or something that makes sense."""
    learned, found = f"{programs}/corpus/{target}", f"{programs}/found/{target}-"
    for path in (learned, os.path.dirname(found)):
        os.makedirs(path, exist_ok=True)
    for path in glob.glob(found + "*"):
        os.unlink(path)
    runs_on = full or rng.random() < 1 / SHARE
    length = f"-max_total_time={SECONDS_FULL if full else SECONDS}" if runs_on else "-runs=0"
    limits = [length, "-timeout=20", "-rss_limit_mb=1024", "-max_len=16384"]
    more = [f"-seed={rng.randrange(1, 1 << 31)}", f"-artifact_prefix={found}", *OPTIONS.get(target, [])]
    seeds = os.path.join(HERE, "corpus", target)
    command = [*FORK, f"{programs}/tests/fuzz/fuzz-{target}", *limits, *more, learned, seeds]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment(directory, shm_directory))
    problems = [line for line in done.stderr.splitlines() if "ERROR" in line or "runtime error" in line or "check failed" in line]
    assert done.returncode == 0, "\n".join([*problems, *shown(found), done.stderr[-4000:]])
    print(done.stderr.splitlines()[-1])


def test_every_target_has_seeds():
    """A target without a corpus would hardly get past its first checks."""
    assert TARGETS == sorted(os.listdir(HERE + "/corpus"))

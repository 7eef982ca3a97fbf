# SPDX-License-Identifier: Apache-2.0
"""What shells complete: bash and zsh at a terminal, fish asked; and that each command takes the flags that its help shows."""
import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest

pytestmark = pytest.mark.needs_mount

HELP_FLAG = re.compile(r"^  (-\w)?(?:, )?(--[\w-]+)?(?: (\S+))?  +\S", re.M)


def ask(binary, *args):
    done = subprocess.run([binary, *args], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done
    return done.stdout


def commands(binary):
    return re.findall(r"^  cairn (\S+)", ask(binary, "help"), re.M)


def flags(binary, command):
    """(spelling, has a value) of each flag that the help of a command shows."""
    found = []
    for letter, name, value in HELP_FLAG.findall(ask(binary, "help", command).split("\nExit status", 1)[0]):
        found += [(spelling, bool(value)) for spelling in (letter, name) if spelling]
    return found


def options(binary):
    """(name, has a value) of each option of a mount."""
    text = ask(binary, "help", "mount").split("\nMount options", 1)[1]
    return [(name, bool(value)) for name, value in re.findall(r"^  (\w+)(=\w+)? ", text, re.M)]


def script(binary, shell, directory):
    path = os.path.join(directory, f"cairn.{shell}")
    with open(path, "w") as file:
        file.write(ask(binary, "completion", shell))
    return path


def bash_candidates(path, line):
    """What bash's function offers for a line."""
    program = f'source {path}; COMP_LINE=$1 COMP_POINT=${{#1}}; _cairn; for word in "${{COMPREPLY[@]}}"; do printf "%s\\n" "$word"; done'
    done = subprocess.run(["bash", "--norc", "-c", program, "bash", line], capture_output=True, text=True, errors="surrogateescape",
                          timeout=300)
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout.split("\n")[:-1]


def type_at(command, keys, until, env):
    """Type keys at a shell on a terminal; what it wrote, once that has `until`."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, {**os.environ, "TERM": "dumb", "PS1": "$ ", **env})
    written, end = "", time.monotonic() + 30
    try:
        for part in keys:
            os.write(fd, part.encode())
        while until not in written and time.monotonic() < end:
            if select.select([fd], [], [], 0.1)[0]:
                written += os.read(fd, 4096).decode(errors="replace")
    except OSError:
        pass  # it ended
    finally:
        os.close(fd)
        os.waitpid(pid, 0)
    return written


# Cairn's name stands for something that shows what it was called with.
SHOW = "cairn() { printf 'called:'; printf '<%s>' \"$@\"; echo; }\n"


def test_bash_offers_what_help_shows(binary, directory):
    """Every command, every flag of each, every option and word of -o."""
    path = script(binary, "bash", directory)
    assert sorted(bash_candidates(path, "cairn ")) == sorted(commands(binary))
    for command in commands(binary):
        shown = {spelling for spelling, _ in flags(binary, command)}
        offered = set(bash_candidates(path, f"cairn {command} -"))
        assert shown <= offered and "--help" in offered, (command, shown - offered)
    for name, has_value in options(binary):
        assert f"ro,{name}" + ("=" if has_value else "") in bash_candidates(path, f"cairn mount s m -o ro,{name[:-1]}")
        assert "--" + name.replace("_", "-") in bash_candidates(path, "cairn mount --"), name


@pytest.mark.parametrize(
    "line, expected",
    [
        ("cairn wait x --level ", ["stage", "nvme", "remote"]),
        ("cairn wait x --level=n", ["nvme"]),
        ("cairn umount -d ", ["nvme", "remote"]),
        ("cairn mount s m -o stage=4G,fsync=st", ["stage"]),
        ("cairn mount s m -o stage=4G,fsy", ["4G,fsync="]),
        ("cairn mount s m --log_level d", ["debug"]),
        ("cairn mount s m -o ro,noat", ["ro,noatime"]),
        ("cairn wait x --timeout ", []),
        ("cairn completion ", ["bash", "zsh", "fish"]),
        ("cairn help sc", ["scrub"]),
        ("cairn nonsense ", []),
    ],
)
def test_bash_values(binary, directory, line, expected):
    """What comes after '=' and ':' is what bash inserts there."""
    assert bash_candidates(script(binary, "bash", directory), line) == expected


def test_bash_mountpoints(binary, cairn, directory):
    """Mounts of CairnFS, with a blank in the name; directories where one is to be mounted."""
    path = script(binary, "bash", directory)
    cairn.mnt = os.path.join(directory, "a mount")
    os.makedirs(cairn.mnt)
    cairn.mount()
    assert cairn.mnt in bash_candidates(path, "cairn umount ")
    assert cairn.mnt in bash_candidates(path, f"cairn scrub {directory}/a\\ m")
    assert "/proc" not in bash_candidates(path, "cairn umount ")
    assert f"{directory}/store" in bash_candidates(path, f"cairn mount {directory}/st")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_at_a_terminal(binary, cairn, directory, shell):
    """Tab keys give whole words: command, flag, word, and a mountpoint whose name has a blank."""
    if not shutil.which(shell):
        pytest.skip(f"skipped: {shell} is not installed")
    cairn.mnt = os.path.join(directory, "a mount")
    os.makedirs(cairn.mnt)
    cairn.mount()
    path = script(binary, shell, directory)
    begin = {"bash": f"bind 'set bell-style none'; source {path}\n", "zsh": f"autoload -U compinit; compinit -D -u; source {path}\n"}
    command = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell]
    keys = [begin[shell], SHOW, "cairn umo\t--dr\trem\t" + cairn.mnt[:-6] + "\t\n"]
    ways = {"bash": f"called:<umount><--drain><remote><{cairn.mnt}/>", "zsh": f"called:<umount><--drain=remote><{cairn.mnt}>"}
    written = type_at(command, keys, ways[shell], {"ZDOTDIR": directory, "HOME": directory})
    assert ways[shell] in written, written


def test_fish(binary, cairn, directory):
    """The same of fish."""
    if not shutil.which("fish"):
        pytest.skip("skipped: fish is not installed")
    cairn.mount()
    path = script(binary, "fish", directory)

    def offered(line):
        program = f"source {path}; complete -C '{line}'"
        done = subprocess.run(["fish", "--no-config", "-c", program], capture_output=True, text=True, errors="replace", timeout=60,
                              env={**os.environ, "HOME": directory})
        assert done.returncode == 0 and done.stderr == "", done
        return {row.split("\t")[0] for row in done.stdout.splitlines()}

    assert offered("cairn ") == set(commands(binary))
    for command in commands(binary):
        shown = {spelling for spelling, _ in flags(binary, command) if spelling.startswith("--")}
        assert shown <= offered(f"cairn {command} --"), command
    assert offered("cairn wait x --level ") == {"stage", "nvme", "remote"}
    assert "ro,fsync=" in offered("cairn mount a b -o ro,fsy")
    assert cairn.mnt in offered("cairn umount ")


def test_commands_take_the_flags_of_their_help(binary):
    """No flag is shown that the command refuses; an unknown one is refused, so nothing here is done."""
    for command in commands(binary):
        for spelling, has_value in flags(binary, command):
            given = [spelling, "?"] if has_value else [spelling]
            done = subprocess.run([binary, command, *given, "--nonsense"], capture_output=True, text=True, timeout=60,
                                  stdin=subprocess.DEVNULL)
            wrong = "'?'" if has_value and "--nonsense" not in done.stderr else "unknown option --nonsense"
            assert done.returncode != 0 and wrong in done.stderr, (command, spelling, done)


@pytest.mark.parametrize("args", [[], ["tcsh"], ["bash", "zsh"]])
def test_wrong_shell(binary, args):
    done = subprocess.run([binary, "completion", *args], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and done.stdout == "" and "bash|zsh|fish" in done.stderr and done.stderr.count("\n") == 1

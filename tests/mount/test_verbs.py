# SPDX-License-Identifier: Apache-2.0
"""The verbs as an operator meets them: what every wrong argument gets, help, several of one verb at once."""
import json
import os
import re
import signal
import subprocess

import pytest

import remote as remotes
import rig

pytestmark = pytest.mark.needs_mount

USAGE = 2
# Arguments, and a word of the line that says what is wrong. {mnt} is a mount, {store} its store, {plain} a directory that is neither,
# {file} a file on the mount, {loose} one that is not on it. All end with the usage code of the verb.
WRONG = {
    "mount": [("", "STORE"), ("{plain}/s", "MOUNTPOINT"), ("a b c", "unexpected argument 'c'"), ("{plain}/s {plain} --bogus", "--bogus"),
              ("{plain}/s {plain} -o stge=1G", "stge"), ("{plain}/s {plain} --stage", "--stage requires an argument"),
              ("{plain}/s {plain} --ro=1", "--ro takes no argument"), ("{plain}/s {plain} --stage 1X", "1X"),
              ("{plain}/s {plain} -o log_level=loud", "loud"), ("{plain}/s {plain} -o metrics=:9464", "127.0.0.1:9464"),
              ("{plain}/s {plain} -o metrics=localhost", "ADDRESS"), ("{plain}/s {plain} -o metrics=127.0.0.1:0", "metrics"),
              ("{plain}/s {plain} -o metrics=127.0.0.1:99999", "metrics"), ("{plain}/s {plain} -o metrics=[::1:80", "metrics"),
              ("{plain}/s {plain} --remote ftp://x", "s3://BUCKET/PREFIX"), ("{plain}/s {plain} -o fsync=remote", "no remote"),
              ("{plain}/s {plain} --region moon", "region"),
              *((f"{{plain}}/s {{plain}} -o {option}", option.split("=")[0]) for option in (
                  "no_such_option", "stage=12Q", "stage=-1", "stage=", "stage=1M", "nvme=abc", "fsync=maybe", "writeback_threads=0",
                  "writeback_limit=fast", "writeback_delay=5parsecs"))],
    "umount": [("", "MOUNTPOINT"), ("{mnt} {mnt}", "unexpected argument"), ("{mnt} --drain tape", "tape"), ("{mnt} -t soon", "soon"),
               ("{mnt} -t", "-t requires an argument"), ("{mnt} --bogus", "--bogus"), ("{plain}", "not a CairnFS mountpoint"),
               ("{mnt} --timeout soon", "soon"), ("/nonexistent", "nonexistent")],
    "status": [("{plain}", "neither"), ("{mnt} {mnt}", "unexpected argument"), ("--bogus", "--bogus"), ("-xj", "unknown option -x"),
               ("--json=yes", "--json takes no argument"), ("{loose}", "neither"), ("nowhere", "neither")],
    "info": [("", "PATH"), ("{mnt} {mnt}", "unexpected argument"), ("{plain}", "not on a CairnFS mount"), ("nowhere", "nowhere"),
             ("{mnt} -x", "-x"),
             ("{loose}/below", "Not a directory")],
    "du": [("", "PATH"), ("{plain}", "not on a CairnFS mount"), ("nowhere", "nowhere"), ("--bogus {mnt}", "--bogus"),
           ("--json", "PATH")],
    "stats": [("", "MOUNTPOINT"), ("{plain}", "not a CairnFS mountpoint"), ("{loose}", "not a CairnFS mountpoint"),
              ("{mnt} -i soon", "soon"),
              ("{mnt} --interval 1ms", "100 ms"), ("{mnt} -n 0", "a number from 1 on"), ("{mnt} -n x", "'x'"), ("{mnt} -n", "-n"),
              ("{mnt} {mnt}", "unexpected argument"), ("{mnt} --bogus", "--bogus")],
    "top": [("", "MOUNTPOINT"), ("{plain}", "not a CairnFS mountpoint"), ("{mnt} -i soon", "soon"), ("{mnt} --interval 1ms", "100 ms"),
            ("{mnt} -n 0", "a number from 1 on"), ("{mnt} {mnt}", "unexpected argument"), ("{mnt} --bogus", "--bogus")],
    "metrics": [("", "MOUNTPOINT"), ("{plain}", "not a CairnFS mountpoint"), ("{mnt} {mnt}", "unexpected argument"),
                ("{mnt} --json=yes", "--json takes no argument"),
                ("{store}", "not a CairnFS mountpoint")],
    "log": [("{plain}", "neither"), ("{mnt} {mnt}", "unexpected argument"), ("{mnt} --level loud", "loud"), ("{mnt} -n many", "many"),
            ("{mnt} --bogus", "--bogus"), ("{mnt} -l", "-l requires an argument")],
    "wait": [("", "PATH"), ("{mnt} --level moon", "moon"), ("{mnt} --timeout", "--timeout requires"), ("{mnt} -t x", "'x'"),
             ("{plain}", "not on a CairnFS mount"), ("nowhere", "nowhere")],
    "warmup": [("", "PATH"), ("{plain}", "not on a CairnFS mount"), ("nowhere", "nowhere"), ("{mnt} -t x", "'x'"),
               ("{mnt} --all", "--all")],
    "evict": [("", "PATH"), ("{plain}", "not on a CairnFS mount"), ("nowhere", "nowhere"), ("{mnt} -t x", "'x'"), ("{mnt} --all", "--all")],
    "scrub": [("", "MOUNTPOINT"), ("{mnt} {mnt}", "unexpected argument"), ("{plain}", "not a CairnFS mountpoint"),
              ("--rate fast {mnt}", "fast"),
              ("--rate 0 {mnt}", "bytes per second"), ("{mnt} --rate", "--rate"), ("{mnt} --bogus", "--bogus")],
    "gc": [("", "MOUNTPOINT"), ("{mnt} {mnt}", "unexpected argument"), ("{plain}", "not a CairnFS mountpoint"),
           ("{mnt} --force", "--force")],
    "upgrade": [("", "MOUNTPOINT"), ("{mnt} {mnt}", "unexpected argument"), ("{plain}", "not a CairnFS mountpoint"),
                ("{mnt} -t soon", "soon"), ("{mnt} -b", "-b requires an argument"),
                ("{mnt} --force", "--force")],
    "ls": [("", "SOURCE:PATH"), ("{loose}", "not a store"), ("--bogus dir:{plain}:/", "--bogus"), ("-x dir:{plain}:/", "-x"),
           ("ftp://host/path:/", "s3://")],
    "cp": [("", "LOCAL"), ("dir:{plain}:/", "LOCAL"), ("{loose} {plain}", "not a store"), ("--bogus dir:{plain}:/ x", "--bogus")],
    "history": [("", "SOURCE"), ("{loose}", "neither"), ("--bogus dir:{plain}", "--bogus"), ("--limit many dir:{plain}", "many"),
                ("ftp://host/path", "s3://")],
    "snapshot": [("", "create|list|rename|delete"), ("make {mnt}", "make"), ("create {mnt}", "one name"), ("create {mnt} a/b", "slash"),
                 ("rename {mnt} a", "two names"), ("list {mnt} x", "one SOURCE"), ("create {plain} x", "not a CairnFS mountpoint")],
    "nodes": [("", "list|aside|end|settle|rejoin"), ("{plain}", "not a CairnFS mountpoint"), ("end {mnt}", "MOUNTPOINT and EPOCH"),
              ("aside", "MOUNTPOINT or STORE"), ("{mnt} --bogus", "--bogus"), ("settle {mnt} --timeout soon", "soon")],
    "diff": [("", "SOURCE:PATH"), ("dir:{plain}:/", "--at"), ("--at -1 dir:{plain}:/", "no point in time"),
             ("--at 1 --to 2990-01-01T00:00:00Z dir:{plain}:/", "future"), ("--bogus dir:{plain}:/", "--bogus")],
    "advise": [("", "MOUNTPOINT"), ("{plain}", "not a CairnFS mountpoint"), ("{mnt} --mtbf soon", "soon"), ("{mnt} --mtbf 0s", "0s"),
               ("{mnt} {mnt}", "unexpected argument")],
    "restore": [("", "PATH"), ("{mnt}/x", "--at"), ("{plain} --at 1", "not on a CairnFS mount"), ("{mnt} --at -1", "no point in time"),
                ("{mnt} --bogus", "--bogus")],
    "fsck": [("", "STORE"), ("{store} {store}", "unexpected argument"), ("{plain}", "not a store"), ("-x {store}", "-x"),
             ("nowhere", "not a store")],
    "adopt": [("", "STORE"), ("{plain}", "--new-id"), ("--new-id", "missing argument STORE"), ("--new-id {plain}", "not a store"),
              ("--new-id -x {plain}", "-x"),
              ("--new-id {plain} {plain}", "unexpected argument")],
    "doctor": [("{plain}", "neither"), ("{mnt} {mnt}", "unexpected argument"), ("{mnt} -o", "-o requires an argument"),
               ("--bogus", "--bogus")],
    "version": [("now", "now")],
    "completion": [("", "bash|zsh|fish"), ("tcsh", "bash|zsh|fish"), ("bash zsh", "bash|zsh|fish"), ("--bogus", "unknown option --bogus")],
    "help": [("nothing", "nothing"), ("mount umount", "umount"), ("--bogus", "--bogus")],
}


def usage_code(verb):
    return {"mount": 1, "fsck": 16}.get(verb, USAGE)


def verbs_of(binary):
    done = subprocess.run([binary, "help"], capture_output=True, text=True, timeout=300)
    return re.findall(r"^  cairn (\w+) ", done.stdout, re.M)


def test_every_wrong_argument(cairn, directory, mnt):
    """One line that names the verb and what is wrong, and the convention's exit code; nothing else happens."""
    names = {"mnt": mnt, "store": cairn.store, "plain": directory + "/plain", "file": mnt + "/file",
             "loose": directory + "/loose"}
    os.mkdir(names["plain"])
    rig.write_file(names["file"], b"x")
    rig.write_file(names["loose"], b"x")
    assert sorted(WRONG) == sorted(verbs_of(cairn.binary)), "each verb has its wrong arguments here"
    problems = []
    for verb, cases in WRONG.items():
        for text, word in cases:
            done = cairn.cairn(verb, *text.format(**names).split(), timeout=300)
            lines = done.stderr.splitlines()
            good = len(lines) == 1 and lines[0].startswith(f"cairn {verb}: ") and word.lower() in lines[0].lower()
            if done.returncode != usage_code(verb) or done.stdout or not good:
                problems.append((verb, text, word, done.returncode, done.stdout[:100], done.stderr))
    assert not problems, "\n".join(map(str, problems))
    assert os.listdir(names["plain"]) == [] and cairn.answers()


@pytest.mark.parametrize("word, said", [("--bad", "unknown option --bad; see 'cairn help'"), ("-x", "unknown option -x; see 'cairn help'"),
                                        ("foo", "unknown command 'foo'; 'cairn help' lists all")])
def test_an_unknown_first_word(binary, word, said):
    done = subprocess.run([binary, word], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (USAGE, "", f"cairn: {said}\n")


def test_each_verb_explains_itself(binary):
    """`cairn help VERB` and `cairn VERB --help` say the same, with the exit statuses."""
    for verb in verbs_of(binary):
        shown = [subprocess.run([binary, *args], capture_output=True, text=True, timeout=300)
                 for args in (("help", verb), (verb, "--help"))]
        assert shown[0].stdout == shown[1].stdout and "\nExit status:\n  0 " in shown[0].stdout, verb
        assert shown[0].returncode == shown[1].returncode == 0 and not shown[0].stderr


@pytest.mark.parametrize("drain", ["nvme", "remote"])
def test_umounts_at_once(cairn, directory, drain):
    """All of them wait for the one end, and say 0; one that comes after it finds no mount."""
    for number in range(2):
        cairn.mount(writeback_delay="10m", writeback_limit="64K", **({"remote": f"dir:{directory}/remote"} if drain == "remote" else {}))
        rig.write_file(cairn.mnt + "/file", rig.seeded_bytes(number, 4 * rig.MIB))
        verbs = [subprocess.Popen([cairn.binary, "umount", cairn.mnt, "--drain", drain], stderr=subprocess.PIPE, text=True)
                 for _ in range(4)]
        said = [(verb.communicate(timeout=300)[1], verb.returncode) for verb in verbs]
        assert 0 in [code for _, code in said] and cairn.reap() == 0 and not rig.mounted_at(cairn.mnt)
        for text, code in said:
            assert code == 0 or (code == 2 and "is not a CairnFS mountpoint" in text) or (
                drain == "remote" and code == 1 and "the remote may lack some data" in text), said


def names_of(answer, place=""):
    """The names of all fields, with those that they lie in."""
    if isinstance(answer, dict):
        return {place}.union(*(names_of(value, f"{place}.{name}") for name, value in answer.items()))
    return {place}


def test_each_command_that_prints_a_result_has_json(cairn):
    """umount and mount print nothing, completion prints a script, doctor the name of a file, too; top is for people, and stats for programs."""
    commands = json.loads(cairn.cairn("help", "--json").stdout)["commands"]
    without = {command["name"] for command in commands if "json" not in [flag.get("name") for flag in command["flags"]]}
    assert without == {"mount", "umount", "completion", "top"}


def test_results_as_json(cairn, mnt):
    """Of commands that have no other test of theirs."""
    rig.write_file(os.path.join(mnt, "file"), bytes(rig.MIB) + os.urandom(rig.MIB))
    listed = json.loads(cairn.cairn("metrics", "--json", mnt).stdout)
    lines = [line for line in cairn.cairn("metrics", mnt).stdout.splitlines() if not line.startswith("#")]
    assert sorted({re.match(r"\w+", line)[0] for line in lines}) == sorted(one["name"] for one in listed) and len(listed) > 40
    info = next(one for one in listed if one["name"] == "cairnfs_info")
    assert info["type"] == "gauge" and info["help"] and info["samples"][0]["labels"]["mountpoint"] == mnt
    size = next(one for one in listed if one["name"] == "cairnfs_stage_size_bytes")
    assert size["samples"] == [{"labels": {}, "value": cairn.status()["stage"]["total_bytes"]}]
    archive = cairn.root + "/report.tar.gz"
    assert json.loads(cairn.cairn("doctor", "--json", "-o", archive, mnt).stdout) == {"archive": archive, "unanswered": []}
    cairn.umount()
    checked = json.loads(cairn.cairn("fsck", "--json", cairn.store).stdout)
    assert checked["store"] == cairn.store and checked["clean"] and checked["problems"] == []
    assert json.loads(cairn.cairn("fsck", "--json", "--repair", cairn.store).stdout)["repaired"] is False
    adopted = json.loads(cairn.cairn("adopt", "--new-id", "--json", cairn.store).stdout)
    assert adopted == {"store": cairn.store, "store_id": json.loads(cairn.cairn("status", "--json", cairn.store).stdout)["store_id"]}
    for name in os.listdir(cairn.store + "/packs"):
        os.unlink(f"{cairn.store}/packs/{name}")
    done = cairn.cairn("fsck", "--json", cairn.store)
    checked = json.loads(done.stdout)
    assert done.returncode == 4 and checked["problems"] and not checked["clean"], done


def figures(cairn):
    return json.loads(cairn.cairn("help", "--json").stdout)["figures"]


def figure_names(value, place=""):
    """As the table of figures has them: `nvme.used_bytes`, `damage`, `damage[].path`."""
    if isinstance(value, dict):
        return {name for key, below in value.items() for name in figure_names(below, f"{place}.{key}" if place else key)}
    if isinstance(value, list):
        return {place}.union(*(figure_names(item, place + "[]") for item in value))
    return {place}


LISTS = {"errors", "nvme.reduction.encodings", "remote.reduction.encodings"}


def test_each_figure_is_in_the_table(on_remote, directory):
    """JSON, metrics and `status -v` have what the table says, and nothing else."""
    cairn = on_remote(remotes.DirRemote(directory)).mount()
    cairn.write("file", os.urandom(rig.MIB), "remote")
    os.setxattr(cairn.mnt, "user.cairn.lane", b"1 pending=0 saves=0 blocked_ns=0 published=1 failed=1 error=x")
    printed = cairn.cairn("status", "--json", cairn.mnt).stdout
    assert int(re.search(r'"pid":\s*(\d+)', printed)[1]) == cairn.proc.pid, "the first is the daemon's: scripts take it"
    assert list(json.loads(printed))[:3] == ["version", "store", "store_id"]
    table = {figure["json"]: figure for figure in figures(cairn)}
    assert len(table) == len(figures(cairn)) > 130
    shown = figure_names(cairn.status())
    assert shown - LISTS <= set(table), shown - LISTS - set(table)
    metrics = {match[1] for match in re.finditer(r"^# TYPE (\w+)", cairn.cairn("metrics", cairn.mnt).stdout, re.MULTILINE)}
    fenced = {figure["metric"] for figure in table.values() if "unpublished" in figure.get("metric", "")}
    nodes = {figure["metric"] for figure in table.values() if "metric" in figure and figure["json"].startswith("remote.nodes.")}
    told = {figure["metric"] for figure in table.values() if "metric" in figure}
    assert metrics == told - fenced - nodes | {"cairnfs_info", "cairnfs_remote_state"}
    assert (len(fenced), len(nodes)) == (2, 14)
    text = cairn.cairn("status", "-v", cairn.mnt).stdout
    for name in shown & set(table):
        if "text" in table[name]:
            assert re.search(rf"^    {re.escape(table[name]['text'])} +\S", text, re.MULTILINE), name
    cairn.umount()
    assert figure_names(json.loads(cairn.cairn("status", "--json", cairn.store).stdout)) - LISTS <= set(table)


def test_status_is_short(on_remote, directory):
    """A title and nine rows, none with a number of an operation; all figures with -v."""
    cairn = on_remote(remotes.DirRemote(directory)).mount()
    cairn.write("file", os.urandom(rig.MIB), "remote")
    rig.poll(lambda: cairn.remote_status()["state"] == "idle", 30, "the upload")
    lines = cairn.cairn("status", cairn.mnt).stdout.splitlines()
    labels = ["daemon", "stage", "files", "nvme", "not yet on NVMe", "remote", "not yet uploaded", "damage", "errors"]
    assert [line[:18].strip() for line in lines[1:]] == labels
    newest = str(cairn.status()["nvme"]["newest_seq"])
    long = cairn.cairn("status", "-v", cairn.mnt).stdout
    assert newest not in "".join(lines) and newest in long and "= at most" in long and len(long.splitlines()) > 80


def test_status_prints_what_the_daemon_answers(cairn, mnt):
    """So tests ask the daemon (Mount.status())."""
    cairn.write("file", bytes(rig.MIB), "nvme")
    printed, answer = json.loads(cairn.cairn("status", "--json", mnt).stdout), cairn.ask(verb="status")
    assert names_of(printed) == names_of(answer) == names_of(cairn.status()) and len(names_of(printed)) > 50
    assert printed["nvme"]["files"] == answer["nvme"]["files"] == 1 and printed["pid"] == answer["pid"] == cairn.proc.pid
    cairn.umount()
    assert cairn.ask(verb="status") is None
    assert json.loads(cairn.cairn("status", "--json", cairn.store).stdout)["nvme"]["files"] == 1


def test_status_names_a_daemon_that_does_not_answer(mount_factory, directory):
    mount = mount_factory(directory)
    mount.mount()
    os.kill(mount.proc.pid, signal.SIGSTOP)
    try:
        done = mount.verb("status", mount.mnt, code=1)
    finally:
        os.kill(mount.proc.pid, signal.SIGCONT)
    assert done.stderr == f"cairn status: the daemon (pid {mount.proc.pid}) does not answer; its log: {mount.store}/log\n"
    mount.umount()

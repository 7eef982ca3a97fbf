# SPDX-License-Identifier: Apache-2.0
"""What contrib/ has: dashboard and alerts against the metrics of a real mount, promtool, and Slurm's scripts run as Slurm runs them."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess

import pytest
import processes
import remote as remotes
import rig

CONTRIB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "contrib")
RULES = os.path.join(CONTRIB, "prometheus", "cairnfs-rules.yml")
METRIC = re.compile(r"\bcairnfs_\w+")
NOBODY = 65534


def dashboard():
    return json.loads(rig.read_text(os.path.join(CONTRIB, "grafana", "cairnfs.json")))


def expressions():
    return [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]


def rules():
    return re.findall(r"^        expr: (.*)$", rig.read_file(RULES).decode(), re.MULTILINE)


@pytest.mark.needs_mount
def test_metrics_of_dashboard_and_alerts_exist(on_remote, directory):
    """Each name is one that a mount with a remote and a program that saves lazily shows."""
    cairn = on_remote(remotes.DirRemote(directory))
    cairn.mount()
    os.setxattr(cairn.mnt, "user.cairn.lane", b"1 pending=0 saves=0 blocked_ns=0 published=1 failed=0 error=")
    shown = {match[0] for line in cairn.cairn("metrics", cairn.mnt).stdout.splitlines() if (match := METRIC.match(line))}
    assert len(expressions()) > 40 and len(rules()) > 10
    variables = [variable["definition"] for variable in dashboard()["templating"]["list"] if "definition" in variable]
    for expression in [*expressions(), *rules(), *variables]:
        assert set(METRIC.findall(expression)) <= shown, expression
    states = set(re.findall(r'state="(\w+)"', cairn.cairn("metrics", cairn.mnt).stdout))
    assert {state for text in [*expressions(), *rules()] for state in re.findall(r'state="(\w+)"', text)} <= states


def figures(binary):
    return json.loads(subprocess.run([binary, "help", "--json"], capture_output=True, check=True).stdout)["figures"]


def test_figures_keep_their_names(binary):
    """figure_names.txt has those of a release: scripts and dashboards read them. New ones come with the next release."""
    names = {" ".join(filter(None, (figure["json"], figure.get("metric")))) for figure in figures(binary)}
    kept = rig.read_file(os.path.join(os.path.dirname(__file__), "figure_names.txt")).decode().splitlines()
    assert [name for name in kept if name not in names] == [] and len(kept) > 150


def test_dashboard_alerts_and_docs_name_metrics_of_the_table(binary):
    """Without a mount; of each metric of a lazy save the docs give the end of its name, too."""
    known = {figure["metric"] for figure in figures(binary) if "metric" in figure} | {"cairnfs_info", "cairnfs_remote_state"}
    for expression in [*expressions(), *rules()]:
        assert set(METRIC.findall(expression)) <= known, expression
    docs = os.path.join(CONTRIB, "..", "docs")
    for name in sorted(os.listdir(docs)):
        if name.endswith(".md"):
            assert set(METRIC.findall(rig.read_file(os.path.join(docs, name)).decode())) <= known, name


def test_dashboard_is_laid_out():
    """No two panels have one number, or lie over each other."""
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells


@pytest.fixture
def promtool(request):
    """promtool(argument...), of Debian's package prometheus; it must succeed."""
    found = shutil.which("promtool") or shutil.which(os.path.join(request.config.getoption("--build"), "tools", "promtool"))
    if not found:
        pytest.skip("skipped: promtool is not installed (package prometheus)")

    def run(*arguments):
        rig.run(os.path.abspath(found), *arguments, timeout=300, cwd=os.path.dirname(RULES))

    return run


def test_alerts_fire_for_what_they_are_for(promtool):
    promtool("check", "config", "prometheus.yml")
    promtool("check", "rules", RULES)
    promtool("test", "rules", "cairnfs-rules-test.yml")
    tests = rig.read_file(os.path.join(CONTRIB, "prometheus", "cairnfs-rules-test.yml")).decode()
    fired = set(re.findall(r"alertname: (\w+)\n\s+exp_alerts:\n", tests))
    quiet = set(re.findall(r"alertname: (\w+), exp_alerts: \[\]", tests))
    assert fired == quiet == set(re.findall(r"alert: (\w+)", rig.read_file(RULES).decode()))


def test_expressions_of_the_dashboard_parse(promtool, directory):
    """As recording rules, with what Grafana puts in the place of its variables."""
    records = []
    for number, expression in enumerate(expressions()):
        expression = expression.replace("$__rate_interval", "1m").replace("$instance", ".*")
        records.append({"record": f"panel:{number}", "expr": expression})
    rules_file = os.path.join(directory, "rules.yml")
    rig.write_file(rules_file, json.dumps({"groups": [{"name": "dashboard", "rules": records}]}).encode())
    promtool("check", "rules", rules_file)


class Slurm:
    """Runs prolog and epilog with the environment and the empty PATH that slurmd gives them."""

    def __init__(self, directory, binary):
        self.directory, self.binary = directory, binary
        os.chmod(directory, 0o755)
        self.mnt, self.store, self.remote = (os.path.join(directory, name) for name in ("mnt/77", "nvme/77", "remote"))
        self.stage_dir = os.path.join(directory, "shm")
        os.mkdir(self.stage_dir)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", self.stage_dir], check=True)
        self.conf = os.path.join(directory, "slurm.conf")

    def configure(self, **more):
        values = {"MOUNTPOINT": f"{self.directory}/mnt/$SLURM_JOB_ID", "STORE": f"{self.directory}/nvme/$SLURM_JOB_ID",
                  "OPTIONS": f"stage_dir={self.stage_dir},stage=64M", "DRAIN_TIMEOUT": "5m", "REMOTE": f"dir:{self.remote}", **more}
        lines = [f'{name}="{value}"' for name, value in values.items()]
        rig.write_file(self.conf, "\n".join([f'PATH="{os.path.dirname(self.binary)}:$PATH"', *lines, ""]).encode())

    def run(self, script, code=0, **more):
        environment = {"SLURM_JOB_ID": "77", "SLURM_JOB_UID": str(NOBODY), "SLURM_JOB_USER": "nobody", "SLURM_CLUSTER_NAME": "test",
                       "SLURM_JOB_PARTITION": "gpu", "CAIRNFS_SLURM_CONF": self.conf, **more}
        if script == "epilog":
            del environment["SLURM_JOB_PARTITION"]
        # Also to the end of what it leaves in the background, if that kept the pipes: it must not.
        done = subprocess.run([os.path.join(CONTRIB, "slurm", script)], env=environment, capture_output=True, text=True, timeout=300,
                              cwd="/")
        assert done.returncode == code, (script, done)
        return done.stderr

    def job(self, program):
        rig.run("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "sh", "-ec", program, timeout=300, cwd="/")

    def kill(self):
        """The holder and the daemon of the job's mount, as the end of their cgroup kills them."""
        status = json.loads(subprocess.run([self.binary, "status", "--json", self.mnt], capture_output=True, check=True).stdout)
        for pid in (processes.parent_of(status["pid"]), status["pid"]):
            os.kill(pid, signal.SIGKILL)
        rig.poll(lambda: not os.path.exists(f"/proc/{status['pid']}"), 30, "the daemon's end")

    def published(self, path, name):
        """The content of a file in the remote."""
        rig.run(self.binary, "cp", f"dir:{self.remote}:/{name}", path, timeout=300)
        return rig.read_file(path)

    def close(self):
        if os.path.ismount(self.mnt):
            subprocess.run([self.binary, "umount", self.mnt], capture_output=True, timeout=300)
        for path in (self.mnt, self.stage_dir):
            subprocess.run(["umount", "-l", path], capture_output=True)


@pytest.fixture
def slurm(request, directory, binary):
    rig.need_root("/dev/fuse")
    made = Slurm(directory, binary)
    request.addfinalizer(made.close)
    return made


@pytest.mark.needs_mount
def test_a_job_of_slurm(slurm):
    """The job finds a mount of its own; at its end all is in the remote, and the node is as before. A requeued job finds it again."""
    slurm.configure()
    slurm.run("prolog")
    slurm.job(f"umask 077; echo saved >{slurm.mnt}/checkpoint")
    slurm.run("epilog")
    assert not os.path.lexists(slurm.mnt) and os.listdir(f"{slurm.directory}/nvme") == [] and os.listdir(slurm.stage_dir) == []
    slurm.run("prolog")
    slurm.job(f'test "$(cat {slurm.mnt}/checkpoint)" = saved')
    slurm.run("epilog")
    assert not os.path.lexists(slurm.mnt)


@pytest.mark.needs_mount
def test_a_job_of_another_partition(slurm):
    slurm.configure(PARTITIONS="big gpus")
    slurm.run("prolog")
    assert not os.path.lexists(slurm.mnt)
    slurm.run("epilog")


@pytest.mark.needs_mount
def test_a_job_whose_remote_went_away(slurm):
    """The epilog fails, so that the node is drained; the mount has ended, and the store has what the remote lacks."""
    slurm.configure(DRAIN_TIMEOUT="3s", OPTIONS=f"stage_dir={slurm.stage_dir},stage=64M,remote_timeout=1s")
    slurm.run("prolog")
    os.rename(slurm.remote, slurm.remote + ".away")
    slurm.job(f"echo saved >{slurm.mnt}/checkpoint")
    assert f"it stays in {slurm.store}" in slurm.run("epilog", code=3)
    assert not os.path.lexists(slurm.mnt)
    os.rename(slurm.remote + ".away", slurm.remote)
    slurm.configure()
    slurm.run("prolog")
    slurm.job(f'test "$(cat {slurm.mnt}/checkpoint)" = saved')
    slurm.run("epilog")
    assert os.listdir(f"{slurm.directory}/nvme") == []


SAVED = rig.seeded_bytes(1, 12 * rig.MIB)


def save(slurm):
    path = rig.write_file(os.path.join(slurm.directory, "saved"), SAVED)
    slurm.job(f"cp {path} {slurm.mnt}/checkpoint; sync {slurm.mnt}/checkpoint")


@pytest.mark.needs_mount
@pytest.mark.parametrize("vanished", [False, True], ids=["dead", "vanished"])
def test_a_job_whose_daemon_died(slurm, vanished):
    """The epilog mounts the store again, also where nothing is mounted any more, and removes it only when all is in the remote."""
    slurm.configure(OPTIONS=f"stage_dir={slurm.stage_dir},stage=64M,upload_limit=64K")
    slurm.run("prolog")
    save(slurm)
    slurm.kill()
    if vanished:
        subprocess.run(["umount", "-l", slurm.mnt], check=True)
    slurm.run("epilog")
    assert not os.path.lexists(slurm.mnt) and os.listdir(f"{slurm.directory}/nvme") == [] and os.listdir(slurm.stage_dir) == []
    assert slurm.published(f"{slurm.directory}/copy", "checkpoint") == SAVED


@pytest.mark.needs_mount
def test_a_job_whose_daemon_died_and_whose_remote_went_away(slurm):
    """Nothing is removed, the epilog fails; the next one makes it good."""
    slurm.configure(DRAIN_TIMEOUT="3s", OPTIONS=f"stage_dir={slurm.stage_dir},stage=64M,remote_timeout=1s")
    slurm.run("prolog")
    save(slurm)
    slurm.kill()
    os.rename(slurm.remote, slurm.remote + ".away")
    rig.write_file(slurm.conf, b"sleep() { :; }\n", os.O_WRONLY | os.O_APPEND)
    assert f"it stays in {slurm.store}" in slurm.run("epilog", code=32)
    os.rename(slurm.remote + ".away", slurm.remote)
    slurm.run("epilog")
    assert os.listdir(f"{slurm.directory}/nvme") == [] and os.listdir(slurm.stage_dir) == []
    assert slurm.published(f"{slurm.directory}/copy", "checkpoint") == SAVED


@pytest.mark.needs_mount
def test_what_was_set_aside_stays(slurm):
    """All nodes went back to an earlier state (tests/nodes/test_lost_nodes.py): this node alone has what it had done since."""
    slurm.configure()
    slurm.run("prolog")
    save(slurm)
    aside = os.path.join(slurm.store, "aside", "1")
    os.makedirs(aside)
    rig.write_file(os.path.join(aside, "superblock"), b"x")
    said = slurm.run("epilog", code=1)
    assert "is set aside" in said and f"it stays in {slurm.store}" in said
    assert os.listdir(aside) == ["superblock"] and not os.path.lexists(slurm.mnt)
    assert slurm.published(f"{slurm.directory}/copy", "checkpoint") == SAVED
    shutil.rmtree(os.path.dirname(aside))
    slurm.run("epilog")
    assert os.listdir(f"{slurm.directory}/nvme") == []


@pytest.mark.needs_mount
@pytest.mark.parametrize("dead", [False, True], ids=["alive", "dead"])
def test_the_mount_of_another_job(slurm, dead):
    """With one MOUNTPOINT for all jobs: the epilog drains and unmounts no store but its own, and removes none then."""
    slurm.configure(MOUNTPOINT=slurm.mnt)
    slurm.run("prolog", SLURM_JOB_ID="78")
    save(slurm)
    if dead:
        slurm.kill()
    os.makedirs(slurm.store)
    rig.write_file(os.path.join(slurm.store, "undrained"), b"x")
    assert f"{slurm.directory}/nvme/78 is mounted at" in slurm.run("epilog", code=1)
    assert os.listdir(slurm.store) == ["undrained"] and os.path.isdir(f"{slurm.directory}/nvme/78")
    if dead:
        slurm.run("prolog", SLURM_JOB_ID="78")
    assert rig.read_file(f"{slurm.mnt}/checkpoint") == SAVED
    slurm.run("epilog", SLURM_JOB_ID="78")
    assert os.listdir(f"{slurm.directory}/nvme") == ["77"]


def test_nothing_of_another_name():
    """Each directory of contrib/ is spoken of in its README."""
    text = rig.read_file(os.path.join(CONTRIB, "README.md")).decode()
    assert [path for path in glob.glob(os.path.join(CONTRIB, "*", "")) if f"`{os.path.basename(path[:-1])}/`" not in text] == []

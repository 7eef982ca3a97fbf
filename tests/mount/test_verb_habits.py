# SPDX-License-Identifier: Apache-2.0
"""The verbs meet people halfway: what they mistype is guessed, what they know of other tools works or is explained, any path names its
mount, and every result can be had as JSON."""
import json
import os
import subprocess

import pytest

import rig
import successor

pytestmark = pytest.mark.needs_mount


def said(binary, *words):
    done = subprocess.run([binary, *words], capture_output=True, text=True, timeout=300)
    assert done.stdout == "" and done.stderr.count("\n") == 1, done
    return done.stderr.strip()


@pytest.mark.parametrize("words, meant", [
    (["moutn"], "did you mean 'mount'?"), (["/nvme/store", "/mnt", "-o", "rw"], "the type for mount(8) and fstab is cairnfs"),
    (["unmount"], "did you mean 'umount'?"), (["help", "statsu"], "did you mean 'status'?"),
    (["mount", "a", "b", "-o", "stag=5G"], "did you mean stage?"), (["mount", "a", "b", "-o", "compress=zstd"], "did you mean reduce?"),
    (["mount", "a", "b", "-o", "stage-dri=/x"], "did you mean stage_dir?"),
    (["mount", "a", "b", "--remoet", "x"], "did you mean --remote?"),
    (["mount", "a", "b", "--read-only"], "use --ro"), (["wait", "--levle", "nvme", "x"], "did you mean --level?"),
    (["ls", "--endpoint-ulr=x", "s3://a:/"], "did you mean --endpoint-url?"), (["umount", "-l", "x"], "umount -l"),
    (["umount", "-f", "x"], "end the programs"), (["umount", "--force", "x"], "end the programs"),
    (["cp", "-a", "a", "b"], "use -r"), (["mount", "a", "b", "--encrypt"], "see 'cairn help mount'"),
    (["mount", "a", "b", "-o", "quota"], "'cairn help mount' lists all")])
def test_what_was_meant(binary, words, meant):
    assert meant in said(binary, *words)


def test_h_is_help(binary):
    """Where it has no other meaning."""
    for verb in ("status", "gc", "umount"):
        shown = [subprocess.run([binary, verb, flag], capture_output=True, text=True, timeout=300) for flag in ("-h", "--help")]
        assert shown[0].stdout == shown[1].stdout != "" and shown[0].returncode == 0, verb


def test_harmless_habits(cairn, directory):
    """ls -a, ls -lh, du -sh do what is meant."""
    cairn.mount(remote=f"dir:{directory}/remote")
    cairn.write(".hidden", b"x" * 3000, "remote")
    for flags in (["-s"], ["-h"], ["-sh"]):
        assert "2.9 KiB" in cairn.verb("du", *flags, cairn.mnt).stdout
    assert ".hidden" in cairn.verb("ls", "-a", f"dir:{directory}/remote:/").stdout
    assert " 3000 " in cairn.cairn("ls", "-l", f"dir:{directory}/remote:/").stdout
    assert " 2.9 KiB " in cairn.cairn("ls", "-alh", f"dir:{directory}/remote:/").stdout


def test_any_path_names_its_mount(cairn, mnt):
    """A file or directory on a mount stands for the mount, also for verbs of the whole."""
    os.makedirs(mnt + "/run/step1")
    rig.write_file(mnt + "/run/step1/file", b"x")
    os.symlink(mnt + "/run", cairn.root + "/link")
    for path in (mnt + "/run/step1", mnt + "/run/step1/file", cairn.root + "/link/step1"):
        for verb, *flags in (["status", "--json"], ["log"], ["stats", "-n", "1", "-i", "100ms"], ["metrics"], ["gc", "-n"], ["scrub"]):
            done = cairn.cairn(verb, *flags, path)
            assert done.returncode == 0 and not done.stderr and (done.stdout or verb == "log"), (verb, path, done)
        assert json.loads(cairn.cairn("status", "--json", path).stdout)["pid"] == cairn.proc.pid
        assert f"is on the mount {mnt}; give that" in cairn.verb("umount", path, code=2).stderr and cairn.answers()


def result(done):
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def test_results_as_json(cairn, directory):
    """ls, wait, gc, scrub, version."""
    cairn.mount(remote=f"dir:{directory}/remote")
    os.mkdir(cairn.mnt + "/run")
    rig.write_file(cairn.mnt + "/run/a\nb", rig.noise(1, 100_000))
    os.symlink("run", cairn.mnt + "/latest")
    waited = result(cairn.cairn("wait", "--json", "--level", "remote", cairn.mnt + "/run", cairn.mnt))
    assert waited == {"paths": [cairn.mnt + "/run", cairn.mnt], "level": "remote", "reached": True, "timed_out": False, "left_bytes": 0}
    scrubbed = result(cairn.cairn("scrub", "--json", cairn.mnt))
    assert scrubbed["chunks"] > 0 and scrubbed["damaged"] == scrubbed["not_healed"] == 0 and scrubbed["complete"]
    assert result(cairn.cairn("gc", "-nj", cairn.mnt))["dry_run"] is True
    source = f"dir:{directory}/remote:/"
    listed = {entry["path"]: entry for entry in result(cairn.cairn("ls", "-R", "--json", source))}
    assert sorted(listed) == ["/latest", "/run", "/run/a\nb"]
    assert listed["/run/a\nb"]["bytes"] == 100_000 and listed["/run/a\nb"]["type"] == "file"
    assert listed["/latest"]["target"] == "run" and listed["/latest"]["type"] == "link" and listed["/run"]["type"] == "directory"
    assert [entry["path"] for entry in result(cairn.cairn("ls", "--json", source + "run/a\nb"))] == ["/run/a\nb"]
    version = cairn.cairn("version").stdout.split()[1]
    assert result(cairn.cairn("version", "--json")) == {"version": version}


def test_a_wait_that_times_out_as_json(cairn):
    cairn.mount(writeback_delay="10m", writeback_limit="64K")
    rig.write_file(cairn.mnt + "/file", rig.noise(1, 8 * rig.MIB))
    done = cairn.cairn("wait", "--json", "-t", "1ms", cairn.mnt)
    waited = json.loads(done.stdout)
    assert done.returncode == 3 and waited["timed_out"] and not waited["reached"] and waited["left_bytes"] > 0, done


def test_an_upgrade_as_json(mount_factory, request, directory):
    kept = mount_factory(directory, kind=successor.Kept, successor="on", crash_window=0, request=request)
    kept.mount()
    done = result(kept.cairn("upgrade", "--json", kept.mnt))
    assert done["mountpoint"] == kept.mnt and done["from"] == done["to"] and done["pause_s"] >= 0

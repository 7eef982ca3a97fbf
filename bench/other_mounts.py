# SPDX-License-Identifier: Apache-2.0
"""Other mounts of a bucket or a directory, for bench_remote.py and bench_waits.py to compare with."""
import os
import subprocess
import sys

from bench_common import rig

import s3_client  # noqa: E402

CONNECTIONS = 16  # at once, as the mount has


class Tool:
    """Another mount of a bucket, or of a directory, as a child of ours."""

    def __init__(self, bench):
        self.bench, self.remote = bench, bench.remote()
        self.root = bench.directory(self.name)
        self.mnt = os.path.join(self.root, "mnt")
        os.mkdir(self.mnt)

    def prepare(self):
        pass

    def mount(self):
        self.prepare()
        log = open(os.path.join(self.root, "log"), "wb")
        with log:
            self.proc = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.remote.env())
        rig.poll(self.is_mounted, 30, f"{self.name} to mount")
        return self

    def is_mounted(self):
        if self.proc.poll() is not None:
            sys.exit(f"{self.name} ended: {rig.read_file(os.path.join(self.root, 'log')).decode()[-500:]}")
        return rig.mounted_at(self.mnt)

    def umount(self):
        rig.file_systems_unmount(self.mnt)
        try:
            self.proc.wait(60)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait(10)

    def is_there(self):
        return self.remote.names().get("checkpoint") == self.bench.total


class Rclone(Tool):
    name = "rclone"

    def place(self):
        if self.remote.kind == "dir":
            return f":local:{self.remote.path}"
        return f":s3,provider=Ceph,env_auth=true,endpoint='{self.bench.rgw.endpoint}':{self.remote.bucket}/{self.remote.prefix}"

    def command(self):
        cache = os.path.join(self.root, "cache")
        return ["rclone", "mount", self.place(), self.mnt, "--vfs-cache-mode", "writes", "--vfs-write-back", "0s", "--cache-dir", cache,
                "--config", "/dev/null"]


class S3fs(Tool):
    name = "s3fs"

    def command(self):
        options = f"url={self.bench.rgw.endpoint},use_path_request_style,use_cache={self.root}/cache,parallel_count={CONNECTIONS},endpoint={s3_client.REGION}"
        return ["s3fs", f"{self.remote.bucket}:/{self.remote.prefix}", self.mnt, "-f", "-o", options]


class JuiceFS(Tool):
    """Written through, as by default: a close returns when all objects are in the directory. Nothing there is fsynced."""

    name = "juicefs"

    def meta(self):
        return f"sqlite3://{self.root}/meta.db"

    def prepare(self):
        made = ["juicefs", "format", self.meta(), "bench", "--storage", "file", "--bucket", f"{self.remote.path}/"]
        subprocess.run(made, check=True, capture_output=True)

    def command(self):
        return ["juicefs", "mount", self.meta(), self.mnt, "--no-usage-report", "--no-syslog", "--cache-dir", f"{self.root}/cache"]

    def is_there(self):
        return self.remote.bytes() >= self.bench.total

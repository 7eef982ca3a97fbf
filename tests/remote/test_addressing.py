# SPDX-License-Identifier: Apache-2.0
"""Where the bucket's name goes: in the path, or in the name of the host. Against a real server."""
import os

import pytest

import remote as remotes
import rig

pytestmark = pytest.mark.needs_mount


@pytest.mark.parametrize("addressing", ["path", "virtual"])
def test_addressing(on_remote, s3, proxy, addressing):
    """Stored, listed, taken over, deleted: each request finds its bucket, and its signature is right."""
    way = remotes.S3Remote(s3.rgw, s3.prefix, f"http://localhost:{proxy.port}")  # any name below localhost is this machine
    mount = on_remote(way, addressing=addressing, gc_grace="1s").mount()
    for i in range(3):
        mount.write("file", rig.seeded_bytes(i, 3 * rig.MIB), "remote")
    rig.poll(lambda: len(s3.heads()) == 1, 20, "older heads to be deleted", 0.2)
    mount.umount(drain="remote")
    with mount.elsewhere() as fresh:
        assert rig.read_file(os.path.join(fresh.mnt, "file")) == rig.seeded_bytes(2, 3 * rig.MIB)
    paths = {entry["path"].split("?")[0] for entry in proxy.log()}
    top = f"/{s3.prefix}/" if addressing == "virtual" else f"/{s3.bucket}/{s3.prefix}/"
    assert any(path.startswith(top + "packs/") for path in paths) and any(path.startswith(top + "heads/") for path in paths)
    assert all(path.startswith(top) or path in ("/", f"/{s3.bucket}") for path in paths), paths
    assert {entry["status"] for entry in proxy.log()} <= {200, 204, 206, 404, 412}

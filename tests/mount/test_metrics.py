# SPDX-License-Identifier: Apache-2.0
"""What a mount tells of itself while it works: `cairn stats`, metrics and health, also over HTTP, whatever the clients are like."""
import concurrent.futures
import contextlib
import errno
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest

import remote as remotes
import rig
import trained
from processes import free_port

pytestmark = pytest.mark.needs_mount


# ---------------------------------------------------------------- stats


@contextlib.contextmanager
def stats_of(cairn, *options):
    """The lines that `cairn stats` writes meanwhile, as they come. What happens from the first one on is a difference to something."""
    command = [cairn.binary, "stats", cairn.mnt, "--json", "--interval", "200ms", *options]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stats, concurrent.futures.ThreadPoolExecutor(1) as pool:
        lines.append(json.loads(stats.stdout.readline()))
        reading = pool.submit(lambda: lines.extend(map(json.loads, stats.stdout)))
        try:
            yield lines
        finally:
            if not options:
                stats.send_signal(signal.SIGINT)
            reading.result()
    assert stats.returncode == 0 or not options


def wait_for_line(lines, condition, what):
    """Until a line that is yet to come meets the condition."""
    seen = len(lines)
    rig.poll(lambda: any(condition(line) for line in lines[seen:]), 30, what)


def total(lines, name):
    """What a rate came to, from the first line on."""
    return sum(line[name] * (line["time_s"] - before["time_s"]) for before, line in zip(lines, lines[1:]))


@contextlib.contextmanager
def expected_totals(lines, sizes):
    """At the end the lines come to these sizes: what is sampled may be read later."""
    yield
    rig.poll(lambda: all(total(lines, name) > 0.75 * size for name, size in sizes.items()), 30, f"{sizes}")
    for name, size in sizes.items():
        assert total(lines, name) == pytest.approx(size, rel=0.25), name


def test_stats_ends_after_a_count(cairn):
    """No line comes before its interval has passed."""
    cairn.mount()
    begun = time.time()
    with stats_of(cairn, "--count", "4") as lines:
        pass
    assert len(lines) == 4
    assert all(line["time_s"] - begun > 0.2 * number - 0.01 for number, line in enumerate(lines, 1))


def test_stats_of_a_save(cairn, rng, mnt):
    """What was written and read appears."""
    data = rig.seeded_bytes(rng.random(), 32 * rig.MIB)
    rates = ("written_bytes_per_s", "read_bytes_per_s", "nvme_written_bytes_per_s")
    with stats_of(cairn) as lines, expected_totals(lines, dict.fromkeys(rates, len(data))):
        rig.write_file(mnt + "/file", data)
        wait_for_line(lines, lambda line: line["stage_used_percent"] > 1, "the stage in use")
        cairn.wait()
        with rig.opened(mnt + "/file", os.O_RDWR) as fd:
            assert os.pread(fd, len(data), 0) == data
    reduction = lines[-1]["nvme_reduction"]
    assert next(row for row in reduction["encodings"] if row["encoding"] == "raw")["stored_bytes"] == len(data)
    assert reduction["cpu_s"] > 0


def test_stats_of_a_remote_and_of_who_waits(request, mount_factory, directory, rng):
    """Waiting writers, the lag of both horizons, what was uploaded, found again and fetched: each appears with its size."""
    cairn = mount_factory(directory, kind=remotes.RemoteMount, remote=remotes.DirRemote(directory + "/remotes"), request=request)
    cairn.mount(stage="64M", writeback_limit="1M", upload_limit="32M")
    data, again = rig.seeded_bytes(rng.random(), 80 * rig.MIB), rng.randbytes(20 * rig.MIB)
    sizes = {"uploaded_bytes_per_s": len(data) + len(again), "fetched_bytes_per_s": len(data), "dedup_bytes_per_s": len(again)}
    with stats_of(cairn) as lines, expected_totals(lines, sizes), concurrent.futures.ThreadPoolExecutor(1) as pool:
        writing = pool.submit(rig.write_file, cairn.mnt + "/one", data)
        wait_for_line(lines, lambda line: line["waiting_writers"] >= 1, "a writer that waits")
        while not writing.done():  # a wait lifts the limit
            cairn.cairn("wait", cairn.mnt, "--timeout", "1s")
        cairn.wait_remote()
        assert cairn.cairn("evict", cairn.mnt + "/one").returncode == 0
        assert rig.read_file(cairn.mnt + "/one") == data
        rig.write_file(cairn.mnt + "/two", again)  # it takes 20 s while nothing waits
        wait_for_line(lines, lambda line: line["nvme_seconds_behind"] > 1 and line["remote_seconds_behind"] > 1, "both to be behind")
        cairn.wait_remote()
        cairn.write("three", again, "remote")
        wait_for_line(lines, lambda line: line["nvme_seconds_behind"] < 1 and line["remote_seconds_behind"] < 1, "neither to be behind")
    assert max(line["waits"] for line in lines) >= 1


def table_of(text):
    """Lines for people: {title: cell} of each."""
    titles, *rows = [re.split(r" {2,}", line.strip()) for line in text.splitlines()]
    return [dict(zip(titles, row, strict=True)) for row in rows if row != titles]


def test_stats_of_encodings(request, mount_factory, directory, rng):
    """What chunks take in each encoding, and the CPU time of it: of both tiers, when there is a remote."""
    cairn = mount_factory(directory, kind=remotes.RemoteMount, remote=remotes.DirRemote(directory + "/remotes"), request=request)
    cairn.mount(reduce="dense")
    weights, masters = (trained.trained_bytes(7, 8 * rig.MIB, is_bf16) for is_bf16 in (True, False))
    command = [cairn.binary, "stats", cairn.mnt, "--interval", "200ms"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stats:
        text = stats.stdout.readline() + stats.stdout.readline()
        rig.write_file(cairn.mnt + "/weights", weights)
        cairn.write("masters", masters, "remote")
        text += stats.stdout.readline() + stats.stdout.readline()  # what was sampled after it
        stats.send_signal(signal.SIGINT)
        text += stats.stdout.read()
    rows = table_of(text)
    assert rows[0]["fx"] == rows[0]["twin"] == rows[0]["dx"] == "-"
    for name, least in ("fx", 0.5), ("twin", 0.4):
        found = [float(row[name]) for row in rows if row[name] != "-"]
        assert found and all(least < share < 0.95 for share in found), rows
    assert any(row["encode cpu"] != "0.00 s" for row in rows), rows


def test_stats_for_people_and_its_end(cairn, mnt):
    done = cairn.cairn("stats", mnt, "-n", "2", "-i", "100ms")
    rows = done.stdout.splitlines()
    assert done.returncode == 0 and len(rows) == 3 and "write/s" in rows[0] and "nvme lag" in rows[0]
    assert "remote lag" not in rows[0] and "lazy left" not in rows[0], "there is no remote, and no program saves lazily"
    with subprocess.Popen([cairn.binary, "stats", mnt], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stats:
        stats.stdout.readline()
        cairn.kill9()
        out, err = stats.communicate(timeout=300)
    assert stats.returncode == 1 and len(err.splitlines()) == 1, err
    cairn.mount()
    with subprocess.Popen([cairn.binary, "stats", mnt], stdout=subprocess.PIPE, text=True) as stats:
        stats.stdout.readline()
        stats.send_signal(signal.SIGINT)
        stats.communicate(timeout=300)
    assert stats.returncode == 130


# ---------------------------------------------------------------- metrics


def parse_metrics(text):
    """The text format of Prometheus, strictly: {name with labels: value}."""
    values, types, helped = {}, {}, set()
    assert text.endswith("\n")
    for line in text.splitlines():
        if match := re.fullmatch(r"# HELP ([a-z_]+) (\S.*)", line):
            assert match[1] not in helped, "a second HELP"
            helped.add(match[1])
        elif match := re.fullmatch(r"# TYPE ([a-z_]+) (counter|gauge)", line):
            assert match[1] in helped and match[1] not in types, line
            types[match[1]] = match[2]
        else:
            match = re.fullmatch(r'([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*\})? (\S+)', line)
            assert match and match[1] in types, line
            assert match[1] == list(types)[-1], "families are not mixed"
            values[match[1] + (match[2] or "")] = float(match[3])
    for name, kind in types.items():
        assert name.startswith("cairnfs_") and (kind == "counter") == name.endswith("_total"), name
        assert not re.search(r"_(ms|s|kib|mib|percent)(_total)?$", name), name
    return values


def test_metrics_text(cairn, rng, mnt):
    """Well-formed, with base units, the same numbers as status; counters only grow."""
    cairn.write("file", rig.seeded_bytes(rng.random(), 5 * rig.MIB), "nvme")
    first = parse_metrics(cairn.cairn("metrics", mnt).stdout)
    status = cairn.status()
    assert first["cairnfs_nvme_used_bytes"] == status["nvme"]["used_bytes"]
    assert first["cairnfs_written_bytes_total"] >= 5 * rig.MIB and first["cairnfs_files"] == 1
    assert not any("remote" in name for name in first), "there is none"
    rig.write_file(mnt + "/more", b"x" * 100000)
    second = parse_metrics(cairn.cairn("metrics", mnt).stdout)
    assert second.keys() == first.keys()
    assert all(second[name] >= value for name, value in first.items() if name.endswith("_total"))
    assert second["cairnfs_written_bytes_total"] == first["cairnfs_written_bytes_total"] + 100000


def get(port, path, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    with contextlib.closing(connection):
        return answer.status, answer.getheader("Content-Type"), answer.read().decode()


def test_metrics_over_http(cairn):
    """/metrics and /healthz at the address that was given, and nothing else; the mount that fails to listen says so."""
    port = free_port()
    cairn.mount(metrics=f"127.0.0.1:{port}")
    rig.poll(lambda: get(port, "/healthz")[0] == 200, 20, "the end of the start")
    status, kind, text = get(port, "/metrics")
    assert status == 200 and kind == "text/plain; version=0.0.4; charset=utf-8"
    assert parse_metrics(text).keys() == parse_metrics(cairn.cairn("metrics", cairn.mnt).stdout).keys()
    assert get(port, "/healthz")[::2] == (200, "ok\n") and get(port, "/healthz", "HEAD")[::2] == (200, "")
    assert get(port, "/")[0] == 404 and get(port, "/metrics/../../etc/passwd")[0] == 404
    assert get(port, "/metrics", "POST")[0] == 405 and get(port, "/metrics", "DELETE")[0] == 405
    os.mkdir(cairn.root + "/mnt2")
    done = cairn.cairn("mount", cairn.root + "/other", cairn.root + "/mnt2", "-o", cairn.option_string({"metrics": f"127.0.0.1:{port}"}))
    assert done.returncode == 2 and "in use" in done.stderr and len(done.stderr.splitlines()) == 1, done
    assert not os.path.exists(cairn.root + "/other")


def test_healthz_of_a_full_store(cairn, rng):
    """503 with the reason while programs get ENOSPC, 200 again when there is room; status names the file and the cause."""
    port = free_port()
    cairn.mount(metrics=f"127.0.0.1:{port}", nvme="128M", stage="64M")
    with rig.fails(errno.ENOSPC):
        for i in range(40):
            rig.write_file(f"{cairn.mnt}/f{i}", rig.seeded_bytes(rng.random(), 8 * rig.MIB))
    code, _, text = get(port, "/healthz")
    assert code == 503 and "full" in text and text.count("\n") == 1
    last = cairn.status()["errors"][-1]
    assert last["errno"] == errno.ENOSPC and re.fullmatch(r"/f\d+", last["path"]) and "nvme=SIZE" in last["cause"]
    assert last["call"] in ("write", "create", "close")
    for name in os.listdir(cairn.mnt):
        os.unlink(f"{cairn.mnt}/{name}")
    rig.poll(lambda: get(port, "/healthz")[0] == 200, 30, "health after rm")


def test_healthz_while_writing_to_nvme_fails(request, cairn, rng):
    """503 with the reason while no pack can be made, 200 again when one can; nothing is lost."""
    port = free_port()
    cairn.mount(metrics=f"127.0.0.1:{port}")
    rig.poll(lambda: get(port, "/healthz")[0] == 200, 20, "the end of the start")
    packs, data = cairn.store + "/packs", rng.randbytes(5 * rig.MIB)
    request.addfinalizer(lambda: rig.file_systems_unmount(packs))
    rig.run("mount", "-t", "tmpfs", "-o", "ro", "tmpfs", packs)
    rig.write_file(cairn.mnt + "/file", data)
    rig.poll(lambda: get(port, "/healthz")[0] == 503, 30, "the trouble")
    assert re.fullmatch("writes to NVMe are failing; retrying: .* pack packs/.*\n", get(port, "/healthz")[2])
    rig.file_systems_unmount(packs)
    rig.poll(lambda: get(port, "/healthz")[0] == 200, 30, "the end of the trouble")
    cairn.wait()
    cairn.remount()
    assert rig.read_file(cairn.mnt + "/file") == data


def test_healthz_of_a_fenced_writer(request, mount_factory, directory):
    """503 that names the store that took over."""
    remote = remotes.DirRemote(directory + "/remotes")
    port = free_port()
    mounts = []
    for name in ("one", "two"):
        os.mkdir(f"{directory}/{name}")
        mounts.append(mount_factory(f"{directory}/{name}", kind=remotes.RemoteMount, remote=remote))
        request.addfinalizer(mounts[-1].close)
    mounts[0].mount(metrics=f"127.0.0.1:{port}")
    rig.poll(lambda: get(port, "/healthz")[0] == 200, 20, "the end of the start")
    assert parse_metrics(get(port, "/metrics")[2])['cairnfs_remote_state{state="fenced"}'] == 0
    mounts[1].mount(takeover=True)
    rig.write_file(mounts[0].mnt + "/file", b"x")
    rig.poll(lambda: get(port, "/healthz")[0] == 503, 60, "the fence")
    assert "another writer" in get(port, "/healthz")[2]
    assert parse_metrics(get(port, "/metrics")[2])['cairnfs_remote_state{state="fenced"}'] == 1


def trouble(port):
    """What /healthz says of a mount that does not serve; None: it does, or nothing listens."""
    try:
        code, _, text = get(port, "/healthz")
    except OSError:
        return None
    return text if code == 503 else None


def test_healthz_of_start_and_end(request, mount_factory, directory):
    """503 while the mount waits for a dead writer's lease, and while it carries the last to NVMe; /metrics has nothing before the start."""
    remote, port, mounts = remotes.DirRemote(directory + "/remotes"), free_port(), []
    for name in ("one", "two"):
        os.mkdir(f"{directory}/{name}")
        mounts.append(mount_factory(f"{directory}/{name}", kind=remotes.RemoteMount, remote=remote, lease="8s"))
        request.addfinalizer(mounts[-1].close)
    mounts[0].mount().kill9()
    mounts[1].start(metrics=f"127.0.0.1:{port}", writeback_limit="1M")
    rig.poll(lambda: trouble(port) == "the mount is starting\n", 20, "the start")
    assert get(port, "/metrics")[0] == 503 or trouble(port) != "the mount is starting\n"  # a slow machine: the start is over
    rig.poll(mounts[1].usable, 60, "the mount")
    rig.poll(lambda: get(port, "/healthz")[0] == 200, 20, "the end of the start")
    rig.write_file(mounts[1].mnt + "/file", rig.seeded_bytes(1, 40 * rig.MIB))
    mounts[1].proc.send_signal(signal.SIGTERM)
    rig.poll(lambda: trouble(port) == "the mount is ending\n", 20, "the end")


def is_socket(path):
    try:
        return os.readlink(path).startswith("socket:")
    except FileNotFoundError:  # closed meanwhile
        return False


def open_sockets(pid):
    return sum(is_socket(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd"))


def private_bytes(pid):
    """Without the stage, which is made ready meanwhile."""
    return int(re.search(r"^RssAnon:\s+(\d+)", rig.read_file(f"/proc/{pid}/status").decode(), re.M)[1]) * rig.KIB


def hostile_clients(port, seed):
    """Connections that say nothing, half of something, garbage, or too much."""
    beginnings = [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: x\r\n", b"\x00\xff" * 500, b"GET /" + b"a" * 100000,
                  b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n" + b"b" * 50000,
                  b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 20000]
    for number in range(100):
        sock = socket.socket()
        sock.settimeout(0.2)
        try:
            sock.connect(("127.0.0.1", port))
            sock.sendall(beginnings[(number + seed) % len(beginnings)])
        except OSError:
            pass
        yield sock


@pytest.mark.timeout(180)
def test_hostile_http_clients(cairn, seed):
    """They hold few connections and no memory for long; a proper request is answered soon after, the mount all the time."""
    port = free_port()
    cairn.mount(metrics=f"127.0.0.1:{port}")
    rig.poll(lambda: get(port, "/healthz")[0] == 200, 20, "the end of the start")
    before, memory = open_sockets(cairn.proc.pid), private_bytes(cairn.proc.pid)
    clients = list(hostile_clients(port, seed))
    assert open_sockets(cairn.proc.pid) - before <= 17
    assert private_bytes(cairn.proc.pid) - memory < 8 * rig.MIB
    began = time.monotonic()
    while time.monotonic() - began < 20 * rig.PATIENCE:
        for sock in clients:  # bytes that drip in keep nothing open
            try:
                sock.send(b"z")
            except OSError:
                pass
        rig.write_file(cairn.mnt + "/file", b"x" * 100000)
        try:
            if get(port, "/healthz")[0] == 200:
                break
        except OSError:
            time.sleep(0.3)
    else:
        raise AssertionError("no answer beside clients that hang")
    for sock in clients:
        sock.close()
    rig.poll(lambda: open_sockets(cairn.proc.pid) <= before + 1, 30, "the end of all connections")

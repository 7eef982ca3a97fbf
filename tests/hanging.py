# SPDX-License-Identifier: Apache-2.0
"""Tests that hang: for test_watchdog.py, not part of a run."""
import concurrent.futures
import os
import signal
import subprocess
import threading
import time

import pytest

import processes
import rig

pytestmark = pytest.mark.timeout(0.5)


def stop_daemon(cairn):
    pid = cairn.status()["pid"]
    os.kill(pid, signal.SIGSTOP)
    rig.poll(lambda: processes.process_state(pid) == "T", 10, "the daemon to stand")
    rig.write_file(cairn.mnt + "/file", b"")


def test_a_mount_that_stands(cairn):
    stop_daemon(cairn.mount())


def test_a_mount_in_the_background_that_stands(cairn):
    rig.run(cairn.binary, "mount", cairn.store, cairn.mnt, "-o", cairn.option_string({}))
    stop_daemon(cairn)


def test_a_process_that_is_waited_for_again():
    with subprocess.Popen(["sleep", "1000"]) as process:
        process.wait()


def test_a_thread_that_is_waited_for_again():
    with concurrent.futures.ThreadPoolExecutor() as pool:
        pool.submit(time.sleep, 1000).result()


def test_no_signal_is_heard():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(1000)


def test_a_thread_that_outlives_the_tests():
    threading.Thread(target=time.sleep, args=(1000,)).start()

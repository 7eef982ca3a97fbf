# SPDX-License-Identifier: Apache-2.0
"""Whatever a test waits for, its limit ends it (hanging.py), and the tests behind it run."""
import os
import subprocess
import sys
import xml.etree.ElementTree

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.mark.needs_mount
def test_hangs_end(mount_factory, request, directory):
    report = directory + "/report.xml"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-n", "1", "--junitxml", report,
               "--build", request.config.getoption("--build"), HERE + "/hanging.py"]
    done = subprocess.run(command, env={**os.environ, "CAIRN_TESTS_END": "1"}, capture_output=True, text=True)
    cases = {case.get("name"): [fault.tag for fault in case] for case in xml.etree.ElementTree.parse(report).iter("testcase")}
    passed = [name for name, faults in cases.items() if not {"failure", "error"} & {*faults}]
    assert len(cases) == 6 and passed == ["test_a_thread_that_outlives_the_tests"], done.stdout

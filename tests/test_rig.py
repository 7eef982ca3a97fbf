# SPDX-License-Identifier: Apache-2.0
"""The rig tells of what fails in the processes that it forks, and leaves no mount behind."""
import os
import signal

import pytest

import rig
import slices


def divide(one, other):
    return one / other


def test_a_child_returns_a_value():
    assert rig.in_child(divide, 6, 3) == 2


def test_a_child_says_why_it_failed():
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        rig.in_child(divide, 1, 0)
    with pytest.raises(AssertionError, match="not JSON serializable"):
        rig.in_child(object)


def test_a_child_that_is_killed_says_nothing():
    child = rig.Child(signal.pause)
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(AssertionError, match="status 9"):
        child.result()


def test_what_a_test_mounts_by_hand_does_not_outlive_its_directory(directory):
    rig.need_root()
    for name in ("one", "two with space"):
        os.makedirs(f"{directory}/{name}/inner")
        rig.run("mount", "-t", "tmpfs", "tmpfs", f"{directory}/{name}/inner")
        os.mkdir(f"{directory}/{name}/inner/deep")
        rig.run("mount", "-t", "tmpfs", "tmpfs", f"{directory}/{name}/inner/deep")
    with rig.opened(f"{directory}/one/inner/deep", os.O_RDONLY) as busy:
        assert len(rig.unmount_below(directory)) == 4
    assert rig.unmount_below(directory) == [] and os.listdir(f"{directory}/one/inner") == []


def test_a_mount_in_the_background_ends_with_its_directory(request, mount_factory, directory):
    """As one that a test expects to be refused, and that is not."""
    mount = mount_factory(directory)
    request.addfinalizer(lambda: rig.shutil.rmtree(mount.stage_dir, ignore_errors=True))
    mount.verb("mount", mount.store, mount.mnt, "-o", mount.option_string({}))
    assert rig.unmount_below(directory) == [os.fsencode(mount.mnt)]
    rig.poll(lambda: not os.listdir(mount.stage_dir), 30, "the end of the daemon")
    assert mount.fsck().returncode == 0


class Item:
    """What of pytest's is used."""

    def __init__(self, path, limit):
        self.path, self.limit = path, limit

    def get_closest_marker(self, name):
        return pytest.mark.timeout(self.limit).mark if self.limit else None


def test_long_tests_come_first_in_the_slices_of_a_run():
    items = [Item(f"file-{number // 10}", 300 if number // 10 in (3, 4, 17) or number == 199 else None) for number in range(200)]
    ordered = slices.long_ones_first(items, 4)
    assert sorted(map(id, ordered)) == sorted(map(id, items))
    heads = [ordered[number * 50 : number * 50 + 10] for number in range(4)]
    assert [{item.path for item in head if item.limit} for head in heads] == [{"file-3"}, {"file-4"}, {"file-17"}, {"file-19"}]
    assert ordered[0:10] == items[30:40] and ordered[10:40] == items[0:30], "neighbours stay neighbours"

# SPDX-License-Identifier: Apache-2.0
"""Planted bugs (planted.py): each is found by the test that is named here, and by nothing less."""
import json
import os
import re
import shlex
import sys

import pytest

import planted

GC, DISK, DEVICE = "remote/test_gc.py", "crash/test_disk.py", "client/test_device_schedules.py"
LANE, DENSE = "lane/test_lane_files.py", "remote/test_dense.py"
KEEP, LOCAL = "remote/test_keep.py", "mount/test_local_history.py"
HELD, LATE = "nodes/test_held_back.py", "nodes/test_late_requests.py"
FOUND_BY = {
    "early_delete": (GC, "test_nothing_goes_before_the_head_that_drops_it and dir"),
    "skip_epoch_check": (GC, "test_a_fenced_writer_deletes_nothing and dir"),
    "marker_is_all": ("remote/test_lost_heads.py", "test_first_heads_that_gc_deleted"),
    "marker_of_another": ("remote/test_lost_heads.py", "test_a_marker_that_is_seen_late"),
    "first_head_unchecked": ("remote/test_lost_heads.py", "test_heads_that_are_seen_late"),
    "head_first": (GC, "test_all_that_a_head_names_is_there and dir"),
    "forget_chunk": (GC, "test_small_packs_are_merged and dir"),
    "batch_not_flushed": (DISK, "test_small_fsyncs_one_after_the_other"),
    "names_not_flushed": (DISK, "test_small_fsyncs_one_after_the_other"),
    "pack_after_its_batch": (DISK, "test_small_fsyncs_one_after_the_other"),
    "no_producer_wait": (DEVICE, "test_files_are_of_one_step"),
    "no_fence": (DEVICE, "test_files_are_of_one_step"),
    "piece_used_too_early": (DEVICE, "test_files_are_of_one_step"),
    "name_before_the_last_piece": (DEVICE, "test_files_are_of_one_step"),
    "name_before_the_bytes": (LANE, "test_a_name_is_never_there_before_its_bytes and directory"),
    "fence_returns_early": (LANE, "test_a_fence_waits_for_the_copies and directory"),
    "marker_alone": (LANE, "test_a_marker_comes_after_its_saves and directory"),
    "read_behind_the_fill": ("crash/test_forged.py", "test_forged_records"),
    "skip_verify": (DENSE, "test_a_fresh_node_reads_all"),
    "drop_a_base": (DENSE, "test_what_others_are_stored_by_is_deleted"),
    "doom_what_was_revived": ("remote/test_written_over.py", "test_all_is_there_when_the_name_was_written_over"),
    "forget_a_reference": (DENSE, "test_a_base_outlives_a_merge_of_what_it_serves"),
    "skip_local_verify": ("remote/test_condense.py", "test_old_checkpoints_become_dense"),
    "drop_a_local_base": ("remote/test_condense.py", "test_what_others_rest_on_is_deleted"),
    "collect_a_named_head": ("remote/test_named.py", "test_a_name_stays and dir"),
    "collect_a_kept_head": (KEEP, "test_the_newest_states_stay and dir"),
    "collect_a_kept_pack": (KEEP, "test_the_newest_states_stay and dir"),
    "collect_a_kept_base": (KEEP, "test_what_a_state_is_stored_by_stays and dir"),
    "collect_a_kept_run": (KEEP, "test_the_newest_states_stay and dir"),
    "local_thin_drops_a_named": (LOCAL, "test_the_policy_keeps_the_newest"),
    "local_pack_not_pinned": (LOCAL, "test_it_is_a_directory"),
    "doom_what_is_staged": ("remote/test_by_reference.py", "test_a_reference_that_is_staged_holds_the_pack and dir-closed"),
    "told_before_the_batch": (DISK, "test_small_fsyncs_one_after_the_other"),
    "dead_left_out": (HELD, "test_what_the_others_told_is_given_up and dir-gone"),
    "lost_stay_goes_on": (HELD, "test_what_the_others_told_is_given_up and dir-power"),
    "no_lease": (HELD, "test_a_node_that_did_not_look_for_a_lease_acknowledges_nothing and dir"),
    "old_feeds_count": (LATE, "test_feeds_that_land_after_the_end"),
    "own_feed_is_anothers": (LATE, "test_puts"),
    "opens_at_once": (HELD, "test_no_node_opens_before_all_know and dir"),
}


def outcome(directory, file, chosen):
    """pytest's exit code for one test on a build: 0 passed, 1 failed. A test that hangs or whose process aborts has failed."""
    path = os.path.join(planted.SOURCE, "tests", file)
    done = planted.run(sys.executable, "-m", "pytest", path, "-p", "no:cacheprovider", "-q", "--build", directory, "-k", chosen,
                       timeout=1200)
    if "Fatal Python error" in done.stdout + done.stderr:
        return 1
    assert " passed" in done.stdout or " failed" in done.stdout, done.stdout + done.stderr
    return done.returncode


def compile_command(build_directory, file):
    """How the build compiles a source file, without writing anything."""
    with open(os.path.join(build_directory, "compile_commands.json")) as commands:
        for command in json.load(commands):
            if os.path.abspath(os.path.join(command["directory"], command["file"])) == os.path.join(planted.SOURCE, file):
                words = shlex.split(command["command"])
                first = next(at for at, word in enumerate(words) if word.startswith("-"))  # after the compiler, and ccache before it
                return [*words[:first], "-fsyntax-only", "-Werror", *words[first : words.index("-o")]], command["directory"]
    raise AssertionError(f"{build_directory} does not compile {file}")


def test_the_copy_has_what_the_build_reads():
    """A directory or a file that the build takes in, and the copy has not, would be noticed with --full only."""
    with open(os.path.join(planted.SOURCE, "meson.build")) as file:
        directories = {path.split("/")[0] for path in re.findall(r"subdir\('([^']+)'\)", file.read())} - {"tests"}
    files = set()
    for directory in directories:
        with open(os.path.join(planted.SOURCE, directory, "meson.build")) as file:
            files |= set(re.findall(r"'\.\./([^'/]+)'", file.read()))
    assert directories | files <= set(planted.PARTS)


def test_every_bug_has_its_test():
    assert planted.names() == sorted(FOUND_BY)


def test_each_says_what_it_is():
    for bug in FOUND_BY:
        with open(planted.patch_of(bug)) as file:
            assert re.fullmatch(r"[A-Z].*\.\n", file.readline()), bug


@pytest.mark.parametrize("bug", FOUND_BY)
def test_a_patch_applies_and_compiles(request, directory, bug):
    build_directory = os.path.abspath(request.config.getoption("--build"))
    if not os.path.exists(os.path.join(build_directory, "compile_commands.json")):
        pytest.skip(f"skipped: {build_directory} is no build directory of meson")
    planted.copy_directory(os.path.join(planted.SOURCE, "src"), os.path.join(directory, "src"))
    planted.apply(bug, directory)
    for file in planted.changed_files(bug):
        if file.endswith(".c"):
            command, place = compile_command(build_directory, file)
            done = planted.run(*command, "-I", os.path.join(directory, "src"), os.path.join(directory, file), cwd=place)
            assert done.returncode == 0, done.stderr


def test_a_patch_that_does_not_fit_is_an_error(directory):
    planted.copy_directory(os.path.join(planted.SOURCE, "src"), os.path.join(directory, "src"))
    path = os.path.join(directory, "src/remote/gc.c")
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(text.replace("int gc_check_ours(struct remote *remote)", "int gc_check_theirs(struct remote *remote)"))
    with pytest.raises(planted.PatchError, match="skip_epoch_check.patch does not apply"):
        planted.apply("skip_epoch_check", directory)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", FOUND_BY)
def test_a_planted_bug_is_found(request, full, sanitized, bug):
    if not full or sanitized:
        pytest.skip("skipped: builds a variant for each; give --full, without --sanitize")
    build_directory = os.path.abspath(request.config.getoption("--build"))
    file, chosen = FOUND_BY[bug]
    assert outcome(build_directory, file, chosen) == 0, f"{chosen} fails without the bug"
    assert outcome(planted.build(bug, build_directory), file, chosen) == 1, f"{chosen} does not find {bug}"

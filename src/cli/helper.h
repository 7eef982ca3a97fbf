// SPDX-License-Identifier: Apache-2.0
/* cairn under the names that mount(8) and umount(8) run: mount.cairnfs and umount.cairnfs. Both
 * return the exit status. */
#pragma once

int mount_helper(int argc, char **argv);
int umount_helper(int argc, char **argv);

// SPDX-License-Identifier: Apache-2.0
/* The parts of the kernel's protocol that libfuse 3.14 does not expose: the bytes before a payload,
 * and flags of INIT and OPEN that it does not know. From the kernel's include/uapi/linux/fuse.h. */
#pragma once

#include <stdint.h>

struct wire_in_header {
    uint32_t len, opcode;
    uint64_t unique, nodeid;
    uint32_t uid, gid, pid, padding;
};
struct wire_out_header {
    uint32_t len;
    int32_t error;
    uint64_t unique;
};
#define WIRE_NOTIFY_RESEND 7
#define WIRE_RESENT (1ull << 63) /* in a unique number: the request is resent */
#define WIRE_FORGET 2u
#define WIRE_SETATTR 4u
#define WIRE_SYMLINK 6u
#define WIRE_MKNOD 8u
#define WIRE_MKDIR 9u
#define WIRE_UNLINK 10u
#define WIRE_RMDIR 11u
#define WIRE_RENAME 12u
#define WIRE_LINK 13u
#define WIRE_OPEN 14u
#define WIRE_WRITE 16u
#define WIRE_RELEASE 18u
#define WIRE_FSYNC 20u
#define WIRE_SETXATTR 21u
#define WIRE_REMOVEXATTR 24u
#define WIRE_FLUSH 25u
#define WIRE_INIT 26u
#define WIRE_OPENDIR 27u
#define WIRE_RELEASEDIR 29u
#define WIRE_FSYNCDIR 30u
#define WIRE_CREATE 35u
#define WIRE_INTERRUPT 36u
#define WIRE_BATCH_FORGET 42u
#define WIRE_FALLOCATE 43u
#define WIRE_RENAME2 45u
#define WIRE_COPY_FILE_RANGE 47u
#define WIRE_COPY_FILE_RANGE_64 53u /* since Linux 6.18 */
#define WIRE_TMPFILE 51u
#define WIRE_NO_NAME "/" /* of a TMPFILE */
#define WIRE_IN_HEADER_LEN 40u
#define WIRE_WRITE_LEN 80u  /* header and arguments of WRITE, before its payload */
#define WIRE_WRITE_KIND 20u /* offset in its arguments */
#define WIRE_WRITE_PAGE 1u
/* A bit of the fields to be set, with which the arguments begin. */
#define WIRE_SETATTR_HAS_HANDLE (1u << 6)
#define WIRE_SETXATTR_NAME 8u /* offset in its arguments */
#define WIRE_INIT_EXT (1u << 30)
#define WIRE_HANDLE_KILLPRIV_V2 (1u << 28)
#define WIRE2_DIRECT_IO_ALLOW_MMAP (1u << 4) /* bit 36 of the flags */
#define INIT_IN_MINOR 4u                     /* offsets in the arguments of INIT */
#define INIT_IN_FLAGS 12u
#define INIT_IN_FLAGS2 16u
#define WIRE2_HAS_RESEND (1u << 7) /* bit 39 */
#define WIRE_OPEN_OUT_LEN 16u      /* the end of an answer to OPEN or CREATE */
#define WIRE_OPEN_OUT_FLAGS 8u     /* offset in it */
#define WIRE_OPEN_PARALLEL_DIRECT_WRITES (1u << 6)

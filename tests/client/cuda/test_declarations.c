// SPDX-License-Identifier: Apache-2.0
/* client/cuda.h says what cuda.h of the Toolkit says: each function's type and exported name, each
 * value. */
#include <cuda.h>
#include <stdio.h>
#include <string.h>

#include "client/cuda.h"

#define ERROR_SAME(name, value, errno_, dead)                                                      \
    _Static_assert((int)CUDA_ERROR_##name == (int)DRIVER_##name, #name);
DRIVER_ERRORS(ERROR_SAME)
_Static_assert((int)CU_STREAM_NON_BLOCKING == (int)DRIVER_STREAM_NON_BLOCKING, "");
_Static_assert((int)CU_EVENT_DISABLE_TIMING == (int)DRIVER_EVENT_DISABLE_TIMING, "");
_Static_assert((int)CU_MEMHOSTREGISTER_PORTABLE == (int)DRIVER_MEMHOSTREGISTER_PORTABLE, "");
_Static_assert((int)CU_STREAM_CAPTURE_STATUS_NONE == (int)DRIVER_CAPTURE_STATUS_NONE, "");
_Static_assert((int)CU_STREAM_CAPTURE_MODE_RELAXED == (int)DRIVER_CAPTURE_MODE_RELAXED, "");

/* cuda.h makes `name` the exported name by a macro. */
#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)
#define TYPE_SAME(name, symbol, parameters)                                                        \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), CUresult(*) parameters),      \
                   #symbol);
DRIVER_CALLS(TYPE_SAME)
#define NAME_SAME(name, symbol, parameters) {TEXT(name), #symbol},

int main(void)
{
    static const char *const names[][2] = {DRIVER_CALLS(NAME_SAME)};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i][0], names[i][1]) != 0) {
            (void)printf("cuda.h calls %s, client/cuda.h %s\n", names[i][0], names[i][1]);
            return 1;
        }
    return 0;
}

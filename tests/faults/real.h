// SPDX-License-Identifier: Apache-2.0
/* For libraries that are loaded before those whose calls they stand before. */
#pragma once

#include <dlfcn.h>
#include <stdlib.h>

static inline void *real(const char *name)
{
    void *f = dlsym(RTLD_NEXT, name);
    if (!f)
        abort();
    return f;
}

/* `f` is the one that this one stands before. */
#define REAL(ret, name, ...)                                                                       \
    static ret (*f)(__VA_ARGS__);                                                                  \
    if (!f)                                                                                        \
    f = (ret(*)(__VA_ARGS__))real(#name)

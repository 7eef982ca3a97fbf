// SPDX-License-Identifier: Apache-2.0
#include "base/cpu.h"

#include <pthread.h>

#include "base/base.h"

static const char *const names[CPU_LEVELS] = {
    "scalar",
#if defined __x86_64__
    "avx2",
    "avx512",
#elif defined __AARCH64EL__
    "neon",
#endif
};

const char *cpu_level_name(enum cpu_level level)
{
    return names[level];
}

enum cpu_level cpu_level_of_machine(void)
{
#if defined __x86_64__
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
                  __builtin_cpu_supports("gfni");
    if (avx2)
        return avx512 ? CPU_AVX512 : CPU_AVX2;
#elif defined __AARCH64EL__
    return CPU_NEON;
#endif
    return CPU_SCALAR;
}

static enum cpu_level chosen;

static void choose_level(void)
{
    chosen = cpu_level_of_machine();
    const char *wanted = getenv("CAIRN_CPU");
    for (enum cpu_level level = CPU_SCALAR; wanted && level < chosen; level++)
        if (strcmp(wanted, names[level]) == 0)
            chosen = level;
}

enum cpu_level cpu_level(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, choose_level);
    return chosen;
}

// SPDX-License-Identifier: Apache-2.0
/* The level of vector instructions that this process uses. Any thread. */
#pragma once

enum cpu_level {
    CPU_SCALAR, /* plain C */
#if defined __x86_64__
    CPU_AVX2,   /* AVX2 and BMI2 */
    CPU_AVX512, /* AVX-512 F, BW, VL, DQ, VBMI, VBMI2; GFNI */
#elif defined __AARCH64EL__
    CPU_NEON, /* every 64-bit Arm has it */
#endif
    CPU_LEVELS,
};

/* The highest level that this processor and its kernel support. */
enum cpu_level cpu_level_of_machine(void);

/* As cpu_level_of_machine(), or a lower level if the environment variable CAIRN_CPU names one:
 * scalar, avx2, avx512 or neon. Read once. */
enum cpu_level cpu_level(void);

const char *cpu_level_name(enum cpu_level level);

/* Declares NAME_scalar and its counterparts for the other levels, of type struct NAME_kernels, and
 * NAME_kernels_of(), which returns the kernels of a level that the machine has. */
#if defined __x86_64__
#define CPU_KERNELS(name)                                                                          \
    extern const struct name##_kernels name##_scalar, name##_avx2, name##_avx512;                  \
    static inline const struct name##_kernels *name##_kernels_of(enum cpu_level level)             \
    {                                                                                              \
        return level == CPU_AVX512 ? &name##_avx512                                                \
               : level == CPU_AVX2 ? &name##_avx2                                                  \
                                   : &name##_scalar;                                               \
    }
#elif defined __AARCH64EL__
#define CPU_KERNELS(name)                                                                          \
    extern const struct name##_kernels name##_scalar, name##_neon;                                 \
    static inline const struct name##_kernels *name##_kernels_of(enum cpu_level level)             \
    {                                                                                              \
        return level == CPU_NEON ? &name##_neon : &name##_scalar;                                  \
    }
#else
#define CPU_KERNELS(name)                                                                          \
    extern const struct name##_kernels name##_scalar;                                              \
    static inline const struct name##_kernels *name##_kernels_of(enum cpu_level level)             \
    {                                                                                              \
        (void)level;                                                                               \
        return &name##_scalar;                                                                     \
    }
#endif

// SPDX-License-Identifier: Apache-2.0
/* Declarations of the part of the CUDA driver API that the client uses, so that it builds without a
 * Toolkit, and for no particular version. Names, types and values are those of cuda.h
 * (tests/client/cuda compares them if that is found); a function is called by its exported name in
 * libcuda.so.1, to which cuda.h maps the plain name. */
#pragma once

#include <stddef.h>

#ifndef CUDA_VERSION /* cuda.h defines them */
typedef int CUresult;
typedef int CUstreamCaptureMode, CUstreamCaptureStatus;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
#endif

/* X(name: CUDA_ERROR_ and this; value; errno; whether the context is unusable afterwards). Other
 * errors become -EIO and leave the context usable. */
#define DRIVER_ERRORS(X)                                                                           \
    X(INVALID_VALUE, 1, EINVAL, false)                                                             \
    X(OUT_OF_MEMORY, 2, ENOMEM, false)                                                             \
    X(NOT_INITIALIZED, 3, ENODEV, false)                                                           \
    X(DEINITIALIZED, 4, EIO, true)                                                                 \
    X(NO_DEVICE, 100, ENODEV, false)                                                               \
    X(INVALID_DEVICE, 101, ENODEV, false)                                                          \
    X(INVALID_IMAGE, 200, ENOTSUP, false)                                                          \
    X(INVALID_CONTEXT, 201, EINVAL, false)                                                         \
    X(NO_BINARY_FOR_GPU, 209, ENOTSUP, false)                                                      \
    X(ECC_UNCORRECTABLE, 214, EIO, true)                                                           \
    X(INVALID_PTX, 218, ENOTSUP, false)                                                            \
    X(NVLINK_UNCORRECTABLE, 220, EIO, true)                                                        \
    X(JIT_COMPILER_NOT_FOUND, 221, ENOTSUP, false)                                                 \
    X(UNSUPPORTED_PTX_VERSION, 222, ENOTSUP, false)                                                \
    X(JIT_COMPILATION_DISABLED, 223, ENOTSUP, false)                                               \
    X(CONTAINED, 226, EIO, true)                                                                   \
    X(INVALID_HANDLE, 400, EINVAL, false)                                                          \
    X(NOT_FOUND, 500, ENOTSUP, false)                                                              \
    X(NOT_READY, 600, EAGAIN, false)                                                               \
    X(ILLEGAL_ADDRESS, 700, EIO, true)                                                             \
    X(LAUNCH_OUT_OF_RESOURCES, 701, ENOMEM, false)                                                 \
    X(LAUNCH_TIMEOUT, 702, EIO, true)                                                              \
    X(CONTEXT_IS_DESTROYED, 709, EIO, true)                                                        \
    X(ASSERT, 710, EIO, true)                                                                      \
    X(HOST_MEMORY_ALREADY_REGISTERED, 712, EEXIST, false)                                          \
    X(HOST_MEMORY_NOT_REGISTERED, 713, ENOENT, false)                                              \
    X(HARDWARE_STACK_ERROR, 714, EIO, true)                                                        \
    X(ILLEGAL_INSTRUCTION, 715, EIO, true)                                                         \
    X(MISALIGNED_ADDRESS, 716, EIO, true)                                                          \
    X(INVALID_ADDRESS_SPACE, 717, EIO, true)                                                       \
    X(INVALID_PC, 718, EIO, true)                                                                  \
    X(LAUNCH_FAILED, 719, EIO, true)                                                               \
    X(NOT_PERMITTED, 800, EPERM, false)                                                            \
    X(NOT_SUPPORTED, 801, ENOTSUP, false)                                                          \
    X(STREAM_CAPTURE_UNSUPPORTED, 900, EBUSY, false)                                               \
    X(STREAM_CAPTURE_INVALIDATED, 901, EBUSY, false)                                               \
    X(STREAM_CAPTURE_MERGE, 902, EBUSY, false)                                                     \
    X(STREAM_CAPTURE_ISOLATION, 905, EBUSY, false)                                                 \
    X(STREAM_CAPTURE_IMPLICIT, 906, EBUSY, false)                                                  \
    X(CAPTURED_EVENT, 907, EBUSY, false)                                                           \
    X(STREAM_CAPTURE_WRONG_THREAD, 908, EBUSY, false)                                              \
    X(EXTERNAL_DEVICE, 911, EIO, true)                                                             \
    X(UNKNOWN, 999, EIO, true)

#define DRIVER_ERROR_VALUE(name, value, errno_, dead) DRIVER_##name = value,
enum { DRIVER_SUCCESS = 0, DRIVER_ERRORS(DRIVER_ERROR_VALUE) };

enum {
    DRIVER_STREAM_NON_BLOCKING = 1,
    DRIVER_EVENT_DISABLE_TIMING = 2,
    DRIVER_MEMHOSTREGISTER_PORTABLE = 1,
    DRIVER_CAPTURE_STATUS_NONE = 0,
    DRIVER_CAPTURE_MODE_RELAXED = 2,
};

/* X(name as cuda.h has it, name as libcuda.so.1 exports it, parameters). All return a CUresult. */
#define DRIVER_CALLS(X)                                                                            \
    X(cuCtxGetCurrent, cuCtxGetCurrent, (CUcontext *))                                             \
    X(cuCtxPushCurrent, cuCtxPushCurrent_v2, (CUcontext))                                          \
    X(cuCtxPopCurrent, cuCtxPopCurrent_v2, (CUcontext *))                                          \
    X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, (int *, int *))                    \
    X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode,                        \
      (CUstreamCaptureMode *))                                                                     \
    X(cuDeviceGetCount, cuDeviceGetCount, (int *))                                                 \
    X(cuDeviceGet, cuDeviceGet, (CUdevice *, int))                                                 \
    X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, (CUdevice, unsigned int *, int *))   \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                 \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice))                         \
    X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, (CUstream *, unsigned int, int))     \
    X(cuStreamDestroy, cuStreamDestroy_v2, (CUstream))                                             \
    X(cuStreamSynchronize, cuStreamSynchronize, (CUstream))                                        \
    X(cuStreamIsCapturing, cuStreamIsCapturing, (CUstream, CUstreamCaptureStatus *))               \
    X(cuStreamWaitEvent, cuStreamWaitEvent, (CUstream, CUevent, unsigned int))                     \
    X(cuEventCreate, cuEventCreate, (CUevent *, unsigned int))                                     \
    X(cuEventDestroy, cuEventDestroy_v2, (CUevent))                                                \
    X(cuEventRecord, cuEventRecord, (CUevent, CUstream))                                           \
    X(cuEventQuery, cuEventQuery, (CUevent))                                                       \
    X(cuMemHostRegister, cuMemHostRegister_v2, (void *, size_t, unsigned int))                     \
    X(cuMemHostUnregister, cuMemHostUnregister, (void *))                                          \
    X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))            \
    X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))      \
    X(cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr *, size_t))                                          \
    X(cuMemFree, cuMemFree_v2, (CUdeviceptr))                                                      \
    X(cuModuleLoadData, cuModuleLoadData, (CUmodule *, const void *))                              \
    X(cuModuleUnload, cuModuleUnload, (CUmodule))                                                  \
    X(cuModuleGetFunction, cuModuleGetFunction, (CUfunction *, CUmodule, const char *))            \
    X(cuLaunchKernel, cuLaunchKernel,                                                              \
      (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,           \
       unsigned int, unsigned int, CUstream, void **, void **))

#define DRIVER_CALL_MEMBER(name, symbol, parameters) CUresult(*name) parameters;
struct driver_calls {
    DRIVER_CALLS(DRIVER_CALL_MEMBER)
};

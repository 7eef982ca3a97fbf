# SPDX-License-Identifier: Apache-2.0
"""Bytes as training in mixed precision saves them, for campaigns in which chunks are stored by means of others (--reduce dense): fp32
numbers of one of few steps that are near each other, or the bf16 numbers that they are rounded to. No two seeds give the same: eight bytes
of each 4 KiB tell the seed and the place."""
import functools
import hashlib

import numpy

ELEMENTS = 3 << 17
STEPS = 3
BLOCK = 4096  # bytes; a content that is not longer is noise
STAMP = 8     # bytes


def normal(seed):
    return numpy.random.default_rng(seed).standard_normal(ELEMENTS, numpy.float32)


def rounded(numbers):
    """fp32 numbers as bf16, which numpy does not know: as their bits."""
    bits = numbers.view(numpy.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


@functools.cache
def tensor(step, is_bf16):
    """As bytes. Each step is as far from the others: what is saved first may be what the others are stored by."""
    numbers = normal(0) * numpy.float32(0.02) * (1 + numpy.float32(0.004) * normal(1 + step))
    if is_bf16:
        return rounded(numbers).view(numpy.uint8)
    return numbers.astype("<f4").view(numpy.uint8)


def trained_bytes(seed, size, is_bf16=None):
    """A function of these. None: the seed says which numbers they are."""
    noise = hashlib.shake_128(repr(seed).encode()).digest(1 + (size if size <= BLOCK else size // BLOCK * STAMP))
    if size <= BLOCK:
        return noise[1:]
    whole = tensor(noise[0] // 2 % STEPS, noise[0] % 2 == 0 if is_bf16 is None else is_bf16)
    content = numpy.resize(whole, size)
    blocks = content[: size // BLOCK * BLOCK].reshape(-1, BLOCK)
    blocks[:, :STAMP] = numpy.frombuffer(noise, numpy.uint8, offset=1).reshape(-1, STAMP)
    return content.tobytes()

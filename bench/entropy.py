# SPDX-License-Identifier: Apache-2.0
"""What coders of exponents and of differences could reach on real tensors, beside what the codec takes: each figure is of all bytes,
and counts what the coder's tables would take. `bench_reduce.py --parts entropy` prints it."""
import json
import os
import subprocess

import numpy

SMALLEST = 4096  # bytes of a tensor: shorter ones share chunks with others
SMALL = 48  # differences up to this have symbols of their own, larger ones one for each length


def bits(symbols, given=None):
    """Order-0 bits of integers, or those given others, with half a logarithm for each frequency that a coder has to know."""
    symbols = symbols - symbols.min()
    given = numpy.zeros_like(symbols) if given is None else numpy.unique(given, return_inverse=True)[1]
    width = int(symbols.max()) + 1
    counts = numpy.bincount(given * width + symbols, minlength=width * (int(given.max()) + 1)).reshape(-1, width).astype(float)
    sums, kinds = counts.sum(1), (counts > 0).sum(1)
    plain = (sums * numpy.log2(sums)).sum() - (counts * numpy.log2(numpy.maximum(counts, 1))).sum()
    return plain + ((kinds - 1) / 2 * numpy.log2(numpy.maximum(sums, 2))).sum()


def exponents(tensor):
    return (tensor >> (23 if tensor.itemsize == 4 else 7) & 255).astype(numpy.int64)


def before(values, distance):
    shifted = numpy.zeros_like(values)
    shifted[distance:] = values[:-distance]
    return shifted


def by_rows_and_columns(e, row):
    """Given the mean of its row and that of its column, in quarters, which take a byte each."""
    rows = -(-len(e) // row)
    grid = numpy.full(rows * row, numpy.nan)
    grid[: len(e)] = e
    grid = grid.reshape(rows, row)
    of_column = numpy.nanmean(grid, 0)
    common = (of_column + numpy.nanmean(grid - of_column, 1)[:, None]).ravel()[: len(e)]
    return bits(e, numpy.round(4 * common).astype(numpy.int64)) + 8 * (rows + row)


def alone(tensor, row):
    e, sign = exponents(tensor), (tensor >> (8 * tensor.itemsize - 1)).any()
    rest = len(e) * ((23 if tensor.itemsize == 4 else 7) + int(sign))
    found = {"order-0": bits(e), "each 16 K": sum(bits(e[i : i + 16384]) for i in range(0, len(e), 16384))}
    found["given the one before"] = bits(e, before(e, 1))
    found["given the one above"] = bits(e, before(e, row)) if row else found["order-0"]
    found["given row and column"] = by_rows_and_columns(e, row) if row else found["order-0"]
    return {name: taken + rest for name, taken in found.items()}


def in_order(tensor):
    x, width = tensor.astype(numpy.int64), 8 * tensor.itemsize
    return numpy.where(x >> (width - 1) & 1, x ^ ((1 << (width - 1)) - 1), x)


def difference(tensor, base, earlier):
    d, e = in_order(tensor) - in_order(base), exponents(base)
    size = numpy.abs(d)
    length = numpy.where(size > SMALL, numpy.log2(numpy.maximum(size, 1)).astype(numpy.int64), 0)
    symbols, rest = numpy.where(size > SMALL, numpy.sign(d) * (SMALL + length), d), length.sum()
    drift = in_order(base) - in_order(earlier)
    drift = numpy.sign(drift) * numpy.minimum(2 * numpy.log2(numpy.abs(drift) + 1), 15).astype(numpy.int64)
    return {"order-0": bits(symbols) + rest, "given the base's exponent": bits(symbols, e) + rest,
            "and the difference before": bits(symbols, 64 * e + drift) + rest}


def taken(tool, directory, tensors, bases=None):
    """Bytes that the codec takes: of each form that it has for a tensor the least."""
    names = []
    for number, tensor in enumerate(tensors):
        name = os.path.join(directory, str(number))
        tensor.tofile(name)
        if bases:
            bases[number].tofile(name + ".base")
            name += f":{name}.base"
        names.append(name)
    lines = subprocess.run([tool, "1", *names], capture_output=True, check=True, text=True).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    form = "dx_bytes" if bases else "matrix_bytes"
    return sum(min(row["stored_bytes"], row[form]) for row in rows), sum(row["stored_bytes"] for row in rows)


def shares(tensors, raw):
    """Of the tensors' bits, by name, those of all, as a part of `raw` bytes."""
    return {name: sum(one[name] for one in tensors) / 8 / raw for name in tensors[0]}


def table(tool, directory, versions):
    """versions: part -> [(name, shape, array of unsigned integers)], the newest last; three of them."""
    found = {}
    for part in versions[-1]:
        kept = [number for number, (_, _, tensor) in enumerate(versions[-1][part]) if tensor.nbytes >= SMALLEST]
        earlier, base, newest = ([version[part][number][2] for number in kept] for version in versions)
        raw = sum(tensor.nbytes for tensor in newest)
        rows = [shape[-1] if len(shape) > 1 else 0 for _, shape, _ in (versions[-1][part][number] for number in kept)]
        ideal = [alone(*of) for of in zip(newest, rows)]
        dense, fx = taken(tool, directory, newest)
        found[part] = {"fx": fx / raw, "fx of matrices": dense / raw, **shares(ideal, raw)}
        ideal = [difference(*of) for of in zip(newest, base, earlier)]
        found[part + ", difference"] = {"dx": taken(tool, directory, newest, base)[0] / raw, **shares(ideal, raw)}
    return found

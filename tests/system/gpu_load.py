"""Keeps a GPU busy through the driver's library alone: ``gpu_load.py SECONDS`` prints how many GPUs it sees, and works
on the first one with 512 MiB of its memory."""

import ctypes
import sys
import time

_BYTES = 512 * 2**20


def main():
    cuda = ctypes.CDLL("libcuda.so.1")
    number, device, context, memory = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    error = cuda.cuInit(0)
    if not error:
        cuda.cuDeviceGetCount(ctypes.byref(number))
    print("GPUs:", number.value, flush=True)  # noqa: T201
    if not number.value:
        return
    for call, *arguments in (
        ("cuDeviceGet", ctypes.byref(device), 0),
        ("cuDevicePrimaryCtxRetain", ctypes.byref(context), device),
        ("cuCtxSetCurrent", context),
        ("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(_BYTES)),
    ):
        if error := getattr(cuda, call)(*arguments):
            sys.exit(f"{call} failed with {error}")
    ends_at = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < ends_at:
        for _ in range(200):
            cuda.cuMemsetD32_v2(memory, 1, ctypes.c_size_t(_BYTES // 4))
        cuda.cuCtxSynchronize()


main()

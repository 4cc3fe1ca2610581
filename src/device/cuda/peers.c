// Memory of GPUs that ranks of this host share, by the driver's IPC: a handle of 64 bytes stands
// for an allocation, and another process that opens it gets an address of the same bytes. Threads
// of one process use the address as it is; the driver refuses to open a handle where it was made.
#include "device/cuda/cuda_internal.h"

#include <stdio.h>
#include <string.h>

static cuda_device *device_of(device *d)
{
    ASSERT(d->api == &device_cuda);
    return (cuda_device *)d;
}

static status share(device *base, const void *memory, int64_t bytes, device_share *out)
{
    cuda_device *d = device_of(base);
    cuda_ipc_handle handle;
    cuda_uuid gpu;
    int piece = 0;
    while (piece < d->piece_count && d->pieces[piece].data != memory) piece++;
    ASSERT(piece < d->piece_count); // memory of this device
    const cuda_address raw = d->pieces[piece].raw;
    TRY(cuda_enter(d));
    TRY(cuda_check(&d->driver, d->driver.device_uuid(&gpu, d->handle),
                   "the driver tells no UUID of the GPU"));
    TRY(cuda_check(&d->driver, d->driver.ipc_handle(&handle, raw),
                   "the GPU's memory cannot be shared with other processes (comm.transport = auto "
                   "sends it through the host)"));
    *out = (device_share){.offset = (int64_t)(cuda_address_of(memory) - raw),
                          .bytes = bytes,
                          .address = cuda_address_of(memory)};
    memcpy(out->handle, handle.bytes, sizeof(out->handle));
    memcpy(out->gpu, gpu.bytes, sizeof(out->gpu));
    return ST_OK;
}

// Finds the GPU among those of this process; -1: this process does not see it.
static status gpu_find(const cuda_device *d, const device_share *of, int *out)
{
    int count = 0;
    TRY(cuda_gpu_count(&d->driver, &count));
    *out = -1;
    for (int i = 0; i < count && *out < 0; i++) {
        cuda_uuid gpu;
        int handle = 0;
        TRY(cuda_check(&d->driver, d->driver.device_get(&handle, i), "a GPU cannot be opened"));
        TRY(cuda_check(&d->driver, d->driver.device_uuid(&gpu, handle),
                       "the driver tells no UUID of a GPU"));
        if (memcmp(gpu.bytes, of->gpu, sizeof(of->gpu)) == 0) *out = handle;
    }
    return ST_OK;
}

static status check(device *base, const device_share *of)
{
    cuda_device *d = device_of(base);
    int peer = -1, can = 0;
    TRY(cuda_enter(d));
    TRY(gpu_find(d, of, &peer));
    if (peer < 0) {
        return fail(ST_UNSUPPORTED,
                    "comm.transport = peer: the GPU of another rank is not visible here; let every "
                    "rank see all GPUs of the host (CUDA_VISIBLE_DEVICES), or set comm.transport = "
                    "auto, which goes through the host's memory");
    }
    if (peer == d->handle) return ST_OK;
    TRY(cuda_check(&d->driver, d->driver.peer_can(&can, d->handle, peer),
                   "the driver does not say whether GPUs reach each other"));
    if (can != 0) return ST_OK;
    return fail(ST_UNSUPPORTED,
                "comm.transport = peer: GPU %d (%s) does not reach the memory of GPU %d; set "
                "comm.transport = auto, which goes through the host's memory, or nccl",
                d->handle, d->gpu.name, peer);
}

// Lets this GPU read memory of another one that a thread of this process owns.
static status enable(cuda_device *d, const device_share *of)
{
    int peer = -1;
    cuda_context theirs = NULL;
    TRY(gpu_find(d, of, &peer));
    if (peer < 0 || peer == d->handle) return ST_OK;
    TRY(cuda_did(d, d->driver.context_retain(&theirs, peer), "a peer's GPU cannot be opened"));
    const cuda_result r = d->driver.peer_enable(theirs, 0);
    (void)d->driver.context_release(peer);
    return r == CUDA_PEER_ENABLED ? ST_OK : cuda_did(d, r, "a peer's GPU cannot be reached");
}

static status open_piece(device *base, const device_share *of, bool here, void **out)
{
    cuda_device *d = device_of(base);
    TRY(cuda_enter(d));
    cuda_address at = of->address;
    if (here) {
        TRY(enable(d, of));
    } else {
        cuda_ipc_handle handle;
        memcpy(handle.bytes, of->handle, sizeof(handle.bytes));
        TRY(cuda_did(d, d->driver.ipc_open(&at, handle, CUDA_IPC_PEERS),
                     "the memory of a peer's GPU cannot be opened (comm.transport = auto goes "
                     "through the host)"));
        at += (cuda_address)of->offset;
    }
    *out = (void *)(uintptr_t)at;
    return ST_OK;
}

static void close_piece(device *base, const device_share *of, bool here, void *at)
{
    cuda_device *d = device_of(base);
    if (here) return;
    (void)d->driver.context_enter(d->context);
    (void)d->driver.ipc_close(cuda_address_of(at) - (cuda_address)of->offset);
}

static status copy(device_stream *s, void *to, const void *from, int64_t bytes)
{
    TRY(cuda_enter(s->device));
    return s->queue.copy(&s->queue, to, from, (size_t)bytes);
}

static status sum(device_stream *s, const device_sum *what)
{
    enum { THREADS = 256, BLOCKS_OF_UNIT = 8 };
    device_sum args = *what;
    void *params[] = {&args};
    const uint32_t size = sizeof(args);
    const int64_t blocks = (what->count + THREADS - 1) / THREADS;
    const int64_t most = (int64_t)s->queue.multiprocessors * BLOCKS_OF_UNIT;
    const cuda_launch l = {.kernel = "cuda_peer_sum",
                           .grid = {(unsigned)min_i64(blocks, most), 1, 1},
                           .block = {THREADS, 1, 1},
                           .params = params,
                           .sizes = &size,
                           .count = 1};
    TRY(cuda_enter(s->device));
    const status st = s->queue.launch(&s->queue, &l);
    return st == ST_OK ? st : cuda_break(s->device, st);
}

const device_peers cuda_peers = {
    .share = share,
    .check = check,
    .open = open_piece,
    .close = close_piece,
    .copy = copy,
    .sum = sum,
};

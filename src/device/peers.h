// Memory of a device that other ranks of this host read and write, and sums over it.
//
// The owner describes a piece by a device_share, plain bytes that travel to its peers. A peer opens
// the piece and gets an address for kernels and copies of its own device. Neither side waits for
// the other here: comm (comm/peer.h) lets a rank touch a piece only between the waits of an
// operation.
#ifndef DEVICE_PEERS_H
#define DEVICE_PEERS_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DEVICE_PEERS = 16,     // ranks that read each other's memory, at most
    DEVICE_SUM_TERMS = 64, // of a sum
    DEVICE_SUM_STEPS = 64,
    DEVICE_SUM_SLOTS = 8 // partial sums that wait for their other half
};

typedef struct device_share {
    unsigned char handle[64]; // of the driver: the piece as other processes open it
    unsigned char gpu[16];    // UUID of the GPU that it lies on
    int64_t offset, bytes;    // of the memory in the piece
    uint64_t address;         // in the owner's process
} device_share;

// A step of a sum: what it adds, and the slot that gets the partial sum. An operand >= 0 is a term,
// ~operand a slot. The last step makes the result.
typedef struct device_sum_step {
    int16_t left, right, slot, unused;
} device_sum_step;

// out[k][i] = in[0][i] (+) in[1][i] (+) ..., for begin <= i < begin + count, or by the steps, in
// fp32 for fp32 and narrower types, rounded once; the bits are those of comm/reduce.h. reduction:
// an op_reduction; type: a dtype. An output may be an input.
typedef struct device_sum {
    const void *in[DEVICE_SUM_TERMS];
    void *out[DEVICE_PEERS];
    device_sum_step steps[DEVICE_SUM_STEPS];
    int64_t begin, count;
    double scale; // of the result
    int32_t terms, outs, step_count;
    int32_t type, reduction, unused;
} device_sum;

// Functions of a device whose memory peers reach (device_api.peers).
typedef struct device_peers {
    // Describes memory of alloc, which must stay until no peer has it open.
    status (*share)(device *d, const void *memory, int64_t bytes, device_share *out);
    // ST_UNSUPPORTED, with the remedy: the two GPUs do not reach each other's memory.
    status (*check)(device *d, const device_share *of);
    // `here`: the owner is a thread of this process.
    status (*open)(device *d, const device_share *of, bool here, void **out);
    void (*close)(device *d, const device_share *of, bool here, void *at);
    // Post to the stream; the addresses may be those of peers.
    status (*copy)(device_stream *s, void *to, const void *from, int64_t bytes);
    status (*sum)(device_stream *s, const device_sum *sum);
} device_peers;

#ifdef __cplusplus
}
#endif
#endif

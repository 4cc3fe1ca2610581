// Sums over ranks that travel compressed: encode, exchange, decode and add in one order, encode again.
//
// The tensors of an operation are one vector, cut into a piece per rank:
//
//   1  every rank encodes all pieces; all_to_all brings each piece's n streams to its owner
//   2  the owner decodes them and adds them up in the order of ranks: a reduce_scatter ends here
//   3  it encodes the sum; all_gather; every rank decodes all pieces, its own too
//
// So a rank sends 2 (n - 1) / n of the compressed bytes, as a ring does of the plain ones, what it works in
// does not grow with n, and all ranks end with the same bits. Where the codec keeps a residual there is one
// for each encoding: of this rank's pieces, and of the sum that it owns (Tang et al. 2021, arXiv:2102.02888).
// Residuals are of a rank, its piece and the number of ranks; under another number they mean nothing.
#ifndef COMM_COMPRESSED_H
#define COMM_COMPRESSED_H

#include "comm/comm.h"
#include "comm/compress/compress.h"

#ifdef __cplusplus
extern "C" {
#endif

// What an operation measures of itself, on this rank: ||lost||^2 and ||v||^2 of what it encoded of its own
// and of the sum, and the bytes that it gave to others. Ranks' rows may be added.
enum { COMM_LOSS_OWN, COMM_NORM_OWN, COMM_LOSS_SUM, COMM_NORM_SUM, COMM_BYTES_SENT, COMM_REALS };
// The larger one of both relative errors.
double comm_compressed_error(const double reals[COMM_REALS]);

// How a vector of `count` floats is cut: `piece` floats per rank, the last ones shorter or empty.
typedef struct comm_cut {
    const comm_codec *codec;
    comm_bucket bucket; // settings of the codec; its count is the whole vector's
    int ranks;
    int64_t piece; // of a reduce_scatter; 0: of an all_reduce, which may choose
} comm_cut;
int64_t comm_compressed_state_bytes(const comm_cut *c); // of a rank; 0: none
int64_t comm_compressed_work_bytes(const comm_cut *c);
// What a rank sends to each of the others, of its own pieces; and once more of the sum, where all get it.
int64_t comm_compressed_stream_bytes(const comm_cut *c);

// How a sum travels: comm_args.compressed. Its contract takes a number for each of the exchanges within.
typedef struct comm_compressed {
    comm_cut cut;  // the items' elements are together cut.bucket.count
    void *state;   // zeros at first; NULL where there is none
    void *work;    // aligned to 64
    double *reals; // COMM_REALS, written
} comm_compressed;

#ifdef __cplusplus
}
#endif
#endif

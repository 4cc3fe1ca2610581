// Compressed sums over ranks: encode, exchange, decode and add in one order, encode again.
//
// The tensors of an operation are one vector, cut into a piece per rank:
//
//   1  Every rank encodes all pieces; all_to_all brings each piece's n streams to its owner.
//   2  The owner decodes them and adds them in the order of ranks. A reduce_scatter ends here.
//   3  The owner encodes the sum; all_gather distributes it; every rank decodes all pieces, its own
//      too.
//
// So a rank sends 2 (n - 1) / n of the compressed bytes, as a ring does of the plain ones. Its
// workspace does not grow with n, and all ranks end with the same bits. A codec with residuals has
// one for each encoding: of this rank's pieces, and of the sum that it owns (Tang et al. 2021,
// arXiv:2102.02888). Residuals belong to a rank, its piece and the number of ranks; with another
// number of ranks they are meaningless.
#ifndef COMM_COMPRESSED_H
#define COMM_COMPRESSED_H

#include "comm/comm.h"
#include "comm/compress/compress.h"

#ifdef __cplusplus
extern "C" {
#endif

// Measurements of an operation on one rank: the squared norms of the error and of the values, for
// its own pieces and for the sum, and the bytes that it sent. They may be added over ranks.
enum { COMM_LOSS_OWN, COMM_NORM_OWN, COMM_LOSS_SUM, COMM_NORM_SUM, COMM_BYTES_SENT, COMM_REALS };
// Returns the larger one of both relative errors.
double comm_compressed_error(const double reals[COMM_REALS]);

// The cut of a vector of `count` floats: `piece` floats per rank, the last pieces shorter or empty.
typedef struct comm_cut {
    const comm_codec *codec;
    comm_bucket bucket; // settings of the codec; its count is the whole vector's
    int ranks;
    int64_t piece; // of a reduce_scatter; 0: of an all_reduce, which chooses its own
} comm_cut;
int64_t comm_compressed_state_bytes(const comm_cut *c); // of a rank; 0: none
int64_t comm_compressed_work_bytes(const comm_cut *c);
// Bytes that a rank sends to each other rank for the pieces that it has; an all_reduce sends as
// many for the sum.
int64_t comm_compressed_stream_bytes(const comm_cut *c);

// Compression of a sum, for comm_args.compressed. Each of its exchanges takes a number of the
// group.
typedef struct comm_compressed {
    comm_cut cut;  // the items' elements are together cut.bucket.count
    void *state;   // zeros before the first operation; NULL: the codec has none
    void *work;    // aligned to 64
    double *reals; // COMM_REALS, written
} comm_compressed;

#ifdef __cplusplus
}
#endif
#endif

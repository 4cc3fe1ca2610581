// Half the bytes: nearest bf16. Relative error of a value at most 2^-8.
#include "comm/compress/compress_table.h"
#include "comm/reduce.h"

static int64_t block_bytes(int64_t n)
{
    return 2 * n;
}

static void encode_block(comm_vectors vectors, const float *v, int64_t n, unsigned char *out)
{
    comm_reduce_narrow(vectors, DTYPE_BF16, v, out, n, 1.0);
}

static bool decode_block(comm_vectors vectors, const unsigned char *in, int64_t n, float *v)
{
    comm_reduce_widen(vectors, DTYPE_BF16, in, v, n);
    return true;
}

const comm_codec comm_codec_bf16 = {
    .name = "bf16",
    .id = 1,
    .bound = 0.005,
    .block_bytes = block_bytes,
    .encode_block = encode_block,
    .decode_block = decode_block,
};

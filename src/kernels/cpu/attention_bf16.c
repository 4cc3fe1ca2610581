// Attention in bf16, forward and backward, for processors with AVX-512 BF16: leaves of attention.c
// and attention_bwd.c.
//
// vec_attention.inc widens bf16 to fp32 and promises the same bits at every level. Where the
// caller does not ask for that (fast mode, or strict sums by pairs) and all tensors are bf16, these
// leaves multiply bf16 pairs with vdpbf16ps, twice the work of an fma, as flash attention does on
// GPUs (Dao 2023, arXiv:2307.08691): P and dS are rounded to bf16, by 2^-8 of each term at most,
// before they are multiplied; scores, softmax, its sums and all accumulators stay in fp32.
//
// As there, the bits of a query depend on its own keys only: a key that it does not see is a zero
// in a pair, key tiles begin at fixed positions, and the lanes of a panel are independent.
#include "kernels/cpu/attention.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/attention_walk.inc"

#include "kernels/cpu/bf16_tile.inc"

#include "kernels/cpu/bf16_panel.inc"

#include "kernels/cpu/bf16_attention.inc"

#include "kernels/cpu/bf16_attention_bwd.inc"

bool attention_is_bf16(const kern_context *context, const kern_call *call)
{
    const kern_tensor *t = call->out;
    if (context->level < KERN_AVX512_BF16 || (call->strict && !call->in_pairs)) return false;
    if (!(call->attrs.scale > 0.0F)) return false; // the highest score is found before it is scaled
    if (call->attrs.cap > 0.0F || attention_value_dim(call) != call->attrs.head_dim) return false;
    const bool backward = call->code == OP_ATTENTION_BWD;
    if (!backward && tensor_has(&call->in[5])) return false; // a sink
    const int inputs = backward ? 5 : 3;                     // dy, q, k, v, y; or q, k, v
    for (int i = 0; i < inputs; i++) {
        if (call->in[i].type != DTYPE_BF16) return false;
    }
    return t->type == DTYPE_BF16;
}

int64_t attention_bf16_scratch(int64_t dim, bool backward)
{
    return backward ? backward_bf16_floats(dim) : forward_bf16_floats(dim);
}

int64_t attention_bf16_packed(int64_t keys, int64_t dim, int64_t runs)
{
    const int64_t words = (dim + 1) / 2 * 2 + align_up(dim, BF16_BLOCK) / 2; // of a key
    return bf16_blocks(keys, runs) * BF16_BLOCK * words;
}

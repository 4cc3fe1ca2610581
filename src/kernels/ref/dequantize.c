// Weights in few bits become numbers (op/quantized.h).
#include "kernels/ref/ref.h"

status ref_dequantize(const kern_context *context, const kern_call *c)
{
    (void)context;
    const kern_tensor *q = &c->in[0], *w = &c->out[0];
    for (int64_t m = 0; m < w->dims[0]; m++) {
        const uint8_t *row = (const uint8_t *)q->data + ref_offset(q, m, 0);
        for (int64_t j = 0; j < w->dims[1]; j += QUANT_BLOCK) {
            const int64_t count = min_i64(QUANT_BLOCK, w->dims[1] - j);
            float x[QUANT_BLOCK];
            op_quant_block_decode(c->attrs.quant, row, count, x);
            for (int64_t k = 0; k < count; k++) ref_put(w, m, j + k, (double)x[k]);
            row += op_quant_block_bytes(c->attrs.quant, count);
        }
    }
    return ST_OK;
}

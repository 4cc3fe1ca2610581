// Operations element by element: sums, casts, activations, gates. A thread takes eight neighbouring
// columns at a time, in fp32, and reads them before it writes, so an output may be an input.
#include "kernels/cuda/view.h"

// Adds the terms by a tree: neighbours first.
DEV_INLINE void map_sum(const cuda_map_args *a, int64_t row, int64_t column, float y[DEV_VECTOR])
{
    float terms[CUDA_MAX_TERMS][DEV_VECTOR];
    DEV_UNROLL
    for (int k = 0; k < CUDA_MAX_TERMS; k++) {
        if (k < a->terms) dev_load8(&a->in[k], row, column, terms[k]);
    }
    DEV_UNROLL
    for (int width = 1; width < CUDA_MAX_TERMS; width *= 2) {
        DEV_UNROLL
        for (int k = 0; k + width < CUDA_MAX_TERMS; k += 2 * width) {
            if (k + width >= a->terms) continue;
            DEV_UNROLL
            for (int i = 0; i < DEV_VECTOR; i++) terms[k][i] += terms[k + width][i];
        }
    }
    DEV_UNROLL
    for (int i = 0; i < DEV_VECTOR; i++) y[i] = terms[0][i];
}

DEV_INLINE void map_vector(const cuda_map_args *a, int64_t row, int64_t column, float y[DEV_VECTOR])
{
    float x[DEV_VECTOR];
    if (a->kind == CUDA_MAP_SUM) {
        map_sum(a, row, column, y);
        return;
    }
    if (a->kind == CUDA_MAP_ZERO) {
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) y[i] = 0.0f;
        return;
    }
    dev_load8(&a->in[0], row, column, y);
    if (a->kind == CUDA_MAP_ACTIVATION) {
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) y[i] = dev_activation(a->activation, y[i]);
    } else if (a->kind == CUDA_MAP_ACTIVATION_BWD) {
        dev_load8(&a->in[1], row, column, x);
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++)
            y[i] = x[i] * dev_activation_slope(a->activation, y[i]);
    } else if (a->kind == CUDA_MAP_SCALE) {
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) y[i] *= a->factor;
    } else if (a->kind == CUDA_MAP_CLAMP) {
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) {
            const float low = y[i] < -a->factor ? -a->factor : y[i];
            y[i] = low > a->factor ? a->factor : low;
        }
    } else if (a->kind == CUDA_MAP_CLAMP_BWD) {
        dev_load8(&a->in[1], row, column, x);
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) y[i] = fabsf(y[i]) <= a->factor ? x[i] : 0.0f;
    } else if (a->kind == CUDA_MAP_SOFT_CAP) {
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) y[i] = dev_capped(a->factor, y[i]);
    } else {
        if (a->kind == CUDA_MAP_ADD_BIAS) dev_load8(&a->in[1], 0, column, x);
        if (a->kind == CUDA_MAP_ACCUMULATE) dev_load8(&a->out, row, column, x);
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) y[i] += x[i];
    }
}

DEV_KERNEL(cuda_map, cuda_map_args, CUDA_THREADS)
{
    const int64_t rows = dev_rows(&a.out);
    for (int64_t row = dev_block(1); row < rows; row += dev_blocks(1)) {
        for (int64_t column = dev_column_first(); column < a.out.columns;
             column += dev_column_step()) {
            float y[DEV_VECTOR];
            map_vector(&a, row, column, y);
            dev_store8(&a.out, row, column, y);
        }
    }
}

// The halves of h as two views.
DEV_INLINE cuda_view gate_half(const cuda_view *h, int half)
{
    cuda_view out = *h;
    out.columns = h->columns / 2;
    out.data = (char *)h->data + half * out.columns * (h->type == DTYPE_F32 ? 4 : 2);
    return out;
}

// min(gate, cap) sigmoid(scale gate) (1 + up), with up within -cap .. cap (op/clamped_gate.c).
DEV_INLINE float gate_clamped(const cuda_gate_args *a, float gate, float up)
{
    const float g = fminf(gate, a->cap), u = fmaxf(fminf(up, a->cap), -a->cap);
    return (1.0f + u) * g * dev_sigmoid(a->scale * g);
}

// Replaces gate and up by their gradients.
DEV_INLINE void gate_clamped_bwd(const cuda_gate_args *a, float d, float *gate, float *up)
{
    const float g = fminf(*gate, a->cap), u = fmaxf(fminf(*up, a->cap), -a->cap);
    const float s = dev_sigmoid(a->scale * g), slope = s + g * a->scale * s * (1.0f - s);
    *gate = *gate <= a->cap ? d * (1.0f + u) * slope : 0.0f;
    *up = fabsf(*up) <= a->cap ? d * g * s : 0.0f;
}

DEV_KERNEL(cuda_gate, cuda_gate_args, CUDA_THREADS)
{
    const cuda_view gates = gate_half(&a.h, 0), ups = gate_half(&a.h, 1);
    const int64_t rows = dev_rows(&a.a);
    for (int64_t row = dev_block(1); row < rows; row += dev_blocks(1)) {
        for (int64_t column = dev_column_first(); column < a.a.columns;
             column += dev_column_step()) {
            float gate[DEV_VECTOR], up[DEV_VECTOR];
            dev_load8(&gates, row, column, gate);
            dev_load8(&ups, row, column, up);
            DEV_UNROLL
            for (int i = 0; i < DEV_VECTOR; i++) {
                up[i] = a.cap > 0.0f ? gate_clamped(&a, gate[i], up[i])
                                     : up[i] * dev_activation(a.activation, gate[i]);
            }
            dev_store8(&a.a, row, column, up);
        }
    }
}

DEV_KERNEL(cuda_gate_bwd, cuda_gate_args, CUDA_THREADS)
{
    const cuda_view gates = gate_half(&a.h, 0), ups = gate_half(&a.h, 1);
    const cuda_view d_gates = gate_half(&a.dh, 0), d_ups = gate_half(&a.dh, 1);
    const int64_t rows = dev_rows(&a.dh);
    for (int64_t row = dev_block(1); row < rows; row += dev_blocks(1)) {
        for (int64_t column = dev_column_first(); column < a.a.columns;
             column += dev_column_step()) {
            float gate[DEV_VECTOR], up[DEV_VECTOR], d[DEV_VECTOR];
            dev_load8(&gates, row, column, gate);
            dev_load8(&ups, row, column, up);
            dev_load8(&a.a, row, column, d);
            DEV_UNROLL
            for (int i = 0; i < DEV_VECTOR; i++) {
                if (a.cap > 0.0f) {
                    gate_clamped_bwd(&a, d[i], &gate[i], &up[i]);
                } else {
                    const float u = up[i];
                    up[i] = d[i] * dev_activation(a.activation, gate[i]);
                    gate[i] = d[i] * u * dev_activation_slope(a.activation, gate[i]);
                }
            }
            dev_store8(&d_gates, row, column, gate);
            dev_store8(&d_ups, row, column, up);
        }
    }
}

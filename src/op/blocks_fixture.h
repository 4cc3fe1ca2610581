// For tests: whole blocks of two families, written with the functions that real blocks use.
#ifndef OP_BLOCKS_FIXTURE_H
#define OP_BLOCKS_FIXTURE_H

#include "op/op_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK_DIM = 24, BLOCK_HEADS = 4, BLOCK_KV = 2, BLOCK_HEAD_DIM = 6, BLOCK_FFN = 40 };

static inline void must_at(status st, int line)
{
    if (st != ST_OK) print_error("line %d: %s\n", line, error_last()->text);
    assert_int_equal(st, ST_OK);
}
#define MUST(call) must_at((call), __LINE__)

static inline tensor_id block_weight(op_program *p, const char *name, int64_t rows, int64_t columns)
{
    tensor_id t = TENSOR_NONE;
    MUST(op_tensor_make(p, name, ROLE_WEIGHT, p->compute, columns > 0 ? 2 : 1, extent_of(rows),
                        extent_of(columns), &t));
    return t;
}

static inline tensor_id block_batch(op_program *p, const char *name)
{
    tensor_id t = TENSOR_NONE;
    MUST(op_tensor_make(p, name, ROLE_BATCH, DTYPE_I32, 1, extent_tokens(1), extent_of(0), &t));
    return t;
}

// Norm, fused q k v (QK norm or not), rope, attention, norm with the residual, gated feed-forward.
static inline op_program *block_llama(arena *a, op_purpose purpose, bool qk_norm)
{
    const int64_t wide = BLOCK_HEADS * BLOCK_HEAD_DIM, narrow = BLOCK_KV * BLOCK_HEAD_DIM;
    op_program *p = NULL;
    MUST(op_program_create(a, purpose, DTYPE_F32, DTYPE_F32, &p));
    tensor_id x, n1, qkv, q, k, v, y, o, n2, h, gate_up, act, down, out, rope;
    MUST(op_input(p, "x", extent_tokens(1), extent_of(BLOCK_DIM), &x));
    const tensor_id positions = block_batch(p, "positions");
    MUST(op_tensor_make(p, "rope", ROLE_CONSTANT, DTYPE_F32, 2, extent_of(64),
                        extent_of(BLOCK_HEAD_DIM), &rope));
    MUST(op_rmsnorm(p, x, block_weight(p, "norm1", BLOCK_DIM, 0), TENSOR_NONE, 1e-5f, 0.0f, &n1,
                    NULL));
    MUST(op_matmul(p, n1, block_weight(p, "qkv", wide + 2 * narrow, BLOCK_DIM), TENSOR_NONE,
                   ACT_NONE, &qkv));
    MUST(op_view(p, qkv, "q", 0, wide, &q));
    MUST(op_view(p, qkv, "k", wide, narrow, &k));
    MUST(op_view(p, qkv, "v", wide + narrow, narrow, &v));
    if (qk_norm) {
        MUST(op_rmsnorm(p, q, block_weight(p, "q_norm", BLOCK_HEAD_DIM, 0), TENSOR_NONE, 1e-6f,
                        0.0f, &q, NULL));
        MUST(op_rmsnorm(p, k, block_weight(p, "k_norm", BLOCK_HEAD_DIM, 0), TENSOR_NONE, 1e-6f,
                        0.0f, &k, NULL));
    }
    MUST(op_rope(p, q, positions, rope, BLOCK_HEADS, BLOCK_HEAD_DIM, false, &q));
    MUST(op_rope(p, k, positions, rope, BLOCK_KV, BLOCK_HEAD_DIM, false, &k));
    op_attrs attrs = op_node_of(OP_ATTENTION).attrs;
    attrs.heads = BLOCK_HEADS;
    attrs.kv_heads = BLOCK_KV;
    attrs.head_dim = BLOCK_HEAD_DIM;
    MUST(op_attention(p, q, k, v, TENSOR_NONE, TENSOR_NONE, &attrs, &y));
    MUST(op_matmul(p, y, block_weight(p, "o", BLOCK_DIM, wide), TENSOR_NONE, ACT_NONE, &o));
    MUST(op_rmsnorm(p, x, block_weight(p, "norm2", BLOCK_DIM, 0), o, 1e-5f, 0.0f, &n2, &h));
    MUST(op_matmul(p, n2, block_weight(p, "gate_up", 2 * BLOCK_FFN, BLOCK_DIM), TENSOR_NONE,
                   ACT_NONE, &gate_up));
    MUST(op_swiglu(p, gate_up, &act));
    MUST(op_matmul(p, act, block_weight(p, "down", BLOCK_DIM, BLOCK_FFN), TENSOR_NONE, ACT_NONE,
                   &down));
    MUST(op_add(p, h, down, &out));
    MUST(op_output(p, out));
    return p;
}

// LayerNorm with biases, fused q k v straight into attention, dropout at every use, GELU.
static inline op_program *block_gpt2(arena *a, op_purpose purpose, float dropout)
{
    const int64_t dim = BLOCK_DIM;
    op_program *p = NULL;
    MUST(op_program_create(a, purpose, DTYPE_BF16, DTYPE_F32, &p));
    tensor_id x, n1, qkv, q, k, v, y, o, n2, h, up, down, out;
    MUST(op_input(p, "x", extent_tokens(1), extent_of(dim), &x));
    MUST(op_layernorm(p, x, block_weight(p, "ln1", dim, 0), block_weight(p, "ln1_b", dim, 0),
                      TENSOR_NONE, 1e-5f, &n1, NULL));
    MUST(op_matmul(p, n1, block_weight(p, "qkv", 3 * dim, dim),
                   block_weight(p, "qkv_b", 3 * dim, 0), ACT_NONE, &qkv));
    MUST(op_view(p, qkv, "q", 0, dim, &q));
    MUST(op_view(p, qkv, "k", dim, dim, &k));
    MUST(op_view(p, qkv, "v", 2 * dim, dim, &v));
    op_attrs attrs = op_node_of(OP_ATTENTION).attrs;
    attrs.heads = attrs.kv_heads = BLOCK_HEADS;
    attrs.head_dim = BLOCK_HEAD_DIM;
    attrs.dropout = dropout;
    attrs.site = 1;
    MUST(op_attention(p, q, k, v, TENSOR_NONE, TENSOR_NONE, &attrs, &y));
    MUST(op_matmul(p, y, block_weight(p, "o", dim, dim), block_weight(p, "o_b", dim, 0), ACT_NONE,
                   &o));
    MUST(op_dropout(p, o, dropout, 2, &o));
    MUST(op_layernorm(p, x, block_weight(p, "ln2", dim, 0), block_weight(p, "ln2_b", dim, 0), o,
                      1e-5f, &n2, &h));
    MUST(op_matmul(p, n2, block_weight(p, "up", BLOCK_FFN, dim),
                   block_weight(p, "up_b", BLOCK_FFN, 0), ACT_GELU_TANH, &up));
    MUST(op_matmul(p, up, block_weight(p, "down", dim, BLOCK_FFN),
                   block_weight(p, "down_b", dim, 0), ACT_NONE, &down));
    MUST(op_dropout(p, down, dropout, 3, &down));
    MUST(op_add(p, h, down, &out));
    MUST(op_output(p, out));
    return p;
}

// The last norm and the loss, as a block of their own.
static inline op_program *block_head(arena *a, op_purpose purpose)
{
    op_program *p = NULL;
    MUST(op_program_create(a, purpose, DTYPE_F32, DTYPE_F32, &p));
    tensor_id x, n, loss;
    MUST(op_input(p, "x", extent_tokens(1), extent_of(BLOCK_DIM), &x));
    const tensor_id labels = block_batch(p, "labels");
    MUST(op_rmsnorm(p, x, block_weight(p, "norm", BLOCK_DIM, 0), TENSOR_NONE, 1e-5f, 0.0f, &n,
                    NULL));
    MUST(op_head_loss(p, n, block_weight(p, "head", 50, BLOCK_DIM), labels, 0.0f, &loss));
    MUST(op_step_loss(p, loss, labels));
    return p;
}

static inline int count_of(const op_program *p, op_list list, op_code code)
{
    int n = 0;
    for (int64_t i = 0; i < p->lists[list].count; i++) n += p->lists[list].nodes[i].code == code;
    return n;
}

// The k-th node of a kind in a list.
static inline const op_node *node_of(const op_program *p, op_list list, op_code code, int k)
{
    const op_node *nodes = p->lists[list].nodes;
    int64_t at = 0;
    while (at < p->lists[list].count && !(nodes[at].code == code && k-- == 0)) at++;
    assert_true(at < p->lists[list].count);
    return &nodes[at];
}

#endif

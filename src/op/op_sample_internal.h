// Shared by the files of sample programs: op_sample.c and op_sample_experts.c, of operations without kernels.
#ifndef OP_OP_SAMPLE_INTERNAL_H
#define OP_OP_SAMPLE_INTERNAL_H

#include "op/op_internal.h"
#include "op/op_sample.h"

typedef struct setting {
    dtype type, grad, id;
    int32_t heads, kv_heads, head_dim;
    int64_t seqs, seq, cache_seq;
    int64_t k, m, vocab; // columns in, columns out, rows of tables
} setting;

typedef struct builder {
    op_program *p;
    op_node node;
    const setting *s;
    int option;
    uint32_t wanted;
    op_list list;
} builder;

typedef struct sample_row {
    int options;
    status (*build)(builder *b);
} sample_row;

extern const sample_row op_sample_planned[OP_CODE_COUNT];

#endif

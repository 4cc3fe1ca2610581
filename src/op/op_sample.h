// Samples: a tiny program around one single node of any operation, in several shapes and types.
//
// The contract tests run over every row of the table by themselves, here (op_table_test.c) and in
// kernels/backend_test.c; this is the one place that knows what a legal node of each kind looks
// like. Only shapes and types are made here; the values are the kernels test's business, which
// finds what it needs from the operand's place in op.h and its tensor's role and type.
#ifndef OP_OP_SAMPLE_H
#define OP_OP_SAMPLE_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

// Variants of an operation are numbered from 0: odd shapes, every optional operand present and
// missing, fp32, bf16 and fp16, views as operands, windows, groups, one row, one column.
int op_sample_count(op_code code);

// Builds variant 0 <= variant < op_sample_count(code). Node `*node_index` of list `*list` of program
// `*p` is the sample; it is the program's only node of that kind.
//
// In the binding: rows per sequence T = TOKENS / SEQS; longest cached sequence S_max = CACHE / SEQS.
// Values that a caller has to give, by operand: ids and labels lie in [0, V) (a label may be -1);
// positions in [0, P) where P is dim 0 of the table they index; documents do not fall within a
// sequence; T <= lengths[b] <= S_max; rows of GATHER in [0, N).
NODISCARD status op_sample(arena *a, op_code code, int variant, op_program **p, op_list *list,
                           int64_t *node_index, extent_binding *bound);

#ifdef __cplusplus
}
#endif
#endif

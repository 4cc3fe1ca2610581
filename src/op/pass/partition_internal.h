// Shared by the files of the partition: partition.c (models, tensors, rules), partition_sum.c
// (nodes whose result is a sum over ranks), partition_heads.c (keys that several ranks have) and
// partition_norm.c (norms that no rule of their row cuts).
#ifndef OP_PASS_PARTITION_INTERNAL_H
#define OP_PASS_PARTITION_INTERNAL_H

#include "op/op_internal.h"
#include "op/pass/partition.h"

enum { PARTS_MAX = 4 };

// A dim that is cut: its parts follow each other and each is cut separately; sizes are those of the
// whole. If a part has copies, that many neighbouring ranks have the same piece.
typedef struct cut_parts {
    int count;
    int64_t size[PARTS_MAX];
    int32_t copies[PARTS_MAX]; // at least 1
} cut_parts;

// The state of a tensor of the whole program.
typedef struct tensor_state {
    bool known;
    placement at;
    cut_parts parts; // of the dim along which it is cut, but for rows of tokens
    tensor_id all;   // of one cut by positions: the same with all rows; TENSOR_NONE: not made yet
    // With PLACE_PARTIAL, of rows of experts: the rank's terms
    tensor_id *terms;
    int32_t term_count;
} tensor_state;

typedef struct partition {
    arena *a;
    const op_cut *how;
    op_cut of_experts; // `how`, for sums inside of experts that are cut
    const op_program *whole;
    op_program *p; // the rank's; tensors have the same ids in both
    tensor_state *state;
    // [tensor] a weight whose gradient is a term on this many neighbouring ranks; 0: on none
    int32_t *partial;
    int64_t *forward_end; // [node of the whole's forward list] where its nodes end in the rank's
    tensor_id stats;      // of the last head without slopes; the head with slopes takes them again
} partition;

static inline int64_t cut_begin(const op_cut *how, int64_t d)
{
    return op_piece_begin(d, how->ways, how->at);
}
static inline int64_t cut_size(const op_cut *how, int64_t d)
{
    return op_piece_begin(d, how->ways, how->at + 1) - cut_begin(how, d);
}
// The begin and the length of this rank's piece of a part.
static inline int64_t part_begin(const op_cut *how, const cut_parts *parts, int i)
{
    const int32_t copies = parts->copies[i];
    return op_piece_begin(parts->size[i], how->ways / copies, how->at / copies);
}
static inline int64_t part_size(const op_cut *how, const cut_parts *parts, int i)
{
    const int32_t copies = parts->copies[i];
    return op_piece_begin(parts->size[i], how->ways / copies, how->at / copies + 1) -
           part_begin(how, parts, i);
}
static inline bool parts_have_copies(const cut_parts *parts)
{
    for (int i = 0; i < parts->count; i++) {
        if (parts->copies[i] > 1) return true;
    }
    return false;
}
// The number of terms of a sum on this rank, the index of the first, and the number of all.
static inline int32_t cut_terms(const op_cut *how)
{
    return how->ordered ? how->shards / how->ways : 1;
}
static inline int32_t cut_shards(const op_cut *how)
{
    return how->ordered ? how->shards : how->ways;
}
static inline int32_t cut_first(const op_cut *how)
{
    return how->at * cut_terms(how);
}
// Whether the ranks of tp have the same rows of experts, and pieces of each expert.
static inline bool cut_in_terms(const op_cut *how)
{
    return !how->whole_experts && !how->gathers_experts;
}
static inline bool placement_equal(placement a, placement b)
{
    return a.kind == b.kind && (a.kind != PLACE_SHARD || a.dim == b.dim);
}

static inline int32_t cut_common_divisor(int32_t a, int32_t b)
{
    while (b != 0) {
        const int32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// partition.c
// The placement of an activation is known now, and with it that of all its views.
NODISCARD status partition_set(partition *c, tensor_id t, placement at, const cut_parts *parts);
// Returns t with all of its rows: itself, or gathered.
NODISCARD status partition_all_rows(partition *c, op_list list, tensor_id t, tensor_id *out);
// Makes an activation of t's type, named after it.
NODISCARD status partition_make(partition *c, tensor_id t, const char *suffix, dtype type,
                                extent rows, extent columns, tensor_id *out);
// partition_sum.c: appends `node` (in local ids, attributes cut), whose output 0 is a sum over
// ranks, and the operations that add it.
NODISCARD status partition_sum(partition *c, op_list list, const op_node *node);
// The same for rows of experts that are cut: keeps the terms apart. And a node that adds up the
// rows of tokens, of terms.
NODISCARD status partition_expert_terms(partition *c, op_list list, const op_node *node);
NODISCARD status partition_tokens(partition *c, op_list list, const op_node *node);
// Gives a node of a router the choices of whole sequences as an operand, where a loss needs them.
NODISCARD status partition_choices(partition *c, op_list list, tensor_id ids, int operand,
                                   op_node *local);
// Begin of shard `s` among this rank's columns of a part.
int64_t partition_shard_begin(const partition *c, const cut_parts *parts, int i, int32_t s);
// Returns the node that adds `count` terms of each rank; over_ranks: its code if there are several.
op_node partition_sum_of(const partition *c, op_code over_ranks, const tensor_id *terms,
                         int32_t count, tensor_id y);
// Makes y the sum of `count` terms of each rank.
NODISCARD status partition_terms_add(partition *c, op_list list, const tensor_id *terms,
                                     int32_t count, tensor_id y);
NODISCARD status partition_head(partition *c, op_list list, const op_node *node);
NODISCARD status partition_score(partition *c, op_list list, const op_node *node);
// Makes a view of columns of a tensor of the rank's program.
NODISCARD status partition_columns(partition *c, tensor_id of, int64_t begin, int64_t end,
                                   tensor_id *out);

static inline bool partition_is_grouped(op_code code)
{
    return code == OP_GROUPED_MATMUL || code == OP_GROUPED_MATMUL_DX ||
           code == OP_GROUPED_MATMUL_DW;
}

// partition_heads.c: gradients of attention if queries of several ranks, or shards, have the same
// keys.
bool partition_shares_keys(const partition *c, const op_node *node);
// `node` is a node of the whole program, `local` the same in local ids with attributes cut.
NODISCARD status partition_attention(partition *c, op_list list, const op_node *node,
                                     const op_node *local);
// Logits of which a token is drawn leave the model whole, as the draw has them.
void partition_outputs_whole(partition *c);
// partition_norm.c: norms over all heads, whose columns and weight are cut by heads.
bool partition_is_wide_norm(const partition *c, const op_node *node);
// Sets the rule of such a norm, or of one whose columns every rank has; false: the node is neither.
bool partition_norm_rule(const partition *c, const op_node *node, op_rule *out);
NODISCARD status partition_norm(partition *c, op_list list, const op_node *node, op_node *local);

#endif

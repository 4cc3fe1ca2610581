// Partition of grouped heads: heads of keys that queries of several ranks attend to, because there
// are fewer of them than ranks.
//
// The ranks that share a head of keys all have it: its rows of the weights, its columns of k and v.
// So the forward needs no communication. In the backward each rank has the terms of its own queries
// of dk and dv, and these ranks sum them at once:
//
//   heads of queries    0 1 | 2 3 | 4 5 | 6 7        4 ranks
//   heads of keys       0   | 0   | 1   | 1
//   dk, dv              t0    t1    t2    t3    ->   t0 + t1, the same | t2 + t3, the same
//
// From there on the head is treated like the rank's own: its rows of the gradient of a weight are
// complete, with the same bits, on all of its ranks. dx = dy w would count the head several times,
// so each rank adds its share of it (partition_sum.c). The traffic is 2 head_dim numbers per token
// and micro-batch, where the sum of dx is dim.
//
// In strict order such a sum has a term for each of the most ranks that could share a head:
// gcd(tp_shards, heads) of them over all heads of keys. One rank that has all of them computes the
// terms one by one and adds them by the tree.
#include "op/pass/partition_internal.h"

// The division of a rank's queries into terms.
typedef struct key_terms {
    int32_t of_head;  // terms of a head's sum, on all ranks
    int32_t here;     // of them, on this rank
    int32_t kv_heads; // on this rank
    int32_t ranks;    // that share a head
    int32_t first;    // of its terms, this rank's first
    int32_t q_heads;  // of queries in a term
    int64_t head_dim;
} key_terms;

static key_terms terms_of(const op_cut *how, const op_attrs *whole)
{
    const int32_t ways = how->ways, kv = whole->kv_heads;
    const int32_t pieces = how->ordered ? cut_common_divisor(how->shards, whole->heads) : ways;
    const bool are_shared = pieces > kv && pieces % kv == 0;
    key_terms t = {.of_head = are_shared ? pieces / kv : 1, .head_dim = whole->head_dim};
    t.ranks = op_part_copies(kv, ways);
    t.here = t.of_head / t.ranks;
    t.kv_heads = kv > ways ? kv / ways : 1;
    t.first = how->at % t.ranks * t.here;
    t.q_heads = whole->heads / ways / (t.kv_heads * (t.here > 0 ? t.here : 1));
    return t;
}

bool partition_shares_keys(const partition *c, const op_node *node)
{
    if (node->code != OP_ATTENTION_BWD) return false;
    const placement at = c->state[node->in[2]].at;
    const bool by_heads = at.kind == PLACE_SHARD && at.dim == 1;
    return by_heads && terms_of(c->how, &node->attrs).of_head > 1;
}

// Returns columns of an operand; the operand itself if they are all.
static status columns_of(partition *c, tensor_id *t, int64_t begin, int64_t count)
{
    const tensor_id of = *t;
    if (op_at(c->p, of)->dims[1].scale == count) return ST_OK;
    return partition_columns(c, of, begin, begin + count, t);
}

static status term_make(partition *c, tensor_id like_id, int64_t columns, tensor_id *out)
{
    const op_tensor like = *op_at(c->p, like_id);
    return partition_make(c, like_id, "term", like.type, like.dims[0], extent_of(columns), out);
}

// Appends piece `k` of the rank's queries, which all attend to one head of keys.
static status term_push(partition *c, op_list list, const op_node *local, const key_terms *t,
                        int32_t k, tensor_id dk, tensor_id dv)
{
    const int64_t q = t->q_heads * t->head_dim, kv = k / t->here * t->head_dim;
    op_node term = *local;
    term.attrs.heads = t->q_heads;
    term.attrs.kv_heads = 1;
    term.piece.first_head += k * t->q_heads;
    TRY(columns_of(c, &term.in[0], k * q, q));
    TRY(columns_of(c, &term.in[1], k * q, q));
    TRY(columns_of(c, &term.in[2], kv, t->head_dim));
    TRY(columns_of(c, &term.in[3], kv, t->head_dim));
    TRY(columns_of(c, &term.in[4], k * q, q));
    TRY(columns_of(c, &term.in[5], (int64_t)k * t->q_heads, t->q_heads));
    TRY(columns_of(c, &term.out[0], k * q, q));
    term.out[1] = dk;
    term.out[2] = dv;
    return op_append(c->p, list, &term, 0);
}

// Sets y to the sum of this rank's terms, and of those of the ranks that share the head.
static status terms_add(partition *c, op_list list, const key_terms *t, const tensor_id *terms,
                        tensor_id y)
{
    const op_tensor like = *op_at(c->p, y);
    op_node sum = op_node_of(t->ranks > 1 ? OP_ALL_REDUCE : OP_SUM);
    for (int32_t i = 0; i < t->here; i++) sum.in[i] = terms[i];
    sum.out[0] = y;
    if (t->ranks == 1) return op_append(c->p, list, &sum, 0);
    sum.attrs.axis = AXIS_TP;
    sum.piece.inside = t->ranks;
    if (c->how->ordered) {
        sum.piece.shards = t->of_head;
        sum.piece.first_shard = t->first;
    }
    if (like.view_of == TENSOR_NONE) return op_append(c->p, list, &sum, 0);
    // The sent columns must be contiguous.
    op_node put = op_node_of(OP_SUM);
    TRY(partition_make(c, y, "sum", like.type, like.dims[0], like.dims[1], &put.in[0]));
    sum.out[0] = put.in[0];
    put.out[0] = y;
    TRY(op_append(c->p, list, &sum, 0));
    return op_append(c->p, list, &put, 0);
}

status partition_attention(partition *c, op_list list, const op_node *node, const op_node *local)
{
    const key_terms t = terms_of(c->how, &node->attrs);
    ASSERT(t.here > 0 && t.here <= OP_CUT_MAX_TERMS);
    for (int32_t h = 0; h < t.kv_heads; h++) {
        tensor_id dk[OP_CUT_MAX_TERMS], dv[OP_CUT_MAX_TERMS];
        tensor_id dk_sum = local->out[1], dv_sum = local->out[2];
        for (int32_t i = 0; i < t.here; i++) {
            TRY(term_make(c, local->out[1], t.head_dim, &dk[i]));
            TRY(term_make(c, local->out[2], t.head_dim, &dv[i]));
            TRY(term_push(c, list, local, &t, h * t.here + i, dk[i], dv[i]));
        }
        TRY(columns_of(c, &dk_sum, h * t.head_dim, t.head_dim));
        TRY(columns_of(c, &dv_sum, h * t.head_dim, t.head_dim));
        TRY(terms_add(c, list, &t, dk, dk_sum));
        TRY(terms_add(c, list, &t, dv, dv_sum));
    }
    return ST_OK;
}

void partition_outputs_whole(partition *c)
{
    for (int k = 0; k < c->p->output_count; k++) {
        const tensor_state *s = &c->state[c->p->outputs[k]];
        if (s->at.kind == PLACE_SHARD && s->at.dim == 1 && s->all != TENSOR_NONE) {
            c->p->outputs[k] = s->all;
        }
    }
}

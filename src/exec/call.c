// Makes the call of a kernel from a node of an action.
//
// A program names tensors; the action's binding maps them to tensors of the plan, which have
// offsets. Batch tensors hold the whole step, so a micro-batch is a range of their rows; an action
// on some of a micro-batch's sequences is a range of all tensors that have rows of tokens.
#include "exec/call.h"

#include "op/zigzag.h"
#include "plan/access.h"

#include <string.h>

static const plan_binding *binding_of(const plan *p, const plan_action *action)
{
    ASSERT(action->binding >= 0 && action->binding < p->binding_count);
    return &p->bindings[action->binding];
}

// Rows of dim 0 that come before the action's first sequence.
static int64_t rows_before(const plan *p, const plan_action *action, const op_tensor *owner)
{
    const extent e = owner->dims[0];
    if (e.symbol == EXTENT_ONE) return 0;
    int64_t sequences = action->sequence_begin;
    if ((owner->role == ROLE_BATCH || owner->role == ROLE_CACHE) && action->microbatch > 0) {
        sequences += action->microbatch * p->micro_batch;
    }
    extent_binding before = plan_bound(p, sequences, 0);
    before.value[EXTENT_TOKENS] += action->position_begin;
    before.value[EXTENT_TOKENS_CUT] += action->position_begin * p->seq_cut / p->seq;
    return extent_value(e, &before);
}

kern_tensor exec_operand(const plan *p, const plan_action *action, tensor_id t, char *base)
{
    kern_tensor out = {0};
    if (t == TENSOR_NONE) return out;
    const plan_binding *b = binding_of(p, action);
    const op_owned owned = op_owner(b->program, t);
    const op_tensor *local = &b->program->tensors[t], *owner = &b->program->tensors[owned.id];
    const int32_t ref = b->tensor[owned.id];
    if (ref == -1) return out; // the plan has no tensor for it
    const int64_t sequences = action->sequence_count > 0 ? action->sequence_count : p->micro_batch;
    const extent_binding bound = plan_bound(p, sequences, action->position_count);
    out.type = local->type;
    out.ndim = local->ndim;
    int64_t stride = 1;
    for (int i = local->ndim - 1; i >= 0; i--) {
        out.dims[i] = extent_value(local->dims[i], &bound);
        out.strides[i] = stride;
        stride *= extent_value(owner->dims[i], &bound);
    }
    int64_t row_elements = 1;
    for (int i = 1; i < owner->ndim; i++) row_elements *= extent_value(owner->dims[i], &bound);
    const int64_t skip = (rows_before(p, action, owner) + owned.row) * row_elements + owned.column;
    out.data = base + plan_tensor_offset(p, ref) + skip * dtype_bytes(local->type);
    if (local->dims[0].bounded) {
        const kern_tensor count = exec_operand(p, action, local->dims[0].count, base);
        ASSERT(count.data != NULL);
        out.count_type = count.type;
        out.count = (char *)count.data + local->dims[0].count_at * dtype_bytes(count.type);
    }
    return out;
}

// The plan tensor of a node's workspace or packed weights; -1: it has none.
static int32_t row_at(const int32_t *rows, int64_t at)
{
    return rows != NULL ? rows[at] : -1;
}

// Sequences in a cache grow by any number of rows.
static bool sums_in_pairs(const plan *p)
{
    return p->in_pairs || (p->cache_seq == 0 && zigzag_in_pairs(p->whole_seq, p->cp_shards));
}

// Whether the node finds the rows of some sequences by their counts.
static bool has_counts(const op_node *node)
{
    return op_kind_of(node->code)->finds_rows && node->in[3] != TENSOR_NONE;
}

// Sets the sequences whose rows a kernel finds itself by their counts. Where pieces of sequences
// are counted apart, these are numbers of pieces; an action on positions has one of them.
static void sequences_set(const plan *p, const plan_action *action, const op_node *node,
                          kern_call *call)
{
    const op_program *program = binding_of(p, action)->program;
    call->sequence_begin = action->sequence_begin;
    call->sequence_count = action->sequence_count < p->micro_batch ? action->sequence_count : 0;
    if (!has_counts(node)) return;
    const int64_t ranks = max_i64(node->attrs.ranks, 1);
    const int64_t pieces = program->tensors[node->in[3]].dims[0].scale / ranks;
    if (pieces == 1) return;
    call->sequence_begin *= pieces;
    call->sequence_count *= pieces;
    if (action->position_count == 0) return;
    ASSERT(action->position_count * pieces == p->seq);
    call->sequence_begin += action->position_begin / action->position_count;
    call->sequence_count = 1;
}

void exec_call_make(const plan *p, const plan_action *action, int64_t at, char *base,
                    int64_t step_no, kern_call *call)
{
    const plan_binding *b = binding_of(p, action);
    const op_node *node = &b->program->lists[action->list].nodes[at];
    const plan_action rows = plan_action_rows(action, node);
    memset(call, 0, sizeof(*call));
    call->code = node->code;
    call->attrs = node->attrs;
    call->piece = node->piece;
    for (int k = 0; k < OP_MAX_IN; k++) {
        call->in[k] = exec_operand(p, &rows, node->in[k], base);
    }
    for (int k = 0; k < OP_MAX_OUT; k++) {
        call->out[k] = exec_operand(p, &rows, node->out[k], base);
    }
    call->step = (step_block *)(void *)(base + plan_tensor_offset(p, p->step_ref));
    const int32_t space = row_at(b->workspace[action->list], at);
    if (space >= 0) {
        call->workspace = base + plan_tensor_offset(p, space);
        call->workspace_bytes = p->tensors[space].dims[0];
    }
    const int32_t packed = row_at(b->packed[action->list], at);
    if (packed >= 0) {
        call->packed = base + plan_tensor_offset(p, packed);
        call->fills = action->fills;
    }
    call->seq = action->position_count > 0 ? action->position_count : p->seq;
    if (node->piece.seq_ways > 1) call->seq *= node->piece.seq_ways;
    call->cache_seq = p->cache_seq;
    call->first_row = b->first_row;
    call->first_head = node->piece.first_head;
    if (node->piece.row_ways > 1) {
        call->seq = p->seq_cut;
        call->cut_ways = node->piece.row_ways;
        call->cut_at = node->piece.row_at;
        call->cut_pieces = p->cut_pieces;
    }
    call->first_sequence = p->first_sequence +
                           (action->microbatch > 0 ? action->microbatch * p->micro_batch : 0) +
                           action->sequence_begin;
    sequences_set(p, action, node, call);
    call->rows_of = action->rows_of;
    call->loss_divisor = op_loss_divisor(&node->attrs, p->loss_divisor);
    call->accumulate = action->accumulate;
    call->poison = p->poison;
    call->strict = p->strict;
    call->in_pairs = p->strict && sums_in_pairs(p);
    call->cp_shards = p->strict ? p->cp_shards : 0;
    call->step_no = (int32_t)step_no;
    call->microbatch = action->microbatch;
    call->layer = b->layer >= 0 ? p->model->layers[b->layer].index : -1;
    // A dropout site is a use within a layer; the layer makes it unique in the model. A layer has
    // four uses, and those of its adapter in the upper half of the numbers.
    enum { USES = 4, ADAPTER_USES = 32, ADAPTER_SITES = 1 << 19 };
    const int32_t above = call->layer + 1;
    call->attrs.site +=
        call->attrs.site < USES ? USES * above : ADAPTER_SITES + ADAPTER_USES * above;
}

// The operands' shapes, as a backend is asked about them: no byte is read.
static kern_call shapes_call(const exec_workspace_context *c, const op_program *program,
                             const op_node *node, const extent_binding *bound)
{
    kern_call call = {
        .code = node->code, .attrs = node->attrs, .piece = node->piece, .strict = c->strict};
    for (int k = 0; k < OP_MAX_IN + OP_MAX_OUT; k++) {
        const tensor_id t = op_operand(node, k);
        if (t == TENSOR_NONE) continue;
        const op_tensor *local = &program->tensors[t];
        kern_tensor *view = k < OP_MAX_IN ? &call.in[k] : &call.out[k - OP_MAX_IN];
        view->type = local->type;
        view->ndim = local->ndim;
        int64_t stride = 1;
        for (int i = local->ndim - 1; i >= 0; i--) {
            view->dims[i] = extent_value(local->dims[i], bound);
            view->strides[i] = stride;
            stride *= view->dims[i];
        }
        static char present;
        view->data = &present;
    }
    return call;
}

int64_t exec_workspace(void *context, const op_program *program, const op_node *node,
                       const extent_binding *bound, int64_t seq, int64_t cache_seq)
{
    const exec_workspace_context *c = context;
    kern_call call = shapes_call(c, program, node, bound);
    call.seq = seq * max_i64(node->piece.seq_ways, 1) / max_i64(node->piece.row_ways, 1);
    call.cache_seq = cache_seq;
    return kern_workspace_bytes(c->kernels, &call);
}

bool exec_fuses(void *context, const plan *p, const op_program *program, const op_node *first,
                const op_node *second, const extent_binding *bound)
{
    const exec_workspace_context *c = context;
    kern_call a = shapes_call(c, program, first, bound);
    const kern_call b = shapes_call(c, program, second, bound);
    a.in_pairs = p->strict && sums_in_pairs(p);
    return kern_fuses(c->kernels, &a, &b);
}

int64_t exec_packed_bytes(void *context, const op_program *program, const op_node *node,
                          const extent_binding *bound)
{
    const exec_workspace_context *c = context;
    const kern_call call = shapes_call(c, program, node, bound);
    return kern_packed_bytes(c->kernels, &call);
}

status exec_counts_check(const plan *p)
{
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *a = &p->actions[i];
        const bool is_some =
            a->position_count > 0 || (a->sequence_count > 0 && a->sequence_count < p->micro_batch);
        if (a->kind != ACTION_COMPUTE || !is_some) continue;
        const op_program *program = p->bindings[a->binding].program;
        const op_node *nodes = &program->lists[a->list].nodes[a->ops_begin];
        for (int32_t k = 0; k < a->ops_count * OP_MAX_IN; k++) {
            const op_node *node = &nodes[k / OP_MAX_IN];
            const tensor_id t = node->in[k % OP_MAX_IN];
            if (op_count_of(program, t) == TENSOR_NONE || has_counts(node)) continue;
            return fail(ST_UNSUPPORTED,
                        "%s has rows in an order of their own, which no shard of a micro-batch has "
                        "a part of: take micro-batches of one shard, or determinism.mode=fast",
                        program->tensors[t].name);
        }
    }
    return ST_OK;
}

// Measures the bytes that one layer holds during a micro-batch and between forward and backward:
// the lifetimes that lowering would record, for one layer alone.
//
//   time   | forward | gap | recompute, gradient of the input | gap | gradients of weights |
//
// A tensor that is handed over belongs to its next user: an output is the layer's until its forward
// ends, and from then on it is the next layer's input. Tensors that a node may overwrite in place
// count once, as in plan/lower/place.c.
#include "predict/estimate_internal.h"

#include "plan/plan.h"

#include <string.h>

enum { SPANS = 3 }; // per tensor: forward, backward; one more if units are joined

// First and last node of a list between which a tensor is held.
typedef struct held_span {
    int64_t begin, end;
} held_span;

typedef struct local_unit {
    int64_t bytes;
    plan_kind_of_bytes kind;
    held_span *spans; // sorted, disjoint
    int32_t count;
    int32_t leader;
} local_unit;

typedef struct local {
    arena *a;
    const estimate *e;
    const op_program *p;
    uint32_t variant;
    bool has_loss;    // computes its gradients of weights in the first half
    int64_t begin[4]; // of forward, first gap, second gap, second half; then the end
    int64_t first_half, end;
    int64_t list_at[OP_LIST_COUNT];
    struct touches {
        int64_t forward[2], backward[2]; // first and last; -1
        bool again;                      // recomputed before the backward
    } * touched;
    local_unit *units; // [tensor]
    kinds *live;       // [time]
    bool in_pieces;    // its gradients of weights are computed piece by piece
} local;

static int64_t tensor_bytes(const local *l, tensor_id t)
{
    return align_up(op_tensor_bytes(&l->p->tensors[t], &l->e->bound), ALIGN_TENSOR);
}

// ---- time ---------------------------------------------------------------------------------------

static int64_t node_count(const local *l, op_list list)
{
    return l->p->lists[list].count;
}

static void times_set(local *l)
{
    l->has_loss = l->p->output_count == 0;
    l->begin[0] = 0;
    l->begin[1] = max_i64(node_count(l, OP_FORWARD), 1); // the first gap
    l->first_half = l->begin[1] + 1;
    int64_t at = l->first_half;
    l->list_at[OP_FORWARD] = 0;
    l->list_at[OP_RECOMPUTE] = at;
    at += node_count(l, OP_RECOMPUTE);
    if (l->has_loss) {
        l->list_at[OP_BACKWARD_WEIGHT] = at;
        at += node_count(l, OP_BACKWARD_WEIGHT);
    }
    l->list_at[OP_BACKWARD_INPUT] = at;
    at += node_count(l, OP_BACKWARD_INPUT);
    l->begin[2] = max_i64(at, l->first_half + 1); // the second gap
    l->begin[3] = l->begin[2] + 1;
    at = l->begin[3];
    if (!l->has_loss) {
        l->list_at[OP_BACKWARD_WEIGHT] = at;
        at += node_count(l, OP_BACKWARD_WEIGHT);
    }
    l->end = max_i64(at, l->begin[3] + 1);
}

static void touch(local *l, tensor_id t, int64_t time)
{
    int64_t *span = time < l->begin[1] ? l->touched[t].forward : l->touched[t].backward;
    if (span[0] < 0 || time < span[0]) span[0] = time;
    span[1] = max_i64(span[1], time);
}

int64_t estimate_head_piece(const estimate *e, const op_program *p)
{
    for (int64_t i = 0; i < p->lists[OP_BACKWARD_WEIGHT].count; i++) {
        const op_node *node = &p->lists[OP_BACKWARD_WEIGHT].nodes[i];
        if (op_kind_of(node->code)->logits != LOGITS_STATS || !node->attrs.kept) continue;
        const int64_t rows = op_head_chunk_rows(p->tensors[node->in[1]].dims[0].scale);
        if (rows >= e->local_seq) return min_i64(rows / e->local_seq, e->r.micro_batch);
    }
    return e->r.micro_batch;
}

static void operands_touch(local *l, const op_node *node, int64_t begin, int64_t end)
{
    for (int o = 0; o < OP_MAX_IN + OP_MAX_OUT; o++) {
        const tensor_id t = op_owner(l->p, op_operand(node, o)).id;
        if (t == TENSOR_NONE) continue;
        touch(l, t, begin);
        touch(l, t, end);
    }
}

// Collectives that overlap with GEMMs, from `at` on: tensors that either reads or writes live while
// either runs.
static void part_note(local *l, op_list list, int64_t first, const overlap_part *part)
{
    const op_node *nodes = &l->p->lists[list].nodes[first];
    const int64_t at = l->list_at[list] + first, last = at + part->nodes - 1;
    const bool sums = part->kind == OVERLAP_SUM;
    if (part->kind == OVERLAP_COMPUTE || part->kind == OVERLAP_COLLECTIVE) return;
    if (sums) touch(l, op_owner(l->p, nodes[part->nodes - 1].out[0]).id, at);
    for (int32_t i = 0; i < part->nodes; i++) {
        const bool is_compute = !op_communicates(nodes[i].code);
        if (part->kind == OVERLAP_RING || part->kind == OVERLAP_ROWS) {
            if (!is_compute) operands_touch(l, &nodes[i], at + i, last);
        } else if (is_compute) { // piece after piece
            operands_touch(l, &nodes[i], sums ? at : at + 1, sums ? last - 1 : last);
        } else if (!sums) {
            touch(l, op_owner(l->p, nodes[i].in[0]).id, last);
        }
    }
}

static void parts_note(local *l, op_list list)
{
    const overlap_rule rule = estimate_overlap_rule(l->e, list);
    const int32_t count = (int32_t)node_count(l, list);
    for (int32_t i = 0; i < count;) {
        const overlap_part part = plan_overlap_next(&rule, l->p, list, i, count - i);
        part_note(l, list, i, &part);
        i += part.nodes;
    }
}

// Node i of a list touches its operands, and the tensors that count the rows of bounded ones. A
// weight list that runs in pieces holds its operands through all of it.
static void node_note(local *l, op_list list, int64_t i)
{
    const op_node *node = &l->p->lists[list].nodes[i];
    const int64_t begin = l->list_at[list], last = begin + node_count(l, list) - 1;
    const bool in_pieces = list == OP_BACKWARD_WEIGHT && l->in_pieces;
    for (int o = 0; o < OP_MAX_IN + OP_MAX_OUT; o++) {
        const tensor_id t = op_owner(l->p, op_operand(node, o)).id;
        if (t == TENSOR_NONE) continue;
        if (list == OP_RECOMPUTE && o >= OP_MAX_IN) l->touched[t].again = true;
        if (in_pieces) touch(l, t, begin);
        touch(l, t, in_pieces ? last : begin + i);
        const tensor_id count = op_count_of(l->p, t);
        if (count != TENSOR_NONE) touch(l, count, begin + i);
    }
}

static status touches_note(local *l)
{
    const int64_t tensors = l->p->tensor_count;
    TRY(arena_new(l->a, tensors + 1, &l->touched));
    for (int64_t t = 0; t < tensors; t++) {
        l->touched[t] = (struct touches){.forward = {-1, -1}, .backward = {-1, -1}};
    }
    l->in_pieces = estimate_head_piece(l->e, l->p) < l->e->r.micro_batch;
    static const op_list in_time[2][OP_LIST_COUNT] = {
        {OP_FORWARD, OP_RECOMPUTE, OP_BACKWARD_INPUT, OP_BACKWARD_WEIGHT},
        {OP_FORWARD, OP_RECOMPUTE, OP_BACKWARD_WEIGHT, OP_BACKWARD_INPUT}};
    for (int k = 0; k < OP_LIST_COUNT; k++) {
        const op_list list = in_time[l->has_loss][k];
        for (int64_t i = 0; i < node_count(l, list); i++) node_note(l, list, i);
        parts_note(l, list);
    }
    return ST_OK;
}

// ---- lifetimes ----------------------------------------------------------------------------------

static void span_add(local_unit *u, int64_t begin, int64_t end)
{
    if (end >= begin) u->spans[u->count++] = (held_span){begin, end};
}

static bool is_among(const local *l, const tensor_id *ids, int count, tensor_id t)
{
    for (int k = 0; k < count; k++) {
        if (op_owner(l->p, ids[k]).id == t) return true;
    }
    return false;
}

static void spans_set(local *l, tensor_id t, local_unit *u)
{
    const op_program *p = l->p;
    const struct touches *x = &l->touched[t];
    const tensor_role role = p->tensors[t].role;
    const bool is_input = role == ROLE_INPUT, is_d_out = role == ROLE_INPUT_GRAD;
    const bool is_output = is_among(l, p->outputs, p->output_count, t);
    const bool is_d_in = is_among(l, p->d_inputs, p->input_count, t);
    const bool in = (l->variant & VARIANT_IN) != 0, out = (l->variant & VARIANT_OUT) != 0;
    if ((in && (is_input || is_d_in)) || (out && (is_output || is_d_out))) return;
    int64_t first = x->forward[0], last = x->forward[1];
    int64_t first_b = x->backward[0], last_b = x->backward[1];
    if (is_input) first = 0;
    if (is_output) last = l->begin[1] - 1;
    if (is_output && first_b >= 0) first_b = l->first_half; // the layer above gives it back
    if (is_d_out) first_b = l->first_half;
    if (is_d_in) last_b = max_i64(last_b, l->begin[2] - 1);
    if (first >= 0 && first_b >= 0 && !x->again && !is_output) {
        span_add(u, first, last_b);
        return;
    }
    if (first >= 0) span_add(u, first, max_i64(last, first));
    if (first_b >= 0) span_add(u, first_b, max_i64(last_b, first_b));
}

static status unit_make(local *l, tensor_id t)
{
    local_unit *u = &l->units[t];
    const op_tensor *tensor = &l->p->tensors[t];
    u->leader = t;
    if (tensor->view_of != TENSOR_NONE) return ST_OK;
    TRY(arena_new(l->a, SPANS, &u->spans));
    u->bytes = tensor_bytes(l, t);
    if (tensor->role == ROLE_ACTIVATION || tensor->role == ROLE_INPUT ||
        tensor->role == ROLE_INPUT_GRAD) {
        u->kind = PLAN_BYTES_ACTIVATIONS;
        spans_set(l, t, u);
    } else if (tensor->role == ROLE_WEIGHT_GRAD && (l->variant & VARIANT_FIRST) != 0) {
        u->kind = PLAN_BYTES_GRADIENTS;
        if (l->touched[t].backward[0] >= 0) span_add(u, l->touched[t].backward[0], l->end - 1);
    }
    return ST_OK;
}

// ---- in place -----------------------------------------------------------------------------------

static bool units_meet(const local_unit *x, const local_unit *y, bool *touches)
{
    int32_t i = 0, j = 0;
    *touches = false;
    while (i < x->count && j < y->count) {
        if (x->spans[i].end < y->spans[j].begin) {
            i++;
        } else if (y->spans[j].end < x->spans[i].begin) {
            j++;
        } else {
            if (x->spans[i].end != y->spans[j].begin) return true;
            *touches = true;
            i++;
        }
    }
    return false;
}

static int32_t leader_of(const local *l, tensor_id t)
{
    while (l->units[t].leader != t) t = l->units[t].leader;
    return t;
}

static status join(local *l, tensor_id from, tensor_id to)
{
    bool touches = false;
    const int32_t a = leader_of(l, from), b = leader_of(l, to);
    local_unit *x = &l->units[a], *y = &l->units[b];
    if (a == b || x->bytes != y->bytes || units_meet(x, y, &touches) || !touches) return ST_OK;
    held_span *all = NULL;
    int32_t i = 0, j = 0, n = 0;
    TRY(arena_new(l->a, x->count + y->count, &all));
    while (i < x->count || j < y->count) {
        const bool mine = j == y->count || (i < x->count && x->spans[i].begin <= y->spans[j].begin);
        const held_span s = mine ? x->spans[i++] : y->spans[j++];
        if (n > 0 && s.begin <= all[n - 1].end) {
            all[n - 1].end = max_i64(all[n - 1].end, s.end);
        } else {
            all[n++] = s;
        }
    }
    x->spans = all;
    x->count = n;
    y->leader = a;
    y->count = 0;
    return ST_OK;
}

static status joins_find(local *l)
{
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        for (int64_t i = 0; i < l->p->lists[list].count; i++) {
            const op_node *node = &l->p->lists[list].nodes[i];
            const op_kind *kind = op_kind_of(node->code);
            for (int o = 0; o < OP_MAX_OUT; o++) {
                if (node->out[o] == TENSOR_NONE || kind->inplace[o] < 0) {
                    continue;
                }
                const tensor_id from = node->in[kind->inplace[o]], to = node->out[o];
                if (from == TENSOR_NONE || from == to) continue;
                if (l->p->tensors[from].view_of != TENSOR_NONE ||
                    l->p->tensors[to].view_of != TENSOR_NONE) {
                    continue;
                }
                TRY(join(l, from, to));
            }
        }
    }
    return ST_OK;
}

// ---- sums ---------------------------------------------------------------------------------------

// Adds the operations' workspaces; a head's kept logits live from their statistics to the losses.
static status workspaces_add(local *l)
{
    const estimate_request *r = &l->e->r;
    if (r->workspace == NULL) return ST_OK;
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        int64_t kept = 0, kept_at = -1;
        for (int64_t i = 0; i < l->p->lists[list].count; i++) {
            const op_node *node = &l->p->lists[list].nodes[i];
            const int64_t time = l->list_at[list] + i;
            const int64_t bytes =
                r->workspace(r->workspace_context, l->p, node, &l->e->bound, l->e->local_seq, 0);
            int64_t from = time;
            if (op_kind_of(node->code)->logits == LOGITS_STATS) {
                kept = bytes;
                kept_at = time;
            }
            const bool is_loss = op_kind_of(node->code)->logits == LOGITS_LOSS;
            if (is_loss && node->attrs.kept && kept_at >= 0) {
                const int64_t more = align_up(max_i64(kept, bytes), ALIGN_TENSOR);
                l->live[kept_at].at[PLAN_BYTES_BUFFERS] += more - align_up(kept, ALIGN_TENSOR);
                for (from = kept_at + 1; from <= time; from++) {
                    l->live[from].at[PLAN_BYTES_BUFFERS] += more;
                }
                continue;
            }
            l->live[time].at[PLAN_BYTES_BUFFERS] += align_up(bytes, ALIGN_TENSOR);
        }
    }
    return ST_OK;
}

static kinds most_of(const local *l, int64_t begin, int64_t end)
{
    kinds best = {{0}};
    for (int64_t t = begin; t < end; t++) {
        if (kinds_sum(&l->live[t]) > kinds_sum(&best)) best = l->live[t];
    }
    return best;
}

// While the second half runs right after the first, the gradient for the layer below waits.
static int64_t handed_down(const local *l)
{
    int64_t bytes = 0;
    for (int k = 0; k < l->p->input_count && (l->variant & VARIANT_IN) == 0; k++) {
        const tensor_id t = op_owner(l->p, l->p->d_inputs[k]).id;
        if (t == TENSOR_NONE) continue;
        const local_unit *u = &l->units[leader_of(l, t)];
        const bool is_there = u->count > 0 && u->spans[u->count - 1].end >= l->begin[3];
        if (!is_there) bytes += l->units[t].bytes;
    }
    return bytes;
}

static status variant_measure(local *l, program_visits *out)
{
    TRY(arena_new(l->a, l->p->tensor_count + 1, &l->units));
    TRY(arena_new(l->a, l->end + 1, &l->live));
    for (tensor_id t = 0; t < l->p->tensor_count; t++) TRY(unit_make(l, t));
    TRY(joins_find(l));
    for (tensor_id t = 0; t < l->p->tensor_count; t++) {
        const local_unit *u = &l->units[t];
        for (int32_t s = 0; s < u->count; s++) {
            for (int64_t at = u->spans[s].begin; at <= u->spans[s].end; at++) {
                l->live[at].at[u->kind] += u->bytes;
            }
        }
    }
    TRY(workspaces_add(l));
    out->most[PHASE_FORWARD] = most_of(l, 0, l->begin[1]);
    out->saved = l->live[l->begin[1]];
    out->most[PHASE_INPUT] = most_of(l, l->first_half, l->begin[2]);
    out->left = l->live[l->begin[2]];
    out->most[PHASE_WEIGHT] = most_of(l, l->begin[3], l->end);
    out->most[PHASE_BACKWARD] = out->most[PHASE_WEIGHT];
    if (!l->has_loss) out->most[PHASE_BACKWARD].at[PLAN_BYTES_ACTIVATIONS] += handed_down(l);
    return ST_OK;
}

static int64_t boundary_bytes(const local *l, const tensor_id *ids, int count)
{
    int64_t bytes = 0;
    for (int k = 0; k < count; k++) {
        const tensor_id t = op_owner(l->p, ids[k]).id;
        if (t != TENSOR_NONE) bytes += tensor_bytes(l, t);
    }
    return bytes;
}

void estimate_boundary_bytes(const estimate *e, program_estimate *p)
{
    const op_program *q = p->program;
    const local l = {.e = e, .p = q};
    p->in_bytes = boundary_bytes(&l, q->inputs, q->input_count);
    p->out_bytes = boundary_bytes(&l, q->outputs, q->output_count);
    p->d_in_bytes = boundary_bytes(&l, q->d_inputs, q->input_count);
    p->d_out_bytes = boundary_bytes(&l, q->d_outputs, q->output_count);
}

status estimate_visits(arena *a, const estimate *e, const program_estimate *p,
                       program_visits visits[VARIANT_COUNT])
{
    local l = {.a = a, .e = e, .p = p->program};
    times_set(&l);
    TRY(touches_note(&l));
    for (uint32_t v = 0; v < VARIANT_COUNT; v++) {
        l.variant = v;
        TRY(variant_measure(&l, &visits[v]));
    }
    return ST_OK;
}

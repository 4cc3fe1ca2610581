// Expert parallelism as a pass over programs (expert_ranks.h).
#include "op/pass/expert_ranks.h"

#include "op/op_internal.h"

#include <stdio.h>
#include <string.h>

typedef struct expert_pass {
    op_expert_cut how;
    const op_program *whole;
    op_program *p; // the rank's; tensors have the same ids in both
    // [tensor of the whole] rows, or their offsets, as the other side has them; TENSOR_NONE: not
    // made yet
    tensor_id *on_the_way;
    tensor_id *counts; // [offsets] rows by sequence and expert; TENSOR_NONE: not made yet
    tensor_id slots;   // the table of slots; TENSOR_NONE: experts stay, or not made yet
    int64_t experts;   // of a rank
    int64_t taken;     // experts of a token
} expert_pass;

// Returns a tensor like t, for the rows before they are sent, or after they came back.
static status sent_copy(expert_pass *c, tensor_id t, tensor_id *out)
{
    if (c->on_the_way[t] == TENSOR_NONE) {
        op_tensor copy = *op_at(c->whole, t);
        char wanted[OP_NAME_BYTES];
        if (c->how.even) copy.dims[0] = extent_exact(copy.dims[0]);
        (void)snprintf(wanted, sizeof(wanted), "%.36s.sent", copy.name);
        op_name_unique(c->p, "", wanted, copy.name);
        copy.role = ROLE_ACTIVATION;
        copy.of = TENSOR_NONE;
        if (copy.dims[0].bounded && c->how.ways > 1)
            TRY(sent_copy(c, copy.dims[0].count, &copy.dims[0].count));
        TRY(op_tensor_add(c->p, &copy, &c->on_the_way[t]));
    }
    *out = c->on_the_way[t];
    return ST_OK;
}

// Returns how many pieces of a sequence are counted apart: those of its shards (op/zigzag.h), of
// which each has its own sum. The rows of one shard are summed together, whatever their pieces.
static int64_t counted_pieces(const expert_pass *c)
{
    return c->how.ordered && c->how.cp_own > 1 ? 2 * (int64_t)c->how.cp_own : 1;
}

static status counts_new(expert_pass *c, const char *name, tensor_id *out)
{
    char unique[OP_NAME_BYTES];
    op_name_unique(c->p, "", name, unique);
    return op_tensor_make(c->p, unique, ROLE_ACTIVATION, DTYPE_I32, 2,
                          extent_make(c->how.ways * counted_pieces(c), EXTENT_SEQS),
                          extent_of(c->experts), out);
}

static op_node node_of(const expert_pass *c, op_code code)
{
    op_node node = op_node_of(code);
    node.attrs.axis = AXIS_EP;
    node.attrs.experts = (int32_t)c->experts;
    node.attrs.ranks = c->how.ways;
    return node;
}

// Appends the exchange of `from`, the rows of tensor `rows` of the whole program, on their way to
// the experts or back.
static status exchange_push(expert_pass *c, op_list list, tensor_id from, tensor_id to,
                            tensor_id rows, bool back)
{
    op_node node = node_of(c, c->how.even ? OP_ALL_TO_ALL : OP_EXCHANGE_ROWS);
    node.in[0] = from;
    node.out[0] = to;
    if (!c->how.even) {
        const tensor_id there = op_at(c->whole, rows)->dims[0].count;
        tensor_id here = TENSOR_NONE;
        TRY(sent_copy(c, there, &here));
        node.in[1] = back ? there : here;
        node.in[2] = back ? here : there;
    }
    return op_append(c->p, list, &node, 0);
}

// Returns whether rows are rounded even if they do not travel.
static bool rounds(const expert_pass *c)
{
    return c->how.dispatch != DISPATCH_WHOLE && (c->how.ways > 1 || c->how.ordered);
}

// Makes a tensor for the rows `like` in the form in which they travel.
static status narrow_make(expert_pass *c, tensor_id like, op_dispatch as, tensor_id *out)
{
    op_tensor narrow = *op_at(c->p, like);
    char wanted[OP_NAME_BYTES];
    (void)snprintf(wanted, sizeof(wanted), "%.36s.narrow", narrow.name);
    op_name_unique(c->p, "", wanted, narrow.name);
    narrow.type = as == DISPATCH_FP8 ? DTYPE_U8 : DTYPE_BF16;
    if (as == DISPATCH_FP8) narrow.dims[1] = extent_of(narrow.dims[1].scale + 1);
    narrow.role = ROLE_ACTIVATION;
    narrow.of = TENSOR_NONE;
    return op_tensor_add(c->p, &narrow, out);
}

// Moves the rows of tensor `rows` to the experts or back, in fewer bits if the pass is to.
static status rows_move(expert_pass *c, op_list list, tensor_id from, tensor_id to, tensor_id rows,
                        bool back)
{
    const bool to_experts = !back && (list == OP_FORWARD || list == OP_RECOMPUTE);
    const op_dispatch as =
        c->how.dispatch == DISPATCH_FP8 && !to_experts ? DISPATCH_BF16 : c->how.dispatch;
    const bool is_same = as == DISPATCH_BF16 && op_at(c->p, from)->type == DTYPE_BF16;
    op_node narrow = op_node_of(as == DISPATCH_FP8 ? OP_NARROW_ROWS : OP_CAST);
    op_node widen = op_node_of(as == DISPATCH_FP8 ? OP_WIDEN_ROWS : OP_CAST);
    if (as == DISPATCH_WHOLE || (is_same && c->how.ways > 1)) {
        return exchange_push(c, list, from, to, rows, back);
    }
    narrow.in[0] = from;
    TRY(narrow_make(c, from, as, &narrow.out[0]));
    TRY(op_append(c->p, list, &narrow, 0));
    widen.in[0] = narrow.out[0];
    if (c->how.ways > 1) {
        TRY(narrow_make(c, to, as, &widen.in[0]));
        TRY(exchange_push(c, list, narrow.out[0], widen.in[0], rows, back));
    }
    widen.out[0] = to;
    return op_append(c->p, list, &widen, 0);
}

// Appends the counts of the rows that a PERMUTE sends; of several ranks, of those that it gets, and
// their offsets.
static status counts_push(expert_pass *c, op_list list, const op_node *permute)
{
    op_node count = node_of(c, OP_COUNT_ROWS), swap = node_of(c, OP_ALL_TO_ALL);
    op_node sum = node_of(c, OP_ROW_OFFSETS);
    tensor_id *counts = &c->counts[permute->out[2]];
    const bool is_new = *counts == TENSOR_NONE;
    if (is_new) TRY(counts_new(c, "permute.counts", counts));
    count.in[0] = permute->in[1];
    count.out[0] = *counts;
    if (c->how.ways == 1) return op_append(c->p, list, &count, 0);
    if (is_new) TRY(counts_new(c, "permute.counts.sent", &c->on_the_way[*counts]));
    count.out[0] = swap.in[0] = c->on_the_way[*counts];
    swap.out[0] = sum.in[0] = *counts;
    sum.out[0] = permute->out[2];
    TRY(op_append(c->p, list, &count, 0));
    TRY(op_append(c->p, list, &swap, 0));
    return op_append(c->p, list, &sum, 0);
}

// Appends the operation that finds the slots of the experts of a PERMUTE, which then orders rows by
// slot.
static status slots_push(expert_pass *c, op_list list, op_node *permute)
{
    op_node place = op_node_of(OP_PLACE_EXPERTS);
    const int64_t experts = c->experts * c->how.ways;
    if (c->how.moves_layers == 0 || c->how.ways == 1 || c->how.even) return ST_OK;
    if (c->slots == TENSOR_NONE) {
        TRY(op_tensor_make(c->p, OP_SLOTS, ROLE_CONSTANT, DTYPE_F32, 2,
                           extent_of(c->how.moves_layers), extent_of(experts), &c->slots));
    }
    place.attrs.experts = (int32_t)experts;
    place.in[0] = permute->in[1];
    place.in[1] = c->slots;
    TRY(sent_copy(c, permute->in[1], &place.out[0]));
    permute->in[1] = place.out[0];
    return op_append(c->p, list, &place, 0);
}

static status permute_push(expert_pass *c, op_list list, const op_node *given)
{
    op_node local = *given;
    TRY(slots_push(c, list, &local));
    const op_node placed = local, *node = &placed;
    if (c->how.ways == 1) {
        if (rounds(c)) TRY(sent_copy(c, node->out[0], &local.out[0]));
        TRY(op_append(c->p, list, &local, 0));
        if (c->how.ordered) TRY(counts_push(c, list, node));
        if (!rounds(c)) return ST_OK;
        return rows_move(c, list, local.out[0], node->out[0], node->out[0], false);
    }
    TRY(sent_copy(c, node->out[0], &local.out[0]));
    if (!c->how.even) {
        TRY(sent_copy(c, node->out[2], &local.out[2]));
        if (node->out[3] != TENSOR_NONE) TRY(sent_copy(c, node->out[3], &local.out[3]));
    }
    TRY(op_append(c->p, list, &local, 0));
    if (!c->how.even) TRY(counts_push(c, list, node));
    TRY(rows_move(c, list, local.out[0], node->out[0], node->out[0], false));
    if (c->how.even || node->out[3] == TENSOR_NONE) return ST_OK;
    return exchange_push(c, list, local.out[3], node->out[3], node->out[3], false);
}

// Appends a node that reads rows, and their scales, that come back from the experts.
static status back_push(expert_pass *c, op_list list, const op_node *node)
{
    op_node local = *node;
    for (int k = 0; k <= (c->how.even ? 0 : 2); k += 2) { // PERMUTE_BWD: input 2 has the scales
        if (node->in[k] == TENSOR_NONE) continue;
        if (k > 0 && node->code != OP_PERMUTE_BWD) continue;
        if (k > 0 && c->how.ways == 1) continue;
        TRY(sent_copy(c, node->in[k], &local.in[k]));
        TRY(k == 0 ? rows_move(c, list, node->in[k], local.in[k], node->in[k], true)
                   : exchange_push(c, list, node->in[k], local.in[k], node->in[k], true));
    }
    return op_append(c->p, list, &local, 0);
}

static status gemm_push(expert_pass *c, op_list list, const op_node *node)
{
    op_node local = *node;
    local.attrs.experts = (int32_t)c->experts;
    local.attrs.ranks = c->how.ways;
    local.attrs.pieces = c->how.pieces;
    if (c->how.even) local.in[2] = TENSOR_NONE;
    if (c->how.ordered && !c->how.even && op_kind_of(node->code)->finds_rows) {
        local.in[3] = c->counts[node->in[2]];
        if (local.in[3] == TENSOR_NONE) {
            return fail(ST_MODEL, "%s: no permute has made its rows", op_kind_of(node->code)->name);
        }
    }
    return op_append(c->p, list, &local, 0);
}

static status node_push(expert_pass *c, op_list list, const op_node *node)
{
    op_node local = *node;
    const bool one = c->how.ways == 1 && !rounds(c);
    switch ((int)node->code) {
    case OP_PERMUTE: // made here, read where the expert is
        return permute_push(c, list, node);
    case OP_UNPERMUTE_BWD:
        if (one) break;
        TRY(sent_copy(c, node->out[0], &local.out[0]));
        TRY(op_append(c->p, list, &local, 0));
        return rows_move(c, list, local.out[0], node->out[0], node->out[0], false);
    case OP_UNPERMUTE:
    case OP_PERMUTE_BWD: // made where the expert is, read here
        if (one) break;
        return back_push(c, list, node);
    case OP_GROUPED_MATMUL:
    case OP_GROUPED_MATMUL_DX:
    case OP_GROUPED_MATMUL_DW:
    case OP_FP8_COUNTS_ROWS:
    case OP_BIAS_ROWS:
    case OP_BIAS_ROWS_DW:
        return gemm_push(c, list, node);
    default:
        break;
    }
    return op_append(c->p, list, &local, 0);
}

// Cuts the weights of experts and their gradients: each part keeps the rows of the rank's experts.
static status weights_cut(expert_pass *c)
{
    const int32_t ways = c->how.ways;
    for (tensor_id t = 0; t < c->p->tensor_count; t++) {
        op_tensor *x = &c->p->tensors[t];
        const bool is_weight = x->role == ROLE_WEIGHT || x->role == ROLE_WEIGHT_GRAD;
        const op_tensor *owner = op_at(c->whole, op_owner(c->whole, t).id); // of a view of columns
        if (!is_weight || owner->cut_dim[AXIS_EP] < 0) continue;
        ASSERT(x->view_row == 0 && x->dims[0].symbol == EXTENT_ONE);
        if (x->dims[0].scale % ways != 0) {
            return fail(ST_CONFIG_CONFLICT, "layout.ep = %d does not divide the %lld rows of %s",
                        (int)ways, (long long)x->dims[0].scale, x->name);
        }
        x->dims[0].scale /= ways;
        for (int i = 0; i < x->part_count; i++) x->parts[i].rows /= ways;
    }
    return ST_OK;
}

// Returns the limit of rows of an expert in a sequence; NULL: there is none.
static const op_attrs *limit_of(const op_program *p)
{
    for (int64_t i = 0; i < p->lists[OP_FORWARD].count; i++) {
        const op_node *node = &p->lists[OP_FORWARD].nodes[i];
        if (node->code == OP_LIMIT_ROWS) return &node->attrs;
    }
    return NULL;
}

// Makes the rows of experts those of all ranks: with `even` as many as a rank sends, exactly; else
// as many as may come.
static void rows_bound(expert_pass *c)
{
    const int64_t most = c->how.ways * min_i64(c->taken, c->experts);
    const op_attrs *limit = limit_of(c->whole);
    for (tensor_id t = 0; t < c->p->tensor_count; t++) {
        op_tensor *x = &c->p->tensors[t];
        if (!x->dims[0].bounded || x->role != ROLE_ACTIVATION) continue;
        if (c->how.even) {
            x->dims[0] = extent_exact(x->dims[0]);
        } else if (c->how.ways > 1) {
            x->dims[0].likely = x->dims[0].scale;
            x->dims[0].scale = x->dims[0].scale / c->taken * most;
            if (limit == NULL || x->dims[0].symbol != EXTENT_TOKENS) continue;
            const int64_t all = c->how.ways * c->experts * limit->limit;
            if (all >= most * limit->limit_seq) continue;
            x->dims[0].symbol = EXTENT_SEQS;
            x->dims[0].likely = min_i64(all, x->dims[0].likely * limit->limit_seq);
            x->dims[0].scale = all;
        }
    }
}

static const op_node *permute_of(const op_program *p)
{
    for (int64_t i = 0; i < p->lists[OP_FORWARD].count; i++) {
        const op_node *node = &p->lists[OP_FORWARD].nodes[i];
        if (node->code == OP_PERMUTE) return node;
    }
    return NULL;
}

// Whether each rank has the offsets of its rows. Rows that are gathered over tp have none.
static bool has_offsets(const op_program *p)
{
    for (int64_t i = 0; i < p->lists[OP_FORWARD].count; i++) {
        const op_node *node = &p->lists[OP_FORWARD].nodes[i];
        if (node->code == OP_GROUPED_MATMUL && node->in[2] == TENSOR_NONE) return false;
    }
    return true;
}

// ---- overlap ------------------------------------------------------------------------------------

// Tensors that some nodes write, and those that they use.
typedef struct node_uses {
    const op_program *p;
    bool *wrote, *used; // [tensor]
} node_uses;

static tensor_id operand_of(const node_uses *u, const op_node *node, int i)
{
    return op_owner(u->p, op_operand(node, i)).id;
}

// Whether a node may change places with all of these nodes: it makes no use of what they write and
// writes nothing that they use.
static bool is_apart(const node_uses *u, const op_node *node)
{
    const op_kind *kind = op_kind_of(node->code);
    if (kind->communicates || kind->step_reads != 0 || kind->step_writes != 0) return false;
    for (int i = 0; i < OP_MAX_IN + OP_MAX_OUT; i++) {
        const tensor_id t = operand_of(u, node, i);
        if (t == TENSOR_NONE) continue;
        if (u->wrote[t] || (i >= OP_MAX_IN && u->used[t])) return false;
    }
    return true;
}

static void uses_add(node_uses *u, const op_node *node)
{
    for (int i = 0; i < OP_MAX_IN + OP_MAX_OUT; i++) {
        const tensor_id t = operand_of(u, node, i);
        if (t == TENSOR_NONE) continue;
        u->used[t] = true;
        if (i >= OP_MAX_IN) u->wrote[t] = true;
    }
}

static void uses_clear(node_uses *u)
{
    memset(u->wrote, 0, (size_t)u->p->tensor_count * sizeof(bool));
    memset(u->used, 0, (size_t)u->p->tensor_count * sizeof(bool));
}

// Puts the nodes before the exchanges [at, end) that these do not need behind them. Returns where
// the exchanges begin then.
static int64_t nodes_sink(node_uses *u, op_node *nodes, int64_t at, int64_t end)
{
    uses_clear(u);
    for (int64_t k = at; k < end; k++) uses_add(u, &nodes[k]);
    for (int64_t k = at - 1; k >= 0; k--) {
        const op_node node = nodes[k];
        if (!is_apart(u, &node)) {
            uses_add(u, &node);
            continue;
        }
        memmove(&nodes[k], &nodes[k + 1], (size_t)(end - 1 - k) * sizeof(node));
        nodes[--end] = node;
        at--;
    }
    return at;
}

// Puts the nodes behind the exchanges [at, end) that neither need them, nor later nodes that do,
// right behind them.
static void nodes_hoist(node_uses *u, op_node *nodes, int64_t at, int64_t end, int64_t count)
{
    int64_t to = end;
    uses_clear(u);
    for (int64_t k = at; k < count; k++) {
        const op_node node = nodes[k];
        if (k < end || !is_apart(u, &node)) {
            uses_add(u, &node);
            continue;
        }
        memmove(&nodes[to + 1], &nodes[to], (size_t)(k - to) * sizeof(node));
        nodes[to++] = node;
    }
}

// While rows travel to experts, the shared experts and their gradients run: in the lists they are
// behind the first exchange.
static status rows_overlap(arena *a, op_program *p)
{
    static const op_list lists[] = {OP_FORWARD, OP_RECOMPUTE, OP_BACKWARD_INPUT};
    node_uses u = {.p = p};
    TRY(arena_new(a, p->tensor_count + 1, &u.wrote));
    TRY(arena_new(a, p->tensor_count + 1, &u.used));
    for (int l = 0; l < COUNT_OF(lists); l++) {
        op_node *nodes = p->lists[lists[l]].nodes;
        const int64_t count = p->lists[lists[l]].count;
        int64_t at = 0;
        while (at < count && nodes[at].code != OP_EXCHANGE_ROWS) at++;
        int64_t end = at;
        while (end < count && nodes[end].code == OP_EXCHANGE_ROWS) end++;
        if (at == count) continue;
        const int64_t sends = end - at;
        if (lists[l] == OP_BACKWARD_INPUT) at = nodes_sink(&u, nodes, at, end);
        nodes_hoist(&u, nodes, at, at + sends, count);
    }
    return ST_OK;
}

static status program_cut(arena *a, const op_program *whole, const op_node *permute,
                          const op_expert_cut *how, op_program **out)
{
    expert_pass c = {.how = *how, .whole = whole, .slots = TENSOR_NONE};
    c.how.even = how->even || (how->ways > 1 && !has_offsets(whole));
    c.taken = op_at(whole, permute->in[1])->dims[1].scale;
    c.experts = permute->attrs.experts / how->ways;
    if (permute->attrs.experts % how->ways != 0) {
        return fail(ST_CONFIG_CONFLICT, "layout.ep = %d does not divide the %d experts",
                    (int)how->ways, (int)permute->attrs.experts);
    }
    TRY(op_program_copy(a, whole, &c.p));
    TRY(arena_new(a, whole->tensor_count + 1, &c.counts));
    TRY(arena_new(a, 8 * whole->tensor_count + 1, &c.on_the_way)); // new tensors have ids too
    memset(c.counts, -1, (size_t)whole->tensor_count * sizeof(tensor_id));
    memset(c.on_the_way, -1, (size_t)(8 * whole->tensor_count) * sizeof(tensor_id));
    TRY(weights_cut(&c));
    rows_bound(&c);
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        for (int64_t i = 0; i < whole->lists[list].count; i++) {
            TRY(node_push(&c, (op_list)list, &whole->lists[list].nodes[i]));
        }
    }
    if (how->ways > 1 && !c.how.even) TRY(rows_overlap(a, c.p));
    *out = c.p;
    return ST_OK;
}

static void weight_cut(const op_expert_cut *how, op_weight *w)
{
    int64_t begin = 0;
    if (!w->is_expert || how->ways == 1) return;
    w->expert_ways = how->ways;
    for (int i = 0; i < w->part_count; i++) {
        weight_part *part = &w->parts[i];
        if (w->ways <= 1) { // a part that tp cuts has pieces that no logical tensor has
            part->whole_rows = part->rows;
            part->first = part->rows / how->ways * how->at;
            w->whole_columns = w->columns;
            w->first_column = 0;
        } else { // stripes, or columns, of the rank's experts
            part->first = part->whole_rows / how->ways * how->at;
        }
        part->rows /= how->ways;
        part->row_begin = begin;
        begin += part->rows;
    }
    w->rows = begin;
}

// Adds the table of slots, in which each expert has the slot of its number.
static status constant_add(arena *a, const op_expert_cut *how, int32_t experts, op_model *m)
{
    op_constant *all = NULL;
    float *slots = NULL;
    TRY(arena_new(a, m->constant_count + 1, &all));
    TRY(arena_new(a, (int64_t)how->moves_layers * experts, &slots));
    for (int64_t i = 0; i < (int64_t)how->moves_layers * experts; i++) {
        slots[i] = (float)(i % experts);
    }
    for (int32_t i = 0; i < m->constant_count; i++) all[i] = m->constants[i];
    all[m->constant_count++] = (op_constant){
        .name = OP_SLOTS, .rows = how->moves_layers, .columns = experts, .data = slots};
    m->constants = all;
    return ST_OK;
}

status op_model_experts(arena *a, op_model *whole, const op_expert_cut *cut, op_model **local)
{
    op_model *m = NULL;
    op_program **programs = NULL;
    op_weight *weights = NULL;
    op_layer *layers = NULL;
    op_expert_cut how = *cut;
    int32_t experts = 0;
    how.ways = how.ways > 0 ? how.ways : 1;
    how.even = how.even && how.ways > 1;
    *local = whole;
    if (how.ways == 1 && !how.ordered) return ST_OK;
    TRY(arena_new(a, 1, &m));
    TRY(arena_new(a, whole->program_count, &programs));
    TRY(arena_new(a, whole->weight_count + 1, &weights));
    *m = *whole;
    for (int32_t i = 0; i < whole->program_count; i++) {
        programs[i] = whole->programs[i];
        const op_node *permute = permute_of(programs[i]);
        if (permute == NULL) continue;
        experts = permute->attrs.experts;
        TRY(program_cut(a, whole->programs[i], permute, &how, &programs[i]));
    }
    for (int64_t w = 0; w < whole->weight_count; w++) {
        weights[w] = whole->weights[w];
        weight_cut(&how, &weights[w]);
    }
    m->programs = programs;
    m->weights = weights;
    if (how.moves_layers > 0 && how.ways > 1 && experts > 0) {
        TRY(constant_add(a, &how, experts, m));
    }
    TRY(op_layers_widen(a, whole, programs, &layers));
    m->layers = layers;
    *local = m;
    return ST_OK;
}

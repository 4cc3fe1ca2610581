// Tensor parallelism as a pass over programs (partition.h): it decides the placement of each tensor
// and the rule of its operation row that each node follows.
//
// A tensor of the rank's program has the id that it has in the whole program, and the shape of the
// rank's piece; additional tensors (terms of sums, gathered rows) follow. Lists are
// walked in the order in which they run, so a tensor's placement is known when a node reads it.
#include "op/pass/partition_internal.h"

#include <stdio.h>
#include <string.h>

static const placement replicate = {.kind = PLACE_REPLICATE};
static const placement rows_cut = {.kind = PLACE_SHARD, .dim = 0};

// The placement of tensors that all ranks share: residual stream, norms.
static placement shared_place(const partition *c)
{
    return c->how->rows ? rows_cut : replicate;
}

static int64_t parts_size(const op_cut *how, const cut_parts *parts)
{
    int64_t sum = 0;
    for (int i = 0; i < parts->count; i++) sum += part_size(how, parts, i);
    return sum;
}

static cut_parts one_part(int64_t size)
{
    return (cut_parts){.count = 1, .size = {size}, .copies = {1}};
}

// ---- tensors ------------------------------------------------------------------------------------

// Maps the rows (dim 0) or columns of a view to those of the rank's piece. Views cover whole parts.
static status view_parts(partition *c, tensor_id v, int dim, int64_t begin, int64_t *here_begin)
{
    const op_tensor *view = op_at(c->whole, v);
    const tensor_state *of = &c->state[view->view_of];
    tensor_state *s = &c->state[v];
    int64_t at = 0, here = 0, count = 0;
    for (int i = 0; i < of->parts.count; i++) {
        const int64_t size = of->parts.size[i];
        const bool inside = at >= begin && at + size <= begin + view->dims[dim].scale;
        if (at == begin) *here_begin = here;
        if (inside) {
            s->parts.copies[s->parts.count] = of->parts.copies[i];
            s->parts.size[s->parts.count++] = size;
            count += size;
        }
        at += size;
        here += part_size(c->how, &of->parts, i);
    }
    if (count != view->dims[dim].scale) {
        return fail(ST_INTERNAL, "%s does not cover whole parts of %s", view->name,
                    op_at(c->whole, view->view_of)->name);
    }
    c->p->tensors[v].dims[dim] = extent_of(parts_size(c->how, &s->parts));
    return ST_OK;
}

// Weights have views of rows, activations of columns.
static status view_set(partition *c, tensor_id v)
{
    const op_tensor *view = op_at(c->whole, v);
    const tensor_state *of = &c->state[view->view_of];
    op_tensor *local = &c->p->tensors[v];
    const bool of_rows = view->role == ROLE_WEIGHT;
    c->state[v] = (tensor_state){.known = true, .at = of->at, .all = TENSOR_NONE};
    if (!of_rows) local->dims[0] = c->p->tensors[view->view_of].dims[0];
    if (of->at.kind != PLACE_SHARD) return ST_OK;
    if (of_rows && of->at.dim == 1) {
        c->state[v].parts = of->parts;
        local->dims[1] = c->p->tensors[view->view_of].dims[1];
        return ST_OK;
    }
    if (of_rows) return view_parts(c, v, 0, view->view_row, &local->view_row);
    if (of->at.dim != 1) return ST_OK;
    return view_parts(c, v, 1, view->view_begin, &local->view_begin);
}

status partition_set(partition *c, tensor_id t, placement at, const cut_parts *parts)
{
    const tensor_id owner = op_owner(c->whole, t).id;
    tensor_state *s = &c->state[owner];
    if (s->known) {
        if (placement_equal(s->at, at)) return ST_OK;
        return fail(ST_INTERNAL, "%s lies in two ways", op_at(c->whole, owner)->name);
    }
    op_tensor *local = &c->p->tensors[owner];
    *s = (tensor_state){.known = true, .at = at, .all = TENSOR_NONE};
    if (at.kind == PLACE_SHARD && at.dim == 0 && local->dims[0].symbol == EXTENT_TOKENS) {
        local->dims[0].symbol = EXTENT_TOKENS_CUT;
    } else if (at.kind == PLACE_SHARD) {
        s->parts = *parts;
        local->dims[at.dim] = extent_of(parts_size(c->how, parts));
    }
    // No rank has the count of the gathered rows of several ranks.
    const bool has_own_rows =
        !c->how->rows || placement_equal(at, rows_cut) || cut_in_terms(c->how);
    if (!has_own_rows) local->dims[0] = extent_exact(local->dims[0]);
    for (tensor_id v = 0; v < c->whole->tensor_count; v++) {
        if (op_at(c->whole, v)->view_of == owner) TRY(view_set(c, v));
    }
    return ST_OK;
}

// Returns whether it is a weight of experts that tp does not cut.
static bool is_whole_expert(const op_cut *how, const int8_t cut_dim[AXIS_COUNT])
{
    return how->whole_experts && cut_dim[AXIS_EP] >= 0;
}

// Returns the dim along which a weight is cut, as the block allows; -1: every rank has the whole
// weight.
static int8_t dim_of_cut(const op_cut *how, const int8_t cut_dim[AXIS_COUNT])
{
    return is_whole_expert(how, cut_dim) ? -1 : cut_dim[AXIS_TP];
}

// Sets the placement of a weight, or of the accumulator of its gradient.
static status weight_set(partition *c, tensor_id t, const op_tensor *weight)
{
    const int8_t dim = dim_of_cut(c->how, weight->cut_dim);
    if (dim < 0) return partition_set(c, t, replicate, NULL);
    cut_parts parts = one_part(weight->dims[dim].scale);
    if (dim == 0 && weight->part_count > 0) {
        parts.count = weight->part_count;
        for (int i = 0; i < parts.count; i++) {
            parts.size[i] = weight->parts[i].rows;
            parts.copies[i] = op_part_copies(weight->parts[i].heads, c->how->ways);
        }
        op_tensor *local = &c->p->tensors[t];
        for (int i = 0; i < local->part_count; i++) {
            local->parts[i].rows = part_size(c->how, &parts, i);
        }
    }
    return partition_set(c, t, (placement){.kind = PLACE_SHARD, .dim = dim}, &parts);
}

static status tensors_start(partition *c)
{
    for (tensor_id t = 0; t < c->whole->tensor_count; t++) {
        const op_tensor *tensor = op_at(c->whole, t);
        if (tensor->view_of != TENSOR_NONE) continue;
        switch (tensor->role) {
        case ROLE_WEIGHT:
            TRY(weight_set(c, t, tensor));
            break;
        case ROLE_WEIGHT_GRAD:
            TRY(weight_set(c, t, op_at(c->whole, tensor->of)));
            break;
        case ROLE_INPUT:
        case ROLE_INPUT_GRAD:
            TRY(partition_set(c, t, shared_place(c), NULL));
            break;
        case ROLE_BATCH:
        case ROLE_CONSTANT:
        case ROLE_STEP:
            TRY(partition_set(c, t, replicate, NULL));
            break;
        case ROLE_ACTIVATION:
        case ROLE_CACHE: // as what is appended to it
            break;
        case ROLE_STATE:
        default:
            return fail(ST_INTERNAL, "a program with %s cannot be cut", tensor->name);
        }
    }
    return ST_OK;
}

status partition_make(partition *c, tensor_id t, const char *suffix, dtype type, extent rows,
                      extent columns, tensor_id *out)
{
    char wanted[OP_NAME_BYTES], name[OP_NAME_BYTES];
    (void)snprintf(wanted, sizeof(wanted), "%.36s.%s", op_at(c->whole, t)->name, suffix);
    op_name_unique(c->p, "", wanted, name);
    if (c->how->rows) rows = extent_exact(rows); // gathered, or a term of them
    return op_tensor_make(c->p, name, ROLE_ACTIVATION, type, 2, rows, columns, out);
}

// Columns of a tensor whose rows are cut: all rows of the whole are gathered, once for all views.
static status view_rows(partition *c, op_list list, tensor_id t, tensor_id *out)
{
    const op_tensor view = *op_at(c->whole, t);
    tensor_id all = TENSOR_NONE;
    TRY(partition_all_rows(c, list, view.view_of, &all));
    char name[OP_NAME_BYTES];
    op_name_unique(c->p, "all_", view.name, name);
    TRY(op_view(c->p, all, name, view.view_begin, view.dims[1].scale, out));
    c->state[t].all = *out;
    return ST_OK;
}

status partition_all_rows(partition *c, op_list list, tensor_id t, tensor_id *out)
{
    tensor_state *s = &c->state[t];
    *out = t;
    if (!placement_equal(s->at, rows_cut) || op_at(c->whole, t)->role == ROLE_WEIGHT) return ST_OK;
    if (s->all == TENSOR_NONE && op_at(c->whole, t)->view_of != TENSOR_NONE) {
        return view_rows(c, list, t, out);
    }
    if (s->all == TENSOR_NONE) {
        const op_tensor like = *op_at(c->whole, t);
        op_node gather = op_node_of(OP_ALL_GATHER);
        gather.attrs.axis = AXIS_TP;
        gather.in[0] = t;
        TRY(partition_make(c, t, "all", like.type, like.dims[0], like.dims[1], &gather.out[0]));
        if (like.ndim == 1) c->p->tensors[gather.out[0]].ndim = 1;
        TRY(op_append(c->p, list, &gather, 0));
        s->all = gather.out[0];
    }
    *out = s->all;
    return ST_OK;
}

static status step_append(partition *c, op_list list, op_code code, tensor_id in, tensor_id out,
                          int32_t copies)
{
    op_node node = op_node_of(code);
    node.in[0] = in;
    node.out[0] = out;
    if (code == OP_ALL_GATHER) {
        node.attrs.axis = AXIS_TP;
        node.attrs.stacked = true;
        if (copies > 1) node.piece.across = copies;
    }
    if (code == OP_UNPACK) node.piece.shard_count = c->how->ways / copies;
    return op_append(c->p, list, &node, 0);
}

// Gathers all columns of a tensor that is cut by heads: it copies views, gathers, and joins the
// columns. If heads have copies, the rank has all of them, or gathers one copy of each.
static status all_columns(partition *c, op_list list, tensor_id t, tensor_id *out)
{
    tensor_state *s = &c->state[t];
    const int32_t copies = s->parts.copies[0], tile_count = c->how->ways / copies;
    *out = t;
    if (tile_count == 1) return ST_OK;
    if (s->all == TENSOR_NONE) {
        const op_tensor whole = *op_at(c->whole, t), local = *op_at(c->p, t);
        extent stacked = whole.dims[0];
        tensor_id from = t, tiles = TENSOR_NONE;
        stacked.scale *= tile_count;
        if (local.view_of != TENSOR_NONE) {
            TRY(partition_make(c, t, "copy", local.type, local.dims[0], local.dims[1], &from));
            TRY(step_append(c, list, OP_CAST, t, from, 1));
        }
        TRY(partition_make(c, t, "tiles", local.type, stacked, local.dims[1], &tiles));
        TRY(step_append(c, list, OP_ALL_GATHER, from, tiles, copies));
        TRY(partition_make(c, t, "all", local.type, whole.dims[0], whole.dims[1], &s->all));
        TRY(step_append(c, list, OP_UNPACK, tiles, s->all, copies));
    }
    *out = c->state[t].all;
    return ST_OK;
}

// Returns t as all ranks need it if a rule reads the whole tensor.
static status all_of(partition *c, op_list list, tensor_id t, tensor_id *out)
{
    const placement at = c->state[t].at;
    const bool columns = at.kind == PLACE_SHARD && at.dim == 1;
    return columns ? all_columns(c, list, t, out) : partition_all_rows(c, list, t, out);
}

// ---- rules --------------------------------------------------------------------------------------

enum { COLUMNS_PRICE = 100, TERMS_PRICE = 1000 };

// Returns whether columns can be gathered: cut by heads, evenly and in one part. Only for sums that
// have no order otherwise, and for logits of which a token is drawn.
static bool columns_gather(const partition *c, tensor_id t)
{
    const tensor_state *s = &c->state[t];
    const tensor_role role = op_at(c->whole, t)->role;
    const bool draws = c->whole->purpose == PURPOSE_PREFILL || c->whole->purpose == PURPOSE_DECODE;
    return (c->how->ordered || draws) && s->at.kind == PLACE_SHARD && s->at.dim == 1 &&
           role == ROLE_ACTIVATION && s->parts.count == 1 &&
           s->parts.size[0] % (c->how->ways / s->parts.copies[0]) == 0;
}

// Returns the cost of bringing an input to the placement that a rule wants; -1: impossible.
static int input_price(const partition *c, const op_node *node, int i, placement want)
{
    const tensor_state *s = &c->state[node->in[i]];
    if (placement_equal(s->at, want)) return 0;
    // A bias is added after the sum.
    if (node->code == OP_MATMUL && i == 2 && want.kind == PLACE_PARTIAL) {
        return s->at.kind == PLACE_REPLICATE ? 0 : -1;
    }
    const bool is_weight = op_at(c->whole, node->in[i])->role == ROLE_WEIGHT;
    if (want.kind == PLACE_REPLICATE && placement_equal(s->at, rows_cut) && !is_weight) {
        return s->all == TENSOR_NONE ? 2 : 0;
    }
    if (want.kind == PLACE_REPLICATE && columns_gather(c, node->in[i])) return COLUMNS_PRICE;
    return -1;
}

// Returns the cost of an output. Accumulators have the placement of their weights, or are a term on
// each rank.
static int output_price(const partition *c, const op_node *node, int o, placement get)
{
    const op_tensor *t = op_at(c->whole, node->out[o]);
    if (t->role == ROLE_STEP) return get.kind == PLACE_REPLICATE ? 0 : -1;
    if (t->role == ROLE_WEIGHT_GRAD) {
        const placement at = c->state[node->out[o]].at;
        if (placement_equal(at, get)) return 0;
        if (get.kind != PLACE_PARTIAL || at.kind != PLACE_REPLICATE) return -1;
        // Terms of rows or heads have no order: gather rather. Those of whole experts are not added
        // up here.
        const bool is_whole = is_whole_expert(c->how, op_at(c->whole, t->of)->cut_dim);
        return c->how->ordered && !is_whole ? TERMS_PRICE : 0;
    }
    return get.kind == PLACE_PARTIAL ? 2 : 0;
}

static int rule_price(const partition *c, const op_node *node, const op_rule *rule)
{
    int price = 0;
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (node->in[i] == TENSOR_NONE) continue;
        const int one = input_price(c, node, i, rule->in[i]);
        if (one < 0) return -1;
        price += one;
    }
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (node->out[o] == TENSOR_NONE) continue;
        const int one = output_price(c, node, o, rule->out[o]);
        if (one < 0) return -1;
        price += one;
    }
    return price;
}

static bool rule_cuts(const op_node *node, const op_rule *rule)
{
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (node->out[o] != TENSOR_NONE && rule->out[o].kind == PLACE_SHARD) return true;
    }
    return false;
}

// Chooses the rule with the least communication, and among those one that leaves the result cut.
static status rule_choose(const partition *c, const op_node *node, op_rule *out, int *index)
{
    op_rule rules[OP_MAX_RULES];
    int count = 0, best = -1, best_price = 0;
    const op_kind *kind = op_kind_of(node->code);
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (node->in[i] == TENSOR_NONE || c->state[node->in[i]].known) continue;
        return fail(ST_INTERNAL, "%s reads %s before it is made", kind->name,
                    op_at(c->whole, node->in[i])->name);
    }
    *index = 0;
    if (partition_norm_rule(c, node, out)) return ST_OK;
    kind->place(c->whole, node, rules, &count);
    // All ranks have the rows of experts that are cut.
    if (node->code == OP_PERMUTE && cut_in_terms(c->how)) count = 1;
    for (int r = 0; r < count; r++) {
        const int price = rule_price(c, node, &rules[r]);
        if (price < 0) continue;
        const bool better =
            best < 0 || price < best_price ||
            (price == best_price && !rule_cuts(node, &rules[best]) && rule_cuts(node, &rules[r]));
        if (!better) continue;
        best = r;
        best_price = price;
    }
    if (best < 0) {
        return fail(ST_UNSUPPORTED, "layout.tp: %s of %s cannot be cut as its operands are",
                    kind->name, op_at(c->whole, node->in[0])->name);
    }
    *out = rules[best];
    *index = best;
    return ST_OK;
}

// ---- outputs ------------------------------------------------------------------------------------

static bool parts_fit(const tensor_state *s, const op_tensor *t, int64_t columns)
{
    return s->known && s->at.kind == PLACE_SHARD && s->at.dim == 1 && t->ndim == 2 &&
           t->dims[1].scale == columns;
}

// Returns how the columns of output o divide into parts: like those of the tensor that it is the
// gradient of, of the weight that made it, or of an input of the same width.
static cut_parts output_parts(const partition *c, const op_node *node, int o)
{
    const op_tensor *t = op_at(c->whole, op_owner(c->whole, node->out[o]).id);
    if (t->ndim < 2) return one_part(t->dims[0].scale);
    const int64_t columns = t->dims[1].scale;
    if (t->of != TENSOR_NONE && parts_fit(&c->state[t->of], op_at(c->whole, t->of), columns)) {
        return c->state[t->of].parts;
    }
    const bool by_rows = node->code == OP_DEQUANTIZE && c->state[node->in[0]].at.dim == 0;
    if (node->code == OP_MATMUL) return c->state[node->in[1]].parts;
    if (node->code == OP_ROW_SQUARES || by_rows) return c->state[node->in[0]].parts;
    if (node->code == OP_GROUPED_MATMUL) { // the weight has the rows of all experts
        cut_parts parts = c->state[node->in[1]].parts;
        for (int i = 0; i < parts.count; i++) parts.size[i] /= node->attrs.experts;
        return parts;
    }
    const bool of_heads = node->code == OP_ATTENTION && o == 1; // keys may be as wide by chance
    for (int i = 0; i < OP_MAX_IN && !of_heads; i++) {
        const tensor_id in = node->in[i];
        if (in == TENSOR_NONE || !parts_fit(&c->state[in], op_at(c->whole, in), columns)) continue;
        return c->state[in].parts;
    }
    cut_parts parts = one_part(columns); // a number for each head, say
    const tensor_state *first = node->in[0] != TENSOR_NONE ? &c->state[node->in[0]] : NULL;
    if (first != NULL && first->parts.count == 1) parts.copies[0] = first->parts.copies[0];
    return parts;
}

// Returns on how many neighbouring ranks a term that a node makes is the same, because they share
// its heads.
static int32_t copies_of_term(const partition *c, const op_node *node)
{
    const tensor_state *of = &c->state[node->in[0]];
    const bool columns = of->at.kind == PLACE_SHARD && of->at.dim == 1;
    ASSERT(!columns || of->parts.count == 1 || !parts_have_copies(&of->parts));
    return columns ? of->parts.copies[0] : 1;
}

// Returns whether results of the node that are terms stay terms.
static bool makes_expert_terms(const partition *c, const op_node *node)
{
    return cut_in_terms(c->how) &&
           (node->code == OP_GROUPED_MATMUL || node->code == OP_GROUPED_MATMUL_DX ||
            node->code == OP_SCALE_ROWS_DS);
}

static status outputs_set(partition *c, const op_node *node, const op_rule *rule)
{
    for (int o = 0; o < OP_MAX_OUT; o++) {
        const tensor_id t = node->out[o];
        if (t == TENSOR_NONE || op_at(c->whole, t)->role == ROLE_STEP) continue;
        if (op_at(c->whole, t)->role == ROLE_WEIGHT_GRAD) {
            const tensor_id weight = op_at(c->whole, t)->of;
            const int8_t *cut_dim = op_at(c->whole, weight)->cut_dim;
            if (rule->out[o].kind != PLACE_PARTIAL) continue;
            // Gradients of whole experts are summed among the ranks that have the same expert
            // (plan/mesh.h), with all other sums of a step.
            if (is_whole_expert(c->how, cut_dim)) continue;
            // Numbers of calls have the same sum in any order.
            const bool counts = node->code == OP_FP8_COUNTS || node->code == OP_FP8_COUNTS_ROWS;
            if (c->how->ordered && !counts) {
                return fail(ST_UNSUPPORTED,
                            "determinism.tp_shards: the gradient of %s is a sum over heads, which "
                            "has no order yet; use determinism.mode=fast, or layout.tp=1 with "
                            "determinism.tp_shards=1",
                            op_at(c->whole, weight)->name);
            }
            c->partial[weight] = copies_of_term(c, node);
            continue;
        }
        const cut_parts parts = output_parts(c, node, o);
        const bool is_sum = rule->out[o].kind == PLACE_PARTIAL && !makes_expert_terms(c, node);
        // A tensor that has no rows of tokens is not cut by them.
        const bool of_tokens = op_at(c->whole, t)->dims[0].symbol != EXTENT_ONE;
        const placement sum = of_tokens ? shared_place(c) : replicate;
        TRY(partition_set(c, t, is_sum ? sum : rule->out[o], &parts));
    }
    return ST_OK;
}

// ---- nodes --------------------------------------------------------------------------------------

// Sets the numbers of heads. If several ranks have a head, the share of a rank is more than 1 /
// ways, so the present heads are counted.
static void heads_count(const partition *c, const op_node *node, op_attrs *attrs)
{
    const tensor_id of = node->in[node->code == OP_ATTENTION_BWD ? 2 : node->code == OP_ATTENTION];
    const tensor_state *s = &c->state[of];
    if (s->at.kind != PLACE_SHARD || s->at.dim != 1 || node->attrs.head_dim == 0) return;
    if (node->code != OP_ROPE) {
        attrs->kv_heads = (int32_t)(part_size(c->how, &s->parts, 0) / node->attrs.head_dim);
        return;
    }
    const int64_t rotated = (int64_t)node->attrs.heads * node->attrs.head_dim;
    int64_t before = 0, here = 0; // of the parts that are rotated; others pass
    for (int i = 0; i < s->parts.count && before < rotated; i++) {
        before += s->parts.size[i];
        here += part_size(c->how, &s->parts, i);
    }
    attrs->heads = (int32_t)(here / node->attrs.head_dim);
}

static bool is_by_heads(op_code code)
{
    return code == OP_ROPE || code == OP_ATTENTION || code == OP_ATTENTION_BWD;
}

// Each rank counts its own rows; the first rank counts those that all ranks have.
static status routes_push(partition *c, op_list list, const op_node *node)
{
    op_node local = *node;
    const bool is_own = placement_equal(c->state[node->in[0]].at, rows_cut);
    if (node->in[2] != TENSOR_NONE) TRY(partition_choices(c, list, node->in[0], 3, &local));
    if (!is_own && c->how->at > 0) return ST_OK;
    for (int i = 1; i < OP_MAX_IN; i++) {
        if (node->in[i] == TENSOR_NONE) continue;
        if (placement_equal(c->state[node->in[i]].at, c->state[node->in[0]].at)) continue;
        return fail(ST_INTERNAL, "%s is not cut as its ids", op_at(c->whole, node->in[i])->name);
    }
    return op_append(c->p, list, &local, 0);
}

static status node_push(partition *c, op_list list, const op_node *node)
{
    const bool vocabulary =
        node->code == OP_HEAD_LOSS && c->state[node->in[1]].at.kind == PLACE_SHARD;
    if (vocabulary) return partition_head(c, list, node);
    if (node->code == OP_SCORE && c->how->rows && node->out[1] != TENSOR_NONE) {
        return partition_score(c, list, node);
    }
    // All ranks have the losses, so only the first rank adds them up.
    if (node->code == OP_STEP_LOSS && c->how->at > 0) return ST_OK;
    if (node->code == OP_STEP_ROUTES) return routes_push(c, list, node);
    op_rule rule;
    int index = 0;
    const bool of_tokens = node->code == OP_UNPERMUTE || node->code == OP_PERMUTE_BWD;
    if (of_tokens && c->state[node->in[0]].at.kind == PLACE_PARTIAL) {
        return partition_tokens(c, list, node);
    }
    TRY(rule_choose(c, node, &rule, &index));
    op_node local;
    op_node_cut(c->whole, node, index, c->how->ways, c->how->at, &local);
    if (is_by_heads(node->code)) heads_count(c, node, &local.attrs);
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (node->in[i] == TENSOR_NONE || rule.in[i].kind == PLACE_SHARD) continue;
        TRY(all_of(c, list, node->in[i], &local.in[i]));
    }
    // Gathered rows are those of several ranks, assumed to be evenly distributed: no rank has their
    // offsets.
    const bool has_own_rows =
        !c->how->rows || placement_equal(rule.in[0], rows_cut) || cut_in_terms(c->how);
    if (partition_is_grouped(node->code) && !has_own_rows) local.in[2] = TENSOR_NONE;
    TRY(outputs_set(c, node, &rule));
    if (node->code == OP_ROUTE_BWD) TRY(partition_choices(c, list, node->in[2], 4, &local));
    if (partition_is_wide_norm(c, node)) return partition_norm(c, list, node, &local);
    if (partition_shares_keys(c, node)) return partition_attention(c, list, node, &local);
    const bool is_sum = rule.out[0].kind == PLACE_PARTIAL &&
                        op_at(c->whole, node->out[0])->role != ROLE_WEIGHT_GRAD;
    return is_sum ? partition_sum(c, list, &local) : op_append(c->p, list, &local, 0);
}

// The recompute list has the cut versions of the same nodes of the forward list.
static status recompute_push(partition *c)
{
    const int64_t count = c->whole->lists[OP_RECOMPUTE].count;
    int64_t f = 0;
    for (int64_t i = 0; i < count; i++) {
        const op_node *node = &c->whole->lists[OP_RECOMPUTE].nodes[i];
        while (c->whole->lists[OP_FORWARD].nodes[f].out[0] != node->out[0]) {
            f++;
            ASSERT(f < c->whole->lists[OP_FORWARD].count);
        }
        for (int64_t k = f > 0 ? c->forward_end[f - 1] : 0; k < c->forward_end[f]; k++) {
            op_node again = c->p->lists[OP_FORWARD].nodes[k];
            TRY(op_append(c->p, OP_RECOMPUTE, &again, 0));
        }
    }
    return ST_OK;
}

// Tensors that the forward gathered are not kept for the backward: a rank keeps its own rows and
// gathers again before a GEMM reads them, unless the gather is part of the recomputation.
static void gathered_forget(partition *c)
{
    const op_program *p = c->p;
    for (tensor_id t = 0; t < c->whole->tensor_count; t++) c->state[t].all = TENSOR_NONE;
    for (int64_t i = 0; i < p->lists[OP_RECOMPUTE].count; i++) {
        const op_node *node = &p->lists[OP_RECOMPUTE].nodes[i];
        const bool of_rows = node->code == OP_ALL_GATHER && !node->attrs.stacked;
        if (of_rows) c->state[node->in[0]].all = node->out[0];
    }
}

static status list_walk(partition *c, op_list list)
{
    for (int64_t i = 0; i < c->whole->lists[list].count; i++) {
        TRY(node_push(c, list, &c->whole->lists[list].nodes[i]));
        if (list == OP_FORWARD) c->forward_end[i] = c->p->lists[list].count;
    }
    if (list != OP_FORWARD) return ST_OK;
    TRY(recompute_push(c));
    partition_outputs_whole(c);
    gathered_forget(c);
    return ST_OK;
}

static status program_cut(partition *c)
{
    const op_program *w = c->whole;
    TRY(arena_new(c->a, w->tensor_count + 1, &c->state));
    TRY(arena_new(c->a, w->tensor_count + 1, &c->partial));
    TRY(arena_new(c->a, w->lists[OP_FORWARD].count + 1, &c->forward_end));
    TRY(op_program_copy(c->a, w, &c->p));
    TRY(tensors_start(c));
    // A layer without an output makes its gradient in the weight list, which then comes first.
    const bool top = w->output_count == 0;
    TRY(list_walk(c, OP_FORWARD));
    TRY(list_walk(c, top ? OP_BACKWARD_WEIGHT : OP_BACKWARD_INPUT));
    TRY(list_walk(c, top ? OP_BACKWARD_INPUT : OP_BACKWARD_WEIGHT));
    for (int k = 0; k < w->input_count; k++) {
        const tensor_id d = w->d_inputs[k];
        if (d == TENSOR_NONE || placement_equal(c->state[d].at, shared_place(c))) continue;
        return fail(ST_INTERNAL, "%s leaves its layer cut", op_at(w, d)->name);
    }
    return ST_OK;
}

// ---- models -------------------------------------------------------------------------------------

// Each part of each expert is cut; the pieces follow each other.
static void stripes_cut(const op_cut *how, op_weight *w)
{
    ASSERT(w->part_count == 1 && w->rows % how->ways == 0);
    w->parts[0].whole_rows = w->parts[0].rows;
    w->parts[0].rows /= how->ways;
    w->rows = w->parts[0].rows;
}

static void weight_cut(const op_cut *how, op_weight *w)
{
    const int8_t dim = dim_of_cut(how, w->cut_dim);
    w->cut_dim[AXIS_TP] = dim;
    w->ways = 1;
    w->whole_columns = w->columns;
    if (dim < 0 || how->ways == 1) return;
    w->ways = how->ways;
    w->at = how->at;
    if (dim == 0 && w->stripe > 0) {
        stripes_cut(how, w);
        return;
    }
    int64_t begin = 0;
    for (int i = 0; i < w->part_count; i++) {
        weight_part *part = &w->parts[i];
        part->whole_rows = part->rows;
        if (dim == 0) {
            const cut_parts whole = {.count = 1,
                                     .size = {part->whole_rows},
                                     .copies = {op_part_copies(part->heads, how->ways)}};
            part->copies = whole.copies[0];
            part->first = part_begin(how, &whole, 0);
            part->rows = part_size(how, &whole, 0);
        }
        part->row_begin = begin;
        begin += part->rows;
    }
    w->rows = begin;
    if (dim == 1) {
        w->first_column = cut_begin(how, w->columns);
        w->columns = cut_size(how, w->columns);
    }
}

// Columns of weights in few bits are cut between blocks.
static status blocks_check(const op_cut *how, const op_program *p)
{
    for (int64_t i = 0; i < p->lists[OP_FORWARD].count; i++) {
        const op_node *node = &p->lists[OP_FORWARD].nodes[i];
        if (node->code != OP_DEQUANTIZE || op_at(p, node->in[0])->cut_dim[AXIS_TP] != 1) continue;
        const int64_t columns = op_at(p, node->out[0])->dims[1].scale;
        if (columns % ((int64_t)QUANT_BLOCK * how->ways) == 0) continue;
        return fail(ST_CONFIG_CONFLICT,
                    "adapter.quantize: layout.tp = %d cuts the %lld columns of %s, whose blocks "
                    "have %d; a width of a multiple of %d can be cut",
                    how->ways, (long long)columns, op_at(p, node->in[0])->name, QUANT_BLOCK,
                    QUANT_BLOCK * how->ways);
    }
    return ST_OK;
}

static status heads_check(const op_cut *how, const op_program *p)
{
    for (int64_t i = 0; i < p->lists[OP_FORWARD].count; i++) {
        const op_node *node = &p->lists[OP_FORWARD].nodes[i];
        if (node->code != OP_ATTENTION) continue;
        const op_attrs *a = &node->attrs;
        const bool heads = a->heads % how->ways == 0;
        if (heads && (a->kv_heads % how->ways == 0 || how->ways % a->kv_heads == 0)) continue;
        return fail(ST_CONFIG_CONFLICT,
                    "layout.tp = %d does not divide the model's %d %s%s; a divisor of %d does",
                    how->ways, heads ? a->kv_heads : a->heads, heads ? "key-value heads" : "heads",
                    heads ? ", nor they it" : "", heads ? a->kv_heads : a->heads);
    }
    return ST_OK;
}

// The outputs of a layer have the shapes of the inputs of the next one.
static status boundaries_check(const op_model *m, op_program *const *programs)
{
    for (int32_t i = 0; i + 1 < m->layer_count; i++) {
        const op_program *below = programs[m->layers[i].program];
        const op_program *above = programs[m->layers[i + 1].program];
        for (int k = 0; k < below->output_count; k++) {
            const op_tensor *from = op_at(below, below->outputs[k]);
            const op_tensor *to = op_at(above, above->inputs[k]);
            for (int d = 0; d < from->ndim; d++) {
                if (extent_equal(from->dims[d], to->dims[d])) continue;
                return fail(ST_INTERNAL,
                            "the piece of %s that layer %s writes is not that which layer %s reads",
                            from->name, m->layers[i].name, m->layers[i + 1].name);
            }
        }
    }
    return ST_OK;
}

static status layers_cut(arena *a, const op_model *whole, op_program *const *programs,
                         const int32_t *const *partial, int32_t ways, op_model *m,
                         op_weight *weights)
{
    op_layer *layers = NULL;
    TRY(op_layers_widen(a, whole, programs, &layers));
    for (int32_t i = 0; i < whole->layer_count; i++) {
        const op_layer *from = &whole->layers[i];
        for (int64_t t = 0; t < whole->programs[from->program]->tensor_count; t++) {
            const int32_t copies = partial[from->program][t];
            if (copies == 0 || copies == ways) continue; // of one term there is no sum
            weights[from->weight_of[t]].partial_grad = true;
            weights[from->weight_of[t]].partial_copies = copies;
        }
    }
    m->layers = layers;
    return boundaries_check(m, programs);
}

status op_model_partition(arena *a, op_model *whole, const op_cut *how, op_model **local)
{
    TRY(op_ways_check("tp", how->ways, how->at, how->ordered, how->shards, OP_CUT_MAX_TERMS));
    *local = whole;
    const bool experts = how->ordered && !how->whole_experts && how->expert_shards > 1;
    if (how->ways == 1 && (!how->ordered || how->shards == 1) && !experts) return ST_OK;
    op_model *m = NULL;
    op_program **programs = NULL;
    const int32_t **partial = NULL;
    op_weight *weights = NULL;
    TRY(arena_new(a, 1, &m));
    TRY(arena_new(a, whole->program_count, &programs));
    TRY(arena_new(a, whole->program_count, &partial));
    TRY(arena_new(a, whole->weight_count + 1, &weights));
    *m = *whole;
    for (int32_t i = 0; i < whole->program_count; i++) {
        partition c = {.a = a, .how = how, .whole = whole->programs[i]};
        TRY(heads_check(how, c.whole));
        if (how->ways > 1) TRY(blocks_check(how, c.whole));
        TRY(program_cut(&c));
        programs[i] = c.p;
        partial[i] = c.partial;
    }
    for (int64_t w = 0; w < whole->weight_count; w++) {
        weights[w] = whole->weights[w];
        weight_cut(how, &weights[w]);
    }
    m->programs = programs;
    m->weights = weights;
    TRY(layers_cut(a, whole, programs, partial, how->ways, m, weights));
    *local = m;
    return ST_OK;
}

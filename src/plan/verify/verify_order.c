// The verifier: the rows of a term, and the order of summation in strict plans.
//
// The rows of the global batch are cut into *cells* by position: one per rank of cp, or in strict
// order one per shard of a sequence (op/zigzag.h). Within a cell, rows are numbered sequence after
// sequence, so an action adds a range of rows. The leaves of the tree over shards are the shards of
// the batch in the first cell, then those in the second, and so on. A sum is a node of the tree if
// it has exactly the rows of the node's leaves.
#include "plan/verify/verify_sums.h"

#include "op/zigzag.h"

#include <string.h>

// ---- rows ---------------------------------------------------------------------------------------

static int32_t cp_size_of(const verify_facts *f)
{
    return plan_mesh_size(&f->at, AXIS_CP);
}

// Counts the cells of a sequence on all ranks; those of one rank are consecutive.
static int32_t row_cells(const verify_facts *f)
{
    return f->p->cp_shards > cp_size_of(f) ? f->p->cp_shards : cp_size_of(f);
}

int64_t verify_unit(const verify_facts *f)
{
    return f->p->seq * cp_size_of(f) / row_cells(f);
}

// Counts the consecutive ranks of tp with the same term for the same rows; 0: all ranks of tp have
// the same terms.
static int32_t term_copies(const verify_facts *f, int32_t weight)
{
    const op_weight *w = weight >= 0 ? &f->p->model->weights[weight] : NULL;
    return w != NULL && w->partial_grad ? w->partial_copies : 0;
}

// Counts the different terms of ranks of tp for the same rows; each has a cell of its own.
static int32_t term_ranks(const verify_facts *f, int32_t weight)
{
    const int32_t copies = term_copies(f, weight);
    return copies > 0 ? plan_mesh_size(&f->at, AXIS_TP) / copies : 1;
}

// Counts the groups of tp ranks that have rows of other positions for the same experts.
static int32_t expert_parts(const verify_facts *f)
{
    return plan_expert_tp(&f->at) / plan_ep_tp(&f->at);
}

int32_t verify_cells(const verify_facts *f, int32_t weight)
{
    const op_weight *w = weight >= 0 ? &f->p->model->weights[weight] : NULL;
    if (w != NULL && plan_is_shared_out(&f->at, w)) return row_cells(f) * expert_parts(f);
    return row_cells(f) * term_ranks(f, weight);
}

// Returns the piece of one cell that an action covers, of rows of rank `at` of cp; 0: its rows are
// not in one cell.
static int piece_term(const verify_facts *f, const plan_action *action, int32_t at, int32_t own,
                      verify_term *out)
{
    const int64_t cp = cp_size_of(f);
    for (int32_t k = 0; k < own; k++) {
        zigzag_run runs[2];
        zigzag_shard(cp, at, f->p->seq, cp * own, (int64_t)at * own + k, runs);
        for (int i = 0; i < 2; i++) {
            if (runs[i].row != action->position_begin || runs[i].count != action->position_count) {
                continue;
            }
            out->cell += k;
            out->begin += i * runs[i].count;
            out->end = out->begin + runs[i].count;
            return 1;
        }
    }
    return 0;
}

// Lists the terms of rows that come from all ranks that share experts, or from one of them.
static int expert_terms(const verify_facts *f, const plan_action *action, int32_t source,
                        verify_term out[VERIFY_MAX_TERMS])
{
    const plan *p = f->p;
    const int32_t dp = plan_ep_dp(&f->at), cp = plan_ep_cp(&f->at);
    const int32_t own = row_cells(f) / cp_size_of(f), parts = expert_parts(f);
    const int32_t part = parts > 1 ? f->at.at[AXIS_TP] / plan_ep_tp(&f->at) : 0;
    const int64_t count = action->sequence_count > 0 ? action->sequence_count : p->micro_batch;
    int n = 0;
    for (int32_t i = 0; i < dp * cp; i++) {
        plan_mesh at = f->at;
        int64_t first = 0, all = 0;
        if (action->rows_of > 0 && i != action->rows_of - 1) continue;
        at.at[AXIS_DP] += i / cp - at.at[AXIS_DP] % dp;
        at.at[AXIS_CP] += i % cp - at.at[AXIS_CP] % cp;
        plan_own_sequences(&at, p->strict, p->shards, p->sequences, &first, &all);
        first += action->sequence_begin;
        if (action->microbatch > 0) first += action->microbatch * p->micro_batch;
        if (action->position_count > 0) {
            const int64_t begin = first * verify_unit(f);
            out[n] = (verify_term){source, at.at[AXIS_CP] * own, begin, begin};
            if (parts == 1) n += piece_term(f, action, at.at[AXIS_CP], own, &out[n]);
            if (n == VERIFY_MAX_TERMS) break;
            continue;
        }
        for (int32_t k = 0; k < own && n < VERIFY_MAX_TERMS; k++) {
            out[n++] = (verify_term){source, (at.at[AXIS_CP] * own + k) * parts + part,
                                     first * verify_unit(f), (first + count) * verify_unit(f)};
        }
    }
    return n;
}

int verify_action_terms(const verify_facts *f, int32_t index, int32_t weight, int32_t source,
                        verify_term out[VERIFY_MAX_TERMS])
{
    const plan *p = f->p;
    const op_weight *w = weight >= 0 ? &p->model->weights[weight] : NULL;
    if (w != NULL && plan_is_shared_out(&f->at, w)) {
        return expert_terms(f, &p->actions[index], source, out);
    }
    const plan_action *action = &p->actions[index];
    const int64_t unit = verify_unit(f);
    const int64_t count = action->sequence_count > 0 ? action->sequence_count : p->micro_batch;
    const int64_t before = action->microbatch > 0 ? action->microbatch * p->micro_batch : 0;
    const int64_t begin = (p->first_sequence + before + action->sequence_begin) * unit;
    const int32_t tp = term_ranks(f, weight);
    const int32_t at = tp > 1 ? f->at.at[AXIS_TP] / term_copies(f, weight) : 0;
    const int32_t own = row_cells(f) / cp_size_of(f), first = f->at.at[AXIS_CP] * own;
    if (action->position_count > 0) { // no tp distributes rows here
        out[0] = (verify_term){source, first, begin, begin};
        return tp == 1 ? piece_term(f, action, f->at.at[AXIS_CP], own, &out[0]) : 0;
    }
    for (int32_t i = 0; i < own; i++) {
        out[i] = (verify_term){source, (first + i) * tp + at, begin, begin + count * unit};
    }
    return own;
}

// ---- the tree -----------------------------------------------------------------------------------

static int64_t power_above(int64_t count)
{
    int64_t size = 1;
    while (size < count) size *= 2;
    return size;
}

// Returns the first row of a shard in a cell.
static int64_t shard_begin(const verify_facts *f, int64_t shard)
{
    const plan *p = f->p;
    return plan_shard_begin(p->sequences, p->shards, min_i64(shard, p->shards)) * verify_unit(f);
}

static int64_t leaf_count(const verify_facts *f)
{
    const int64_t cells = row_cells(f);
    return cells == 1 ? f->p->shards : cells * power_above(f->p->shards);
}

static int64_t leaves_of_cell(const verify_facts *f)
{
    return row_cells(f) == 1 ? f->p->shards : power_above(f->p->shards);
}

// Whether these rows are of one source and exactly those of leaves [begin, end).
static bool is_all_of(const verify_facts *f, const verify_term *rows, int32_t count, int64_t begin,
                      int64_t end)
{
    const int64_t each = leaves_of_cell(f);
    int32_t n = 0;
    for (int64_t cell = begin / each; cell * each < end && cell < row_cells(f); cell++) {
        const int64_t from = shard_begin(f, max_i64(begin - cell * each, 0));
        const int64_t to = shard_begin(f, min_i64(end - cell * each, each));
        if (from == to) continue;
        if (n == count || rows[n].cell != (int32_t)cell || rows[n].begin != from ||
            rows[n].end != to || rows[n].source != rows[0].source) {
            return false;
        }
        n++;
    }
    return n == count && n > 0;
}

static int64_t leaf_of(const verify_facts *f, const verify_term *t)
{
    int64_t shard = 0;
    while (shard < f->p->shards && shard_begin(f, shard + 1) <= t->begin) shard++;
    return t->cell * leaves_of_cell(f) + shard;
}

// Whether two sums are the left and right child of one node.
static bool are_siblings(const verify_facts *f, const verify_terms *left, const verify_terms *right)
{
    const int64_t leaf = leaf_of(f, &left->rows[0]);
    int64_t low = 0;
    for (int64_t size = power_above(leaf_count(f)); size > 1; size /= 2) {
        const int64_t middle = low + size / 2;
        if (is_all_of(f, left->rows, left->count, low, middle) &&
            is_all_of(f, right->rows, right->count, middle, low + size)) {
            return true;
        }
        if (leaf >= middle) low = middle;
    }
    return false;
}

bool verify_shard_is_right(const verify_facts *f, const verify_terms *held, const verify_term *next,
                           bool starts)
{
    int64_t shard = 0;
    while (shard < f->p->shards && shard_begin(f, shard + 1) <= next->begin) shard++;
    if (next->end > shard_begin(f, shard + 1)) return false;
    if (starts) return next->begin == shard_begin(f, shard);
    if (held->count != 1) return false;
    const verify_term *last = &held->rows[0];
    return last->source == next->source && last->cell == next->cell && last->end == next->begin &&
           last->begin == shard_begin(f, shard);
}

// Whether the terms are complete sums of uses.
static bool are_whole(const verify_facts *f, const verify_terms *t)
{
    for (int32_t i = 0; i < t->count;) {
        int32_t end = i;
        while (end < t->count && t->rows[end].source == t->rows[i].source) end++;
        if (!is_all_of(f, &t->rows[i], end - i, 0, leaf_count(f))) return false;
        i = end;
    }
    return t->count > 0;
}

bool verify_order_is_right(const verify_facts *f, const verify_terms *to, const verify_terms *from)
{
    if (to->count == 0 || from->count == 0) return false;
    const int32_t last = to->rows[to->count - 1].source, next = from->rows[0].source;
    if (from->rows[from->count - 1].source != next) return false; // several uses at once
    if (to->rows[0].source == next && last == next) return are_siblings(f, to, from);
    return next < to->rows[0].source && are_whole(f, to) && are_whole(f, from);
}

bool verify_leaf_is_right(const verify_facts *f, const plan_comm_leaf *leaf,
                          const verify_terms *held)
{
    const int64_t leaves = leaf_count(f);
    int64_t size = 1;
    if (leaf->begin < 0 || leaf->begin >= leaf->end || leaf->end > leaves) return false;
    while (leaf->begin + size < leaf->end) size *= 2;
    if (leaf->begin % size != 0 || leaf->end != min_i64(leaf->begin + size, leaves)) return false;
    return held->count > 0 && is_all_of(f, held->rows, held->count, leaf->begin, leaf->end);
}

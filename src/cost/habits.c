// The effects of habits of other software on prices. Each function also says what the price is
// without them.
//
// Gathers and scatters of ZeRO-3 may go tensor by tensor through buffers (piece_s), as in DeepSpeed
// of April 2021 (commit 835b4c873, zero/partition_parameters.py and stage3.py): torch.zeros creates
// the buffer, all_gather to a list of views copies every rank's piece by a kernel of its own
// (PyTorch's ProcessGroupNCCL), and a line of log that is never printed computes the weight's norm;
// gradients are divided in a separate pass and copied piece by piece.
#include "cost/habits.h"

#include "cost/cost_internal.h"
#include "op/op.h"

#define NONE_REAL(field, key, scale, least, most, none, help) .field = (none),
#define NONE_COUNT(field, most, help)                         .field = 0,
#define NONE_FLAG(field, none, help)                          .field = (none),
const cost_habits cost_habits_none = {COST_HABITS(NONE_REAL, NONE_COUNT, NONE_FLAG)};

// ---- operations --------------------------------------------------------------------------------

double cost_habit_moved(const cost_profile *p, op_code code)
{
    const cost_habits *h = cost_habits_of(p);
    return h->eager_pointwise > 0.0 && op_kind_of(code)->composed ? h->eager_pointwise
                                                                  : h->pointwise;
}

bool cost_has_all_logits(const cost_profile *p)
{
    const cost_habits *h = cost_habits_of(p);
    return h->whole_logits || h->whole_head;
}

cost_columns cost_habit_columns(const cost_model *m, const op_node *node, double vocab)
{
    if (!cost_has_all_logits(m->profile)) return (cost_columns){vocab, vocab};
    const double all = fmax((double)node->piece.whole_rows, vocab);
    return (cost_columns){cost_habits_of(m->profile)->whole_head ? all : vocab, all};
}

// With whole_logits: a gather over tp, and a copy that joins the columns of a row. It is a
// collective, but plans do not contain it, so its time belongs to the compute stream.
double cost_habit_logits_s(const cost_model *m, double rows, double vocab, double columns)
{
    const double bytes = 2.0 * rows * columns;
    if (cost_habits_of(m->profile)->whole_head || columns <= vocab) return 0.0;
    return 1e-9 * (double)cost_tp_gather_ns(m, (int64_t)ceil(columns / vocab), bytes) +
           cost_memory_s(m, 2.0 * bytes);
}

// Time to add a weight's gradient to the step's sum, in addition to the operation that computed it.
static double sums_s(const cost_model *m, const op_program *p, const op_node *node,
                     const extent_binding *bound)
{
    const op_kind *kind = op_kind_of(node->code);
    const cost_habits *h = cost_habits_of(m->profile);
    double s = 0.0;
    for (int o = 0; o < OP_MAX_OUT; o++) {
        const tensor_id sum = node->out[o];
        if ((kind->accumulates >> o & 1u) == 0 || sum == TENSOR_NONE) continue;
        const op_tensor *x = &p->tensors[sum];
        const bool is_short = dtype_bytes(x->type) <= 2;
        double bytes = is_short ? h->sum16_bytes : h->sum32_bytes;
        for (int d = 0; d < x->ndim; d++) bytes *= cost_dim_of(p, sum, d, bound);
        if (bytes > 0.0) s += cost_copy_s(m, bytes) + cost_launch_s(m);
    }
    return s;
}

// Rows for this rank's experts arrive from each rank ordered by expert; they are read and written
// in the order of the experts, and the experts' outputs go back the same way.
static double sorts_s(const cost_model *m, const op_program *p, const op_node *node,
                      const extent_binding *bound)
{
    const op_sorts sorts = op_kind_of(node->code)->sorts;
    if (!cost_habits_of(m->profile)->expert_sorts || sorts == SORTS_NOTHING) return 0.0;
    const tensor_id rows = sorts == SORTS_OUTPUT ? node->out[0] : node->in[0];
    const double width = (double)dtype_bytes(p->tensors[rows].type);
    return cost_memory_s(m, 2.0 * width * cost_dim_of(p, rows, 0, bound) *
                                cost_dim_of(p, rows, 1, bound)) +
           cost_launch_s(m);
}

double cost_habit_node_s(const cost_model *m, const op_program *p, const op_node *node,
                         const extent_binding *bound)
{
    if (m->profile->habits == NULL) return 0.0;
    return sums_s(m, p, node, bound) + sorts_s(m, p, node, bound);
}

// ---- the host ----------------------------------------------------------------------------------

bool cost_has_host(const cost_profile *p)
{
    const cost_habits *h = cost_habits_of(p);
    return h->issue_s > 0.0 || h->expert_issue_s > 0.0 || h->expert_product_s > 0.0;
}

int64_t cost_step_ns(const cost_profile *p)
{
    return (int64_t)(cost_habits_of(p)->step_s * 1e9);
}

int64_t cost_issue_ns(const cost_model *m, const op_node *node)
{
    const cost_habits *h = cost_habits_of(m->profile);
    double s = h->issue_s;
    if (op_communicates(node->code)) return 0;
    s += h->expert_issue_s * (double)op_kind_of(node->code)->host_issues;
    const bool is_gemm = op_kind_of(node->code)->cost_class == COST_GEMM;
    if (is_gemm) s += h->expert_product_s * (double)node->attrs.experts;
    return cost_ns_of(s);
}

bool cost_host_waits(const cost_model *m, op_code code)
{
    return cost_habits_of(m->profile)->expert_wait && op_kind_of(code)->host_waits;
}

// ---- collectives -------------------------------------------------------------------------------

double cost_overlap(const cost_profile *p, const cost_group *g, bool overlapped)
{
    const cost_habits *h = cost_habits_of(p);
    const traffic t = traffic_of(g->axes);
    if (overlapped && h->dp_beside && g->flat && t == TRAFFIC_DP) return 1.0;
    if (overlapped && h->beside && t != TRAFFIC_DP && t != TRAFFIC_PP) return 1.0;
    return p->overlap[t];
}

double cost_habit_most_rate(const cost_profile *p, const cost_group *g)
{
    return traffic_of(g->axes) == TRAFFIC_CP ? cost_habits_of(p)->cp_gb_s * 1e9 : 0.0;
}

// Applies where only rings are available.
bool cost_habit_hops(const cost_profile *p, const cost_group *g, double *s)
{
    const cost_habits *h = cost_habits_of(p);
    const double n = (double)g->ranks, units = n / (double)g->inside[0];
    const double outside = units > 1.0 ? units - 1.0 : 0.0;
    if (h->hop_s <= 0.0 && h->hop_outside_s <= 0.0) return false;
    *s = (n - 1.0 - outside) * h->hop_s + outside * h->hop_outside_s;
    return true;
}

// Share of a token's copies that leave the node: k draws hit n (1 - (1 - 1/n)^k) of n nodes, and a
// row that is distributed inside a node goes to each of them once.
static double copies_share(const cost_model *m, const cost_group *g)
{
    const double k = (double)m->top_k, most = (double)cost_habits_of(m->profile)->ep_nodes;
    const double nodes = (double)g->ranks / (double)g->inside[0];
    if (most <= 0.0 || k <= 1.0 || nodes <= 1.0) return 1.0;
    return fmin(nodes * (1.0 - pow(1.0 - 1.0 / nodes, k)), most) / k;
}

cost_exchange cost_habit_exchange(const cost_model *m, const cost_group *g, double bytes)
{
    const cost_habits *h = cost_habits_of(m->profile);
    const double most = h->ep_gb_s * 1e9, n = (double)g->ranks;
    cost_exchange x = {.bytes = bytes * (h->ep_bytes * h->imbalance)};
    x.outside = copies_share(m, g);
    if (most > 0.0) x.least_s = x.bytes * (n - 1.0) / n / most;
    return x;
}

// A collective occupies compute units of the device, as many as its links can keep busy, and memory
// bandwidth; both are proportional to bytes per second. The share of a group is therefore the rate
// at which one of its ranks receives, over that of the innermost links.
double cost_crowding(const cost_model *m, const cost_group *g)
{
    double share = 1.0;
    for (int32_t l = 1; l <= g->top; l++) {
        if (g->units[l] < 2) continue;
        const double n = (double)g->ranks, d = (double)cost_units_below(g, l);
        share = fmin(share, (n - 1.0) * d * cost_level_rate(m, g, l) /
                                ((n - d) * cost_level_rate(m, g, 0)));
    }
    return cost_habits_of(m->profile)->crowding * share;
}

static bool goes_in_pieces(const cost_model *m, const cost_group *link)
{
    return cost_habits_of(m->profile)->pp_pieces && link->same_rows > 1;
}

int64_t cost_pieces_ns(const cost_model *m, const cost_group *link, double bytes)
{
    return goes_in_pieces(m, link) ? cost_tp_gather_ns(m, link->same_rows, bytes) : 0;
}

// Some software casts the inputs of GEMMs to fp8 before it gathers them: everything gathered over
// tp alone is such an input, except the head's.
static bool is_cast_first(const cost_model *m, const cost_group *g, op_collective op)
{
    return m->fp8 && cost_habits_of(m->profile)->fp8_gathers && op == COLLECTIVE_ALL_GATHER &&
           g->axes == MESH_AXIS(AXIS_TP);
}

double cost_habit_sent_bytes(const cost_model *m, const cost_group *g, op_collective op,
                             double bytes)
{
    const double each = goes_in_pieces(m, g) ? bytes / (double)g->same_rows : bytes;
    return is_cast_first(m, g, op) ? each / 2.0 : each; // from 16 bits
}

// ---- gathered parameters and unsharded gradients, tensor by tensor -----------------------------

static bool reads(const op_program *program, op_list list, tensor_id t)
{
    for (int64_t i = 0; i < program->lists[list].count; i++) {
        for (int k = 0; k < OP_MAX_IN; k++) {
            if (program->lists[list].nodes[i].in[k] == t) return true;
        }
    }
    return false;
}

// True if a weight is released between its recomputation and its gradient. Each later weight of the
// layer is used twice there, even if the plan need not repeat its GEMM (stage3.py,
// _keep_for_later).
static bool is_gathered_again(const cost_model *m, const plan *p, int32_t weight)
{
    for (int32_t l = 0; l < p->model->layer_count; l++) {
        const op_layer *layer = &p->model->layers[l];
        const op_program *program = p->model->programs[layer->program];
        double between = 0.0;
        bool found = false;
        for (tensor_id t = 0; t < program->tensor_count; t++) {
            const int32_t w = program->tensors[t].role == ROLE_WEIGHT ? layer->weight_of[t] : -1;
            if (w < 0) continue;
            const op_weight *x = &p->model->weights[w];
            if (found) between += 2.0 * (double)x->rows * (double)x->columns;
            found = found || (w == weight && reads(program, OP_RECOMPUTE, t));
        }
        if (found) return between >= (double)cost_habits_of(m->profile)->reuse_distance;
    }
    return false;
}

// Additional time if every tensor of a layer has a collective of its own instead of sharing one.
static double gathered_s(const cost_model *m, const cost_group *g, const plan *p,
                         const plan_comm *c)
{
    enum { PASSES = 4 }; // over its bytes: zeros, a copy, the norm; or a division and a copy
    const bool gathers = c->op == COLLECTIVE_ALL_GATHER;
    const double one = cost_pieces_latency(m, g) + cost_launch_s(m);
    double s = 0.0;
    int64_t tensors = 0;
    for (int32_t i = 0; i < c->items_count; i++) {
        const plan_comm_item *item = &p->items[c->items_begin + i];
        const plan_tensor *t = plan_tensor_at(p, gathers ? item->out : item->in);
        if (!t->is_unsharded) continue;
        const double elements =
            item->total > 0 ? (double)item->total : (double)item->count * (double)g->ranks;
        const double bytes = elements * (double)dtype_bytes(c->type);
        const double pieces = (double)g->ranks * cost_habits_of(m->profile)->piece_s +
                              1e-9 * (double)cost_memory_ns(m, (double)PASSES * bytes);
        s += pieces;
        if (tensors++ > 0) s += one;
        if (!gathers || !is_gathered_again(m, p, t->weight)) continue;
        s += (pieces + one + cost_gather_s(m, g, bytes, false)) /
             2.0; // of the two, forward and backward
    }
    return s;
}

int64_t cost_habit_gathered_ns(const cost_model *m, const cost_group *g, const plan *p,
                               const plan_comm *c)
{
    const bool pieces = c->op == COLLECTIVE_ALL_GATHER || c->op == COLLECTIVE_REDUCE_SCATTER;
    if (cost_habits_of(m->profile)->piece_s <= 0.0 || !pieces || g->ranks < 2) return 0;
    return cost_ns_of(gathered_s(m, g, p, c));
}

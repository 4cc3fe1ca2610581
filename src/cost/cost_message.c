// Prices of messages: which levels of the hierarchy a group spans, and what each collective sends over each.
//
//   level 0   devices of a node          n ranks all in all; d of them in one unit of the level below
//   level 1   nodes of a rail, a leaf    to gather S bytes a unit fetches S (n - d) / n over its d devices'
//   level 2   leaves of a pod  ...       links of the level; levels work at the same time, the slowest decides
//
// Rings of all ranks bring a unit the pieces of its own ranks too, S (n - 1) / n (profile.rings): nearly twice as much
// between two nodes, as much between many. NCCL's trees spare sums to all that, but for large ones it takes the ring
// (src/graph/tuning.cc of 2.8: 0.92 of the speed over 2 against over 2 (n - 1) / n), and its tests reach what the ports
// of a node carry by it, no more.
//
// A sum to all is a scatter and a gather. Where the switches of a level add (SHARP, NVLS), each rank sends its
// bytes once. Steps: a ring goes round all ranks; a tree, or doubling, takes the logarithm of them at
// each level; the better one is taken, as libraries do.
//
// What travels compressed nobody adds on the way (comm/compressed.h): each rank sends a stream to the owner of every
// piece, so d devices of a unit send d (n - d) / n S over their links, d times what a ring does; then the streams of
// the sums are gathered. What encoding and decoding takes is left out.
//
// What ZeRO-3 gathers and scatters may go tensor by tensor through buffers (profile.piece_s), as in DeepSpeed of April
// 2021 (commit 835b4c873, zero/partition_parameters.py and stage3.py): torch.zeros makes the buffer, all_gather to a
// list of views copies every rank's piece by a kernel of its own (PyTorch's ProcessGroupNCCL), and a line of log that
// nobody sees takes the weight's norm; gradients are divided in a pass of their own, and copied piece by piece.
#include "cost/cost.h"

#include "op/op.h"

#include <math.h>
#include <string.h>

static int64_t ns_of(double seconds)
{
    ASSERT(seconds >= 0.0 && seconds < 1e9);
    return (int64_t)ceil(seconds * 1e9);
}

// Devices in one unit of a level; the outermost one holds all.
static int64_t level_devices(const cluster *c, int32_t level)
{
    return level == c->level_count - 1 ? INT64_MAX : c->levels[level].devices;
}

// Units of so many devices that have a member from `begin` to `end`, of the members' places.
static int64_t units_between(const plan_members *s, int64_t begin, int64_t end, int64_t devices)
{
    int64_t units = 0;
    for (int64_t at = begin; at < end; units++) {
        const int64_t unit = plan_members_at(s, at) / devices;
        at = plan_members_below(s, (unit + 1) * devices);
    }
    return units;
}

void cost_group_make(const cluster *c, const plan_members *members, int64_t rank, uint32_t axes,
                     cost_group *out)
{
    const int64_t count = plan_members_count(members);
    memset(out, 0, sizeof(*out));
    out->ranks = count;
    out->axes = axes;
    out->top = -1;
    ASSERT(count >= 1 && c->level_count >= 1);
    ASSERT(plan_members_at(members, plan_members_below(members, rank)) == rank);
    for (int32_t l = 0; l < c->level_count; l++) {
        const int64_t size = level_devices(c, l), below = l > 0 ? level_devices(c, l - 1) : 1;
        const bool is_top = l == c->level_count - 1;
        const int64_t begin = is_top ? 0 : plan_members_below(members, rank / size * size);
        const int64_t end = is_top ? count : plan_members_below(members, (rank / size + 1) * size);
        out->inside[l] = end - begin;
        out->units[l] = units_between(members, begin, end, below);
        if (out->top < 0 && out->inside[l] == count) out->top = l;
    }
    ASSERT(out->top >= 0);
}

void cost_group_of(const cluster *c, const plan_mesh *mesh, const plan_group *g, cost_group *out)
{
    const plan_members members = plan_members_of(mesh, g);
    cost_group_make(c, &members, plan_mesh_rank(mesh), g->axes, out);
    out->flat = plan_mesh_size(mesh, AXIS_PP) == 1;
}

// ---- habits of a software, by what a message is for ------------------------------------------------

static double bandwidth_habit(const cost_profile *p, uint32_t axes)
{
    const double habits[TRAFFIC_COUNT] = {p->tp_bandwidth, p->cp_bandwidth, p->dp_bandwidth,
                                          p->pp_bandwidth, p->ep_bandwidth};
    return habits[traffic_of(axes)];
}

double cost_overlap(const cost_profile *p, const cost_group *g, bool aside)
{
    const traffic t = traffic_of(g->axes);
    if (aside && p->dp_beside && g->flat && t == TRAFFIC_DP) return 1.0;
    if (aside && p->beside && t != TRAFFIC_DP && t != TRAFFIC_PP) return 1.0;
    const double habits[TRAFFIC_COUNT] = {p->tp_overlap, p->cp_overlap, p->dp_overlap,
                                          p->pp_overlap, p->ep_overlap};
    return habits[t];
}

// In a mesh two of four have a third of a device's links, for each leads to one other. In a hybrid cube mesh of eight
// neighbours share one or two of six, and four have four each among themselves (NVIDIA, DGX-1 with Tesla V100 System
// Architecture, figure 4).
double cost_links_share(const cluster *c, int32_t level, int64_t units)
{
    const cluster_level *l = &c->levels[level];
    const double below = level > 0 ? (double)c->levels[level - 1].devices : 1.0;
    const double all = fmax((double)l->devices / below, 2.0), here = (double)units;
    if (here < 2.0 || here >= all) return 1.0;
    if (l->shape == SHAPE_MESH) return (here - 1.0) / (all - 1.0);
    if (l->shape == SHAPE_CUBE) return here <= 2.0 ? 1.0 / 6.0 : 4.0 / 6.0;
    return 1.0;
}

// Of payload, per device and direction, when all talk.
static double level_rate(const cost_model *m, const cost_group *g, int32_t level)
{
    const cluster_level *l = &m->c->levels[level];
    const double efficiency = l->efficiency > 0.0 ? l->efficiency : 1.0;
    const double taper = l->taper > 1.0 ? l->taper : 1.0;
    const double rate = l->bytes_s * cost_links_share(m->c, level, g->units[level]) * efficiency /
                        taper * bandwidth_habit(m->profile, g->axes);
    const double most = traffic_of(g->axes) == TRAFFIC_CP ? m->profile->cp_gb_s * 1e9 : 0.0;
    return most > 0.0 ? fmin(rate, most) : rate;
}

static int64_t below(const cost_group *g, int32_t level)
{
    return level > 0 ? g->inside[level - 1] : 1;
}

// ---- collectives ----------------------------------------------------------------------------------

// Once round a ring of all ranks.
static double ring_latency(const cost_model *m, const cost_group *g)
{
    double s = 0.0;
    for (int32_t l = 0; l <= g->top; l++) {
        const double n = (double)g->ranks;
        const double hops = n / (double)below(g, l) - n / (double)g->inside[l];
        s += hops * m->c->levels[l].latency_s;
    }
    return s;
}

static double tree_latency(const cost_model *m, const cost_group *g)
{
    double s = 0.0;
    for (int32_t l = 0; l <= g->top; l++) {
        s += ceil(log2((double)g->units[l])) * m->c->levels[l].latency_s;
    }
    return s;
}

// Of a gather or a scatter: where only rings are to be had, with what a hop takes there.
static double pieces_latency(const cost_model *m, const cost_group *g)
{
    const cost_profile *p = m->profile;
    if (p->hop_s <= 0.0 && p->hop_outside_s <= 0.0) {
        return fmin(ring_latency(m, g), 2.0 * tree_latency(m, g));
    }
    const double n = (double)g->ranks, units = n / (double)g->inside[0];
    const double outside = units > 1.0 ? units - 1.0 : 0.0;
    return (n - 1.0 - outside) * p->hop_s + outside * p->hop_outside_s;
}

// All pieces to all, or the sums of all to their owners: S bytes in all.
static double gather_s(const cost_model *m, const cost_group *g, double bytes, bool sums)
{
    double slowest = 0.0;
    for (int32_t l = 0; l <= g->top; l++) {
        if (g->units[l] < 2) continue;
        const double n = (double)g->ranks, d = (double)below(g, l);
        const bool added = sums && m->c->levels[l].reduces, rings = m->profile->rings && !added;
        double s = bytes * (n - (rings ? 1.0 : d)) / n / (d * level_rate(m, g, l));
        if (added) s /= 2.0; // the other half of an all_reduce's
        slowest = fmax(slowest, s);
    }
    return slowest;
}

// Share of a token's copies that leave the node: of n nodes k draws meet n (1 - (1 - 1/n)^k), and a row goes to
// each of them once, where it is dealt out.
static double copies_share(const cost_model *m, const cost_group *g)
{
    const double k = (double)m->top_k, most = (double)m->profile->ep_nodes;
    const double nodes = (double)g->ranks / (double)g->inside[0];
    if (most <= 0.0 || k <= 1.0 || nodes <= 1.0) return 1.0;
    return fmin(nodes * (1.0 - pow(1.0 - 1.0 / nodes, k)), most) / k;
}

// Messages take units of the device, as many as their links can feed, and its memory's bandwidth: both go by bytes a
// second. So of a group the share is that of the rate at which one of its ranks takes in, over the innermost links'.
double cost_crowding(const cost_model *m, const cost_group *g)
{
    double share = 1.0;
    for (int32_t l = 1; l <= g->top; l++) {
        if (g->units[l] < 2) continue;
        const double n = (double)g->ranks, d = (double)below(g, l);
        share = fmin(share, (n - 1.0) * d * level_rate(m, g, l) / ((n - d) * level_rate(m, g, 0)));
    }
    return m->profile->crowding * share;
}

static double all_to_all_s(const cost_model *m, const cost_group *g, double bytes)
{
    enum { AT_ONCE = 8 }; // messages that a device has under way
    double slowest = 0.0, outside = 1.0;
    if (traffic_of(g->axes) == TRAFFIC_EP) {
        const double most = m->profile->ep_gb_s * 1e9, n = (double)g->ranks;
        bytes *= m->profile->ep_bytes * m->profile->imbalance;
        outside = copies_share(m, g);
        if (most > 0.0) slowest = bytes * (n - 1.0) / n / most;
    }
    for (int32_t l = 0; l <= g->top; l++) {
        if (g->units[l] < 2) continue;
        const double n = (double)g->ranks, d = (double)below(g, l);
        const double sent = bytes * (l > 0 ? outside : 1.0);
        slowest = fmax(slowest, sent * (n - d) / n / level_rate(m, g, l));
    }
    const double rounds = ceil((double)(g->ranks - 1) / AT_ONCE);
    return slowest + rounds * m->c->levels[g->top].latency_s;
}

int64_t cost_alike(const op_model *m, int64_t tp)
{
    const op_program *first = m->programs[m->layers[0].program];
    const bool whole = first->output_count > 0 &&
                       first->tensors[first->outputs[0]].dims[0].symbol == EXTENT_TOKENS;
    return whole ? tp : 0;
}

static bool goes_in_pieces(const cost_model *m, const cost_group *link)
{
    return m->profile->pp_pieces && link->alike > 1;
}

static double message_s(const cost_model *m, const cost_group *g, op_collective op, double bytes)
{
    const cluster_level *top = &m->c->levels[g->top];
    const double latency = fmin(ring_latency(m, g), 2.0 * tree_latency(m, g));
    switch (op) {
    case COLLECTIVE_ALL_REDUCE:
        return 2.0 * gather_s(m, g, bytes, true) + 2.0 * latency;
    case COLLECTIVE_REDUCE_SCATTER:
    case COLLECTIVE_ALL_GATHER:
        return gather_s(m, g, bytes, false) + pieces_latency(m, g);
    case COLLECTIVE_ALL_TO_ALL:
        return all_to_all_s(m, g, bytes);
    case COLLECTIVE_BROADCAST:
        return bytes / ((double)below(g, g->top) * level_rate(m, g, g->top)) + tree_latency(m, g);
    case COLLECTIVE_SEND:
    case COLLECTIVE_RECEIVE:
    case COLLECTIVE_REDUCE:
    case COLLECTIVE_GATHER:
    case COLLECTIVE_SCATTER:
    case COLLECTIVE_ALL_TO_ALLV:
    case COLLECTIVE_BARRIER:
    case COLLECTIVE_COUNT:
    default: // of what plans do not have, only the bytes
        return bytes / level_rate(m, g, g->top) + top->latency_s;
    }
}

static int64_t sent_ns(const cost_model *m, const cost_group *g, op_collective op, double bytes)
{
    return ns_of(message_s(m, g, op, bytes) + m->c->device.launch_s * m->profile->launch);
}

int64_t cost_tp_gather_ns(const cost_model *m, int64_t tp, double bytes)
{
    const plan_mesh mesh = {.size = {[AXIS_TP] = (int32_t)tp}};
    const plan_group all = plan_group_of(&mesh, MESH_AXIS(AXIS_TP), GROUP_INLINE);
    cost_group g;
    cost_group_of(m->c, &mesh, &all, &g);
    return sent_ns(m, &g, COLLECTIVE_ALL_GATHER, bytes);
}

int64_t cost_pieces_ns(const cost_model *m, const cost_group *link, double bytes)
{
    return goes_in_pieces(m, link) ? cost_tp_gather_ns(m, link->alike, bytes) : 0;
}

// Inputs of products are cast to fp8 before they are gathered, by software that does so: all that is gathered over tp
// alone is such an input but the head's.
static bool is_cast_first(const cost_model *m, const cost_group *g, op_collective op)
{
    return m->fp8 && m->profile->fp8_gathers && op == COLLECTIVE_ALL_GATHER &&
           g->axes == MESH_AXIS(AXIS_TP);
}

int64_t cost_message_ns(const cost_model *m, const cost_group *g, op_collective op, double bytes)
{
    if (g->ranks < 2) return 0;
    double each = goes_in_pieces(m, g) ? bytes / (double)g->alike : bytes;
    if (is_cast_first(m, g, op)) each /= 2.0; // of 16 bits
    return sent_ns(m, g, op, each) + cost_pieces_ns(m, g, bytes);
}

// ---- communications of a plan -----------------------------------------------------------------------

double cost_comm_bytes(const plan *p, const plan_comm *c, int64_t ranks)
{
    double count = 0.0;
    if (c->compressed) return (double)c->stream_bytes * (double)ranks;
    const bool pieces = c->op == COLLECTIVE_ALL_GATHER || c->op == COLLECTIVE_ALL_TO_ALL ||
                        c->op == COLLECTIVE_REDUCE_SCATTER;
    for (int32_t i = 0; i < c->items_count; i++) {
        const plan_comm_item *item = &p->items[c->items_begin + i];
        const double of_all =
            item->total > 0 ? (double)item->total : (double)item->count * (double)ranks;
        count += pieces ? of_all : (double)item->count;
    }
    return count * (double)dtype_bytes(c->type);
}

// Nobody on the way can add streams: a rank sends one to the owner of each piece, over whatever is between the two, and
// then owners give all the stream of their sums, which goes to a node once.
int64_t cost_compressed_ns(const cost_model *m, const cost_group *g, int64_t stream_bytes,
                           bool scatters)
{
    const double bytes = (double)stream_bytes * (double)g->ranks;
    const int64_t sent = cost_message_ns(m, g, COLLECTIVE_ALL_TO_ALL, bytes);
    return scatters ? sent : sent + cost_message_ns(m, g, COLLECTIVE_ALL_GATHER, bytes);
}

// ---- what passes through a rank, tensor by tensor ------------------------------------------------------

static bool reads(const op_program *program, op_list list, tensor_id t)
{
    for (int64_t i = 0; i < program->lists[list].count; i++) {
        for (int k = 0; k < OP_MAX_IN; k++) {
            if (program->lists[list].nodes[i].in[k] == t) return true;
        }
    }
    return false;
}

// Is a weight let go between its computing again and its gradient? Each later weight of the layer is used twice there,
// also those whose product the plan need not make again (stage3.py, _keep_for_later).
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
        if (found) return between >= (double)m->profile->reuse_distance;
    }
    return false;
}

// What one message with all tensors of a layer does not say of one for each of them.
static double passing_s(const cost_model *m, const cost_group *g, const plan *p, const plan_comm *c)
{
    enum { PASSES = 4 }; // over its bytes: zeros, a copy, the norm; or a division and a copy
    const bool gathers = c->op == COLLECTIVE_ALL_GATHER;
    const double launch = m->c->device.launch_s * m->profile->launch;
    const double one = pieces_latency(m, g) + launch;
    double s = 0.0;
    int64_t tensors = 0;
    for (int32_t i = 0; i < c->items_count; i++) {
        const plan_comm_item *item = &p->items[c->items_begin + i];
        const plan_tensor *t = plan_tensor_at(p, gathers ? item->out : item->in);
        if (!t->passes) continue;
        const double elements =
            item->total > 0 ? (double)item->total : (double)item->count * (double)g->ranks;
        const double bytes = elements * (double)dtype_bytes(c->type);
        const double pieces = (double)g->ranks * m->profile->piece_s +
                              1e-9 * (double)cost_memory_ns(m, (double)PASSES * bytes);
        s += pieces;
        if (tensors++ > 0) s += one;
        if (!gathers || !is_gathered_again(m, p, t->weight)) continue;
        s += (pieces + one + gather_s(m, g, bytes, false)) / 2.0; // of two, forward and backward
    }
    return s;
}

int64_t cost_comm_ns(const cost_model *m, const cost_group *g, const plan *p, const plan_comm *c)
{
    if (c->compressed) {
        return cost_compressed_ns(m, g, c->stream_bytes, c->op == COLLECTIVE_REDUCE_SCATTER);
    }
    const int64_t ns = cost_message_ns(m, g, c->op, cost_comm_bytes(p, c, g->ranks));
    const bool pieces = c->op == COLLECTIVE_ALL_GATHER || c->op == COLLECTIVE_REDUCE_SCATTER;
    if (m->profile->piece_s <= 0.0 || !pieces || g->ranks < 2) return ns;
    return ns + ns_of(passing_s(m, g, p, c));
}

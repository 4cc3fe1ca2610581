// Prices of collectives: the levels of the hierarchy that a group spans, and the bytes that each
// collective sends over each level.
//
//   level 0   devices of a node         n ranks in total; d of them in one unit of the level below
//   level 1   nodes of a rail, a leaf   to gather S bytes a unit fetches S (n - d)/n over the links
//   level 2   leaves of a pod  ...      of its d devices; levels work at the same time, and the
//                                       slowest decides
//
// Rings over all ranks also bring a unit the pieces of its own ranks, S (n - 1) / n
// (profile.rings): nearly twice as much between two nodes, hardly more between many. NCCL's trees
// avoid that for sums, but NCCL takes the ring for large ones (src/graph/tuning.cc of 2.8: 0.92 of
// the speed over 2 against over 2 (n - 1) / n), and its tests reach the capacity of a node's ports
// that way and no more.
//
// An all-to-all between nodes with equally many ranks, several each, goes in two levels, as
// comm/algo/two_level_exchange.c does: for each node in turn the ranks of a node gather inside it
// the pieces for the ranks with their number, then send them on. The two times add up.
//
// An all-reduce is a scatter and a gather. If the switches of a level add (SHARP, NVLS), each rank
// sends its bytes once. Steps: a ring visits all ranks; a tree or doubling takes the logarithm of
// their number at each level; the price takes the better one, as libraries do.
//
// Nothing on the way adds compressed streams (comm/compressed.h): each rank sends a stream to the
// owner of every piece, so d devices of a unit send d (n - d) / n S over their links, d times as
// much as a ring; then the streams of the sums are gathered. The time of encoding and decoding is
// left out.
#include "cost/cost_internal.h"

#include "op/op.h"

#include <math.h>
#include <string.h>

// Number of devices in one unit of a level; the outermost unit holds all.
static int64_t level_devices(const cluster *c, int32_t level)
{
    return level == c->level_count - 1 ? INT64_MAX : c->levels[level].devices;
}

// Number of units of this many devices that contain a member between positions `begin` and `end` of
// the members.
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

// ---- links -------------------------------------------------------------------------------------

// Two of the four devices of a mesh have a third of a device's links, because each link leads to
// one other device. In a hybrid cube mesh of eight, neighbours share one or two of six links, and
// groups of four have four each (NVIDIA, DGX-1 with Tesla V100 System Architecture, figure 4).
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

// Payload rate per device and direction while all devices send.
double cost_level_rate(const cost_model *m, const cost_group *g, int32_t level)
{
    const cluster_level *l = &m->c->levels[level];
    const double efficiency = l->efficiency > 0.0 ? l->efficiency : 1.0;
    const double taper = l->taper > 1.0 ? l->taper : 1.0;
    const double rate = l->bytes_s * cost_links_share(m->c, level, g->units[level]) * efficiency /
                        taper * m->profile->bandwidth[traffic_of(g->axes)];
    const double most = cost_habit_most_rate(m->profile, g);
    return most > 0.0 ? fmin(rate, most) : rate;
}

int64_t cost_units_below(const cost_group *g, int32_t level)
{
    return level > 0 ? g->inside[level - 1] : 1;
}

// ---- collectives -------------------------------------------------------------------------------

// Latency of one round of a ring over all ranks.
static double ring_latency(const cost_model *m, const cost_group *g)
{
    double s = 0.0;
    for (int32_t l = 0; l <= g->top; l++) {
        const double n = (double)g->ranks;
        const double hops = n / (double)cost_units_below(g, l) - n / (double)g->inside[l];
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

// Latency of a gather or a scatter.
double cost_pieces_latency(const cost_model *m, const cost_group *g)
{
    double s = 0.0;
    if (cost_habit_hops(m->profile, g, &s)) return s;
    return fmin(ring_latency(m, g), 2.0 * tree_latency(m, g));
}

// Time in which all ranks get all pieces, or the owners get the sums of theirs: S bytes in total.
double cost_gather_s(const cost_model *m, const cost_group *g, double bytes, bool sums)
{
    double slowest = 0.0;
    for (int32_t l = 0; l <= g->top; l++) {
        if (g->units[l] < 2) continue;
        const double n = (double)g->ranks, d = (double)cost_units_below(g, l);
        const bool added = sums && m->c->levels[l].reduces,
                   rings = cost_habits_of(m->profile)->rings && !added;
        double s = bytes * (n - (rings ? 1.0 : d)) / n / (d * cost_level_rate(m, g, l));
        if (added) s /= 2.0; // the gather makes the other half of an all-reduce
        slowest = fmax(slowest, s);
    }
    return slowest;
}

// Time of the pieces on the slowest of the levels from `first` on, if all of them work at once;
// `outside` bytes per byte cross between nodes.
static double pieces_s(const cost_model *m, const cost_group *g, int32_t first, double bytes,
                       double outside)
{
    double slowest = 0.0;
    for (int32_t l = first; l <= g->top; l++) {
        if (g->units[l] < 2) continue;
        const double n = (double)g->ranks, d = (double)cost_units_below(g, l);
        const double sent = bytes * (l > 0 ? outside : 1.0);
        slowest = fmax(slowest, sent * (n - d) / n / cost_level_rate(m, g, l));
    }
    return slowest;
}

// Time of an all-to-all that goes inside the nodes first.
static double two_level_s(const cost_model *m, const cost_group *g, double bytes, double outside)
{
    enum { INSIDE = 2 }; // operations inside a node for each other node: counts, then rows
    const double here = (double)g->inside[0], nodes = (double)g->ranks / here;
    return bytes * (here - 1.0) / here / cost_level_rate(m, g, 0) +
           pieces_s(m, g, 1, bytes, outside) + nodes * INSIDE * m->c->levels[0].latency_s +
           (nodes - 1.0) * m->c->levels[g->top].latency_s;
}

static double all_to_all_s(const cost_model *m, const cost_group *g, double bytes)
{
    enum { AT_ONCE = 8 }; // transfers that a device has in flight
    double slowest = 0.0, outside = 1.0;
    if (traffic_of(g->axes) == TRAFFIC_EP) {
        const cost_exchange x = cost_habit_exchange(m, g, bytes);
        bytes = x.bytes;
        outside = x.outside;
        slowest = x.least_s;
    }
    if (g->top > 0 && g->inside[0] > 1 && g->ranks % g->inside[0] == 0 &&
        !cost_habits_of(m->profile)->levels_at_once) {
        return fmax(slowest, two_level_s(m, g, bytes, outside));
    }
    const double rounds = ceil((double)(g->ranks - 1) / AT_ONCE);
    return fmax(slowest, pieces_s(m, g, 0, bytes, outside)) +
           rounds * m->c->levels[g->top].latency_s;
}

int64_t cost_same_rows(const op_model *m, int64_t tp)
{
    const op_program *first = m->programs[m->layers[0].program];
    const bool whole = first->output_count > 0 &&
                       first->tensors[first->outputs[0]].dims[0].symbol == EXTENT_TOKENS;
    return whole ? tp : 0;
}

static double collective_s(const cost_model *m, const cost_group *g, op_collective op, double bytes)
{
    const cluster_level *top = &m->c->levels[g->top];
    const double latency = fmin(ring_latency(m, g), 2.0 * tree_latency(m, g));
    switch (op) {
    case COLLECTIVE_ALL_REDUCE:
        return 2.0 * cost_gather_s(m, g, bytes, true) + 2.0 * latency;
    case COLLECTIVE_REDUCE_SCATTER:
    case COLLECTIVE_ALL_GATHER:
        return cost_gather_s(m, g, bytes, false) + cost_pieces_latency(m, g);
    case COLLECTIVE_ALL_TO_ALL:
    case COLLECTIVE_ALL_TO_ALLV:
        return all_to_all_s(m, g, bytes);
    case COLLECTIVE_BROADCAST:
        return bytes / ((double)cost_units_below(g, g->top) * cost_level_rate(m, g, g->top)) +
               tree_latency(m, g);
    case COLLECTIVE_SEND:
    case COLLECTIVE_RECEIVE:
    case COLLECTIVE_REDUCE:
    case COLLECTIVE_GATHER:
    case COLLECTIVE_SCATTER:
    case COLLECTIVE_BARRIER:
    case COLLECTIVE_COUNT:
    default: // plans do not use the others: only the bytes count
        return bytes / cost_level_rate(m, g, g->top) + top->latency_s;
    }
}

int64_t cost_sent_ns(const cost_model *m, const cost_group *g, op_collective op, double bytes)
{
    return cost_ns_of(collective_s(m, g, op, bytes) + m->c->device.launch_s * m->profile->launch);
}

int64_t cost_tp_gather_ns(const cost_model *m, int64_t tp, double bytes)
{
    const plan_mesh mesh = {.size = {[AXIS_TP] = (int32_t)tp}};
    const plan_group all = plan_group_of(&mesh, MESH_AXIS(AXIS_TP), GROUP_INLINE);
    cost_group g;
    cost_group_of(m->c, &mesh, &all, &g);
    return cost_sent_ns(m, &g, COLLECTIVE_ALL_GATHER, bytes);
}

int64_t cost_collective_ns(const cost_model *m, const cost_group *g, op_collective op, double bytes)
{
    if (g->ranks < 2) return 0;
    return cost_sent_ns(m, g, op, cost_habit_sent_bytes(m, g, op, bytes)) +
           cost_pieces_ns(m, g, bytes);
}

// ---- communications of a plan ------------------------------------------------------------------

double cost_comm_bytes(const plan *p, const plan_comm *c, int64_t ranks)
{
    double count = 0.0;
    if (c->compressed) return (double)c->stream_bytes * (double)ranks;
    if (c->op == COLLECTIVE_ALL_TO_ALLV) return (double)c->likely * (double)dtype_bytes(c->type);
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

// Switches and ring neighbours cannot add streams: a rank sends one to the owner of each piece over
// all levels between the two; then the owners send the stream of their sums to all, which crosses
// into a node once.
int64_t cost_compressed_ns(const cost_model *m, const cost_group *g, int64_t stream_bytes,
                           bool scatters)
{
    const double bytes = (double)stream_bytes * (double)g->ranks;
    const int64_t sent = cost_collective_ns(m, g, COLLECTIVE_ALL_TO_ALL, bytes);
    return scatters ? sent : sent + cost_collective_ns(m, g, COLLECTIVE_ALL_GATHER, bytes);
}

int64_t cost_comm_ns(const cost_model *m, const cost_group *g, const plan *p, const plan_comm *c)
{
    if (c->compressed) {
        return cost_compressed_ns(m, g, c->stream_bytes, c->op == COLLECTIVE_REDUCE_SCATTER);
    }
    return cost_collective_ns(m, g, c->op, cost_comm_bytes(p, c, g->ranks)) +
           cost_habit_gathered_ns(m, g, p, c);
}

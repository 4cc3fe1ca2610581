// The mesh of ranks and its groups: arithmetic on coordinates.
#include "plan/mesh.h"

#include <stdio.h>

// From the outermost on.
static const mesh_axis order[] = {AXIS_PP, AXIS_DP, AXIS_CP, AXIS_TP, AXIS_EP};

int64_t plan_mesh_ranks(const plan_mesh *m)
{
    int64_t ranks = 1;
    for (int i = 0; i < COUNT_OF(order); i++) ranks *= plan_mesh_size(m, order[i]);
    return ranks;
}

int64_t plan_mesh_rank(const plan_mesh *m)
{
    int64_t rank = 0;
    for (int i = 0; i < COUNT_OF(order); i++) {
        rank = rank * plan_mesh_size(m, order[i]) + m->at[order[i]];
    }
    return rank;
}

plan_mesh plan_mesh_from(const plan_mesh *m, int64_t rank)
{
    plan_mesh out = *m;
    for (int i = COUNT_OF(order) - 1; i >= 0; i--) {
        const int32_t size = plan_mesh_size(m, order[i]);
        out.at[order[i]] = (int32_t)(rank % size);
        rank /= size;
    }
    return out;
}

plan_group plan_group_of(const plan_mesh *m, uint32_t axes, group_use use)
{
    plan_group g = {.from = -1, .to = -1, .use = use};
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        if (plan_mesh_size(m, (mesh_axis)axis) > 1) g.axes |= axes & MESH_AXIS(axis);
    }
    const int32_t dp = plan_mesh_size(m, AXIS_DP), inside = plan_zero_ways(m);
    if ((axes & MESH_DP_INSIDE) != 0 && inside > 1) {
        g.axes |= inside == dp ? MESH_AXIS(AXIS_DP) : MESH_DP_INSIDE;
    }
    if ((axes & MESH_DP_ACROSS) != 0 && inside < dp) {
        g.axes |= inside == 1 ? MESH_AXIS(AXIS_DP) : MESH_DP_ACROSS;
    }
    const int32_t cp = plan_mesh_size(m, AXIS_CP), heads = plan_mesh_heads(m);
    if ((axes & MESH_CP_HEADS) != 0 && heads > 1) {
        g.axes |= heads == cp ? MESH_AXIS(AXIS_CP) : MESH_CP_HEADS;
    }
    if ((axes & MESH_CP_REST) != 0 && heads < cp) {
        g.axes |= heads == 1 ? MESH_AXIS(AXIS_CP) : MESH_CP_REST;
    }
    if (axes == MESH_AXIS(AXIS_EP) && plan_mesh_ep(m) > 1) g.axes |= axes;
    if ((axes & MESH_DP_ALIKE) != 0 && plan_expert_ways(m) > 1) {
        g.axes |= plan_ep_dp(m) == 1 ? MESH_AXIS(AXIS_DP) : MESH_DP_ALIKE;
    }
    if ((axes & MESH_CP_ALIKE) != 0 && plan_ep_cp(m) < cp) {
        g.axes |= plan_ep_cp(m) == 1 ? MESH_AXIS(AXIS_CP) : MESH_CP_ALIKE;
    }
    return g;
}

plan_group plan_group_tp(const plan_mesh *m, int32_t inside, int32_t across, group_use use)
{
    const int32_t tp = plan_mesh_size(m, AXIS_TP), copies = inside > 0 ? inside : across;
    const bool is_all = copies == 0 || copies == (inside > 0 ? tp : 1);
    const bool is_one = copies > 0 && copies == (inside > 0 ? 1 : tp);
    plan_group g = plan_group_of(m, is_one ? 0 : MESH_AXIS(AXIS_TP), use);
    ASSERT(inside == 0 || across == 0);
    if (is_all || is_one) return g;
    ASSERT(tp % copies == 0);
    g.axes = inside > 0 ? MESH_TP_INSIDE : MESH_TP_ACROSS;
    g.copies = copies;
    return g;
}

plan_group plan_group_stages(int32_t from, int32_t to, group_use use)
{
    return (plan_group){.axes = MESH_AXIS(AXIS_PP), .from = from, .to = to, .use = use};
}

plan_group plan_group_pair(const plan_mesh *m, int32_t a, int32_t b, uint32_t axes)
{
    plan_group g = plan_group_of(m, axes | MESH_AXIS(AXIS_PP), GROUP_PAIR);
    g.from = a < b ? a : b;
    g.to = a < b ? b : a;
    return g;
}

bool plan_group_is_stages(const plan_group *g)
{
    return g->from >= 0;
}

bool plan_group_equal(const plan_group *a, const plan_group *b)
{
    return plan_group_compare(a, b) == 0;
}

int plan_group_compare(const plan_group *a, const plan_group *b)
{
    if (a->use != b->use) return a->use < b->use ? -1 : 1;
    if (a->axes != b->axes) return a->axes < b->axes ? -1 : 1;
    if (a->from != b->from) return a->from < b->from ? -1 : 1;
    if (a->to != b->to) return a->to < b->to ? -1 : 1;
    if (a->copies != b->copies) return a->copies < b->copies ? -1 : 1;
    return 0;
}

// A mesh of the group alone: its axes, of two stages both.
static plan_mesh inner_mesh(const plan_mesh *m, const plan_group *g)
{
    plan_mesh inner = {.size = {0}};
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        if ((g->axes & MESH_AXIS(axis)) == 0) continue;
        inner.size[axis] = plan_mesh_size(m, (mesh_axis)axis);
        inner.at[axis] = m->at[axis];
    }
    const int32_t inside = plan_zero_ways(m);
    if ((g->axes & MESH_DP_INSIDE) != 0) {
        inner.size[AXIS_DP] = inside;
        inner.at[AXIS_DP] = m->at[AXIS_DP] % inside;
    } else if ((g->axes & MESH_DP_ACROSS) != 0) {
        inner.size[AXIS_DP] = plan_mesh_size(m, AXIS_DP) / inside;
        inner.at[AXIS_DP] = m->at[AXIS_DP] / inside;
    }
    const int32_t heads = plan_mesh_heads(m);
    if ((g->axes & MESH_CP_HEADS) != 0) {
        inner.size[AXIS_CP] = heads;
        inner.at[AXIS_CP] = m->at[AXIS_CP] % heads;
    } else if ((g->axes & MESH_CP_REST) != 0) {
        inner.size[AXIS_CP] = plan_mesh_size(m, AXIS_CP) / heads;
        inner.at[AXIS_CP] = m->at[AXIS_CP] / heads;
    }
    const int32_t of_dp = plan_ep_dp(m), of_cp = plan_ep_cp(m);
    if ((g->axes & MESH_AXIS(AXIS_EP)) != 0) {
        inner.size[AXIS_DP] = of_dp;
        inner.at[AXIS_DP] = m->at[AXIS_DP] % of_dp;
        inner.size[AXIS_CP] = of_cp;
        inner.at[AXIS_CP] = m->at[AXIS_CP] % of_cp;
    }
    if ((g->axes & MESH_DP_ALIKE) != 0) {
        inner.size[AXIS_DP] = plan_mesh_size(m, AXIS_DP) / of_dp;
        inner.at[AXIS_DP] = m->at[AXIS_DP] / of_dp;
    }
    if ((g->axes & MESH_CP_ALIKE) != 0) {
        inner.size[AXIS_CP] = plan_mesh_size(m, AXIS_CP) / of_cp;
        inner.at[AXIS_CP] = m->at[AXIS_CP] / of_cp;
    }
    if ((g->axes & MESH_TP_INSIDE) != 0) {
        inner.size[AXIS_TP] = g->copies;
        inner.at[AXIS_TP] = m->at[AXIS_TP] % g->copies;
    } else if ((g->axes & MESH_TP_ACROSS) != 0) {
        inner.size[AXIS_TP] = plan_mesh_size(m, AXIS_TP) / g->copies;
        inner.at[AXIS_TP] = m->at[AXIS_TP] / g->copies;
    }
    if (!plan_group_is_stages(g)) return inner;
    inner.size[AXIS_PP] = 2;
    inner.at[AXIS_PP] = m->at[AXIS_PP] == (g->from < g->to ? g->from : g->to) ? 0 : 1;
    return inner;
}

int64_t plan_group_size(const plan_mesh *m, const plan_group *g)
{
    const plan_mesh inner = inner_mesh(m, g);
    return plan_mesh_ranks(&inner);
}

int64_t plan_group_member(const plan_mesh *m, const plan_group *g, int64_t place)
{
    plan_mesh inner = inner_mesh(m, g), other = *m;
    inner = plan_mesh_from(&inner, place);
    const int32_t inside = plan_zero_ways(m), dp = m->at[AXIS_DP];
    const int32_t heads = plan_mesh_heads(m), cp = m->at[AXIS_CP], tp = m->at[AXIS_TP];
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        if ((g->axes & MESH_AXIS(axis)) != 0) other.at[axis] = inner.at[axis];
    }
    if ((g->axes & MESH_DP_INSIDE) != 0) {
        other.at[AXIS_DP] = dp / inside * inside + inner.at[AXIS_DP];
    } else if ((g->axes & MESH_DP_ACROSS) != 0) {
        other.at[AXIS_DP] = inner.at[AXIS_DP] * inside + dp % inside;
    }
    if ((g->axes & MESH_CP_HEADS) != 0) {
        other.at[AXIS_CP] = cp / heads * heads + inner.at[AXIS_CP];
    } else if ((g->axes & MESH_CP_REST) != 0) {
        other.at[AXIS_CP] = inner.at[AXIS_CP] * heads + cp % heads;
    }
    const int32_t of_dp = plan_ep_dp(m), of_cp = plan_ep_cp(m);
    if ((g->axes & MESH_AXIS(AXIS_EP)) != 0) {
        other.at[AXIS_DP] = dp / of_dp * of_dp + inner.at[AXIS_DP];
        other.at[AXIS_CP] = cp / of_cp * of_cp + inner.at[AXIS_CP];
    }
    if ((g->axes & MESH_DP_ALIKE) != 0) {
        other.at[AXIS_DP] = inner.at[AXIS_DP] * of_dp + dp % of_dp;
    }
    if ((g->axes & MESH_CP_ALIKE) != 0) {
        other.at[AXIS_CP] = inner.at[AXIS_CP] * of_cp + cp % of_cp;
    }
    if ((g->axes & MESH_TP_INSIDE) != 0) {
        other.at[AXIS_TP] = tp / g->copies * g->copies + inner.at[AXIS_TP];
    } else if ((g->axes & MESH_TP_ACROSS) != 0) {
        other.at[AXIS_TP] = inner.at[AXIS_TP] * g->copies + tp % g->copies;
    }
    if (plan_group_is_stages(g)) {
        other.at[AXIS_PP] = (inner.at[AXIS_PP] == 0) == (g->from < g->to) ? g->from : g->to;
    }
    return plan_mesh_rank(&other);
}

void plan_group_members(const plan_mesh *m, const plan_group *g, int32_t *members)
{
    const int64_t count = plan_group_size(m, g);
    for (int64_t i = 0; i < count; i++) members[i] = (int32_t)plan_group_member(m, g, i);
}

int32_t plan_group_place(const plan_mesh *m, const plan_group *g)
{
    const plan_mesh inner = inner_mesh(m, g);
    return (int32_t)plan_mesh_rank(&inner);
}

void plan_group_name(const plan_group *g, char out[PLAN_GROUP_NAME_BYTES])
{
    static const char *const names[AXIS_COUNT] = {
        [AXIS_PP] = "pp", [AXIS_DP] = "dp", [AXIS_CP] = "cp", [AXIS_TP] = "tp", [AXIS_EP] = "ep"};
    if (plan_group_is_stages(g)) {
        (void)snprintf(out, PLAN_GROUP_NAME_BYTES, "pp %d%s%d%s%s", (int)g->from,
                       g->use == GROUP_PAIR ? "=" : ">", (int)g->to,
                       g->use == GROUP_LINK_BACKWARD ? " back" : "",
                       (g->axes & MESH_AXIS(AXIS_DP)) != 0 ? "+dp" : "");
        return;
    }
    static const struct {
        uint32_t bit;
        mesh_axis of;
        const char *name;
    } halves[] = {{MESH_DP_INSIDE, AXIS_DP, " inside"}, {MESH_DP_ACROSS, AXIS_DP, " across"},
                  {MESH_CP_HEADS, AXIS_CP, " heads"},   {MESH_CP_REST, AXIS_CP, " rest"},
                  {MESH_TP_INSIDE, AXIS_TP, " inside"}, {MESH_TP_ACROSS, AXIS_TP, " across"},
                  {MESH_DP_ALIKE, AXIS_DP, " alike"},   {MESH_CP_ALIKE, AXIS_CP, " alike"}};
    int at = 0;
    out[0] = '\0';
    for (int i = 0; i < COUNT_OF(order); i++) {
        const char *half = "";
        bool is_there = (g->axes & MESH_AXIS(order[i])) != 0;
        for (int k = 0; k < COUNT_OF(halves); k++) {
            if (halves[k].of != order[i] || (g->axes & halves[k].bit) == 0) continue;
            is_there = true;
            half = halves[k].name;
        }
        if (!is_there) continue;
        at += snprintf(out + at, (size_t)(PLAN_GROUP_NAME_BYTES - at), "%s%s%s", at > 0 ? "+" : "",
                       names[order[i]], half);
    }
    if (g->use == GROUP_INLINE || g->use == GROUP_RING) {
        (void)snprintf(out + at, (size_t)(PLAN_GROUP_NAME_BYTES - at), "%s",
                       g->use == GROUP_RING ? " ring" : " inline");
    }
}

// ---- what a message is for -----------------------------------------------------------------------
traffic traffic_of(uint32_t axes)
{
    const uint32_t tp = MESH_AXIS(AXIS_TP) | MESH_TP_INSIDE | MESH_TP_ACROSS; // all of tp or some
    if (axes != 0 && (axes & ~tp) == 0) return TRAFFIC_TP;
    if (axes == MESH_AXIS(AXIS_EP)) return TRAFFIC_EP;
    if (plan_axes_are_cp(axes)) return TRAFFIC_CP;
    return axes == MESH_AXIS(AXIS_PP) ? TRAFFIC_PP : TRAFFIC_DP;
}

const char *traffic_name(traffic t)
{
    static const char *const names[TRAFFIC_COUNT] = {"tp", "cp", "dp", "pp", "ep"};
    ASSERT(t < TRAFFIC_COUNT);
    return names[t];
}

// The mesh of ranks and its groups: arithmetic on coordinates.
#include "plan/mesh.h"

#include <stdio.h>

// Axes, the outermost first.
static const mesh_axis order[] = {AXIS_PP, AXIS_DP, AXIS_CP, AXIS_TP, AXIS_EP};
_Static_assert(COUNT_OF(order) == AXIS_COUNT, "each axis once");

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

// Returns the bit for `count` of the `size` ranks of an axis: that of the part, that of the axis if
// they are all, or 0 if there is only one.
static uint32_t part_bit(uint32_t part, mesh_axis axis, int32_t count, int32_t size)
{
    if (count <= 1) return 0;
    return count == size ? MESH_AXIS(axis) : part;
}

plan_group plan_group_of(const plan_mesh *m, uint32_t axes, group_use use)
{
    const int32_t dp = plan_mesh_size(m, AXIS_DP), cp = plan_mesh_size(m, AXIS_CP);
    const int32_t tp = plan_mesh_size(m, AXIS_TP), heads = plan_mesh_heads(m);
    const struct {
        uint32_t part;
        mesh_axis of;
        int32_t count, size;
    } parts[] = {
        {MESH_DP_INSIDE, AXIS_DP, plan_zero_dp(m), dp},
        {MESH_DP_ACROSS, AXIS_DP, dp / plan_zero_dp(m), dp},
        {MESH_CP_HEADS, AXIS_CP, heads, cp},
        {MESH_CP_REST, AXIS_CP, cp / heads, cp},
        {MESH_DP_SAME, AXIS_DP, dp / plan_ep_dp(m), dp},
        {MESH_CP_SAME, AXIS_CP, cp / plan_ep_cp(m), cp},
        {MESH_TP_SAME, AXIS_TP, plan_expert_tp(m) / plan_ep_tp(m), tp},
    };
    plan_group g = {.from = -1, .to = -1, .use = use};
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        if (plan_mesh_size(m, (mesh_axis)axis) > 1) g.axes |= axes & MESH_AXIS(axis);
    }
    for (int i = 0; i < COUNT_OF(parts); i++) {
        if ((axes & parts[i].part) == 0) continue;
        g.axes |= part_bit(parts[i].part, parts[i].of, parts[i].count, parts[i].size);
    }
    if (axes == MESH_AXIS(AXIS_EP) && plan_mesh_ep(m) > 1) g.axes |= axes;
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

// Coordinates along one axis: `count` of them from `first` on, `step` apart.
typedef struct axis_part {
    int32_t first, count, step;
} axis_part;

// Return the `count` consecutive coordinates that contain `at`, and those with the same place among
// other such `count`.
static axis_part part_inside(int32_t at, int32_t count)
{
    return (axis_part){at / count * count, count, 1};
}

static axis_part part_across(int32_t at, int32_t size, int32_t count)
{
    return (axis_part){at % count, size / count, count};
}

static axis_part part_of(const plan_mesh *m, const plan_group *g, mesh_axis axis)
{
    const int32_t size = plan_mesh_size(m, axis), at = m->at[axis];
    const struct {
        mesh_axis of;
        uint32_t inside, across;
        int32_t count;
    } halves[] = {{AXIS_DP, MESH_DP_INSIDE, MESH_DP_ACROSS, plan_zero_dp(m)},
                  {AXIS_CP, MESH_CP_HEADS, MESH_CP_REST, plan_mesh_heads(m)},
                  {AXIS_TP, MESH_TP_INSIDE, MESH_TP_ACROSS, g->copies},
                  {AXIS_DP, MESH_AXIS(AXIS_EP), MESH_DP_SAME, plan_ep_dp(m)},
                  {AXIS_CP, MESH_AXIS(AXIS_EP), MESH_CP_SAME, plan_ep_cp(m)},
                  {AXIS_TP, MESH_AXIS(AXIS_EP), MESH_TP_SAME, plan_ep_tp(m)}};
    if (axis == AXIS_PP && plan_group_is_stages(g)) {
        const int32_t lower = g->from < g->to ? g->from : g->to;
        return (axis_part){lower, 2, g->from + g->to - 2 * lower};
    }
    for (int i = 0; i < COUNT_OF(halves); i++) {
        if (halves[i].of != axis) continue;
        if ((g->axes & halves[i].inside) != 0) return part_inside(at, halves[i].count);
        if ((g->axes & halves[i].across) != 0) return part_across(at, size, halves[i].count);
    }
    return (g->axes & MESH_AXIS(axis)) != 0 ? (axis_part){0, size, 1} : (axis_part){at, 1, 1};
}

plan_members plan_members_of(const plan_mesh *m, const plan_group *g)
{
    plan_members out = {.first = 0};
    int64_t width = 1;
    for (int i = AXIS_COUNT - 1; i >= 0; i--) {
        const axis_part part = part_of(m, g, order[i]);
        out.first += part.first * width;
        out.count[i] = part.count;
        out.stride[i] = part.step * width;
        width *= plan_mesh_size(m, order[i]);
    }
    return out;
}

int64_t plan_members_count(const plan_members *s)
{
    int64_t count = 1;
    for (int i = 0; i < AXIS_COUNT; i++) count *= s->count[i];
    return count;
}

int64_t plan_members_at(const plan_members *s, int64_t place)
{
    int64_t rank = s->first;
    for (int i = AXIS_COUNT - 1; i >= 0; i--) {
        rank += place % s->count[i] * s->stride[i];
        place /= s->count[i];
    }
    return rank;
}

int64_t plan_members_below(const plan_members *s, int64_t rank)
{
    int64_t rest = rank - s->first, each = plan_members_count(s), below = 0;
    for (int i = 0; i < AXIS_COUNT && rest > 0; i++) {
        each /= s->count[i];
        const int64_t whole = min_i64(rest / s->stride[i], s->count[i]);
        below += whole * each;
        if (whole == s->count[i]) return below; // it is above all of them
        rest -= whole * s->stride[i];
    }
    return rest > 0 ? below + 1 : below;
}

int64_t plan_group_size(const plan_mesh *m, const plan_group *g)
{
    const plan_members s = plan_members_of(m, g);
    return plan_members_count(&s);
}

void plan_group_members(const plan_mesh *m, const plan_group *g, int32_t *members)
{
    const plan_members s = plan_members_of(m, g);
    const int64_t count = plan_members_count(&s);
    for (int64_t i = 0; i < count; i++) members[i] = (int32_t)plan_members_at(&s, i);
}

int64_t plan_group_member(const plan_mesh *m, const plan_group *g, int64_t place)
{
    const plan_members s = plan_members_of(m, g);
    return plan_members_at(&s, place);
}

int32_t plan_group_place(const plan_mesh *m, const plan_group *g)
{
    const plan_members s = plan_members_of(m, g);
    return (int32_t)plan_members_below(&s, plan_mesh_rank(m));
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
                  {MESH_DP_SAME, AXIS_DP, " same"},     {MESH_CP_SAME, AXIS_CP, " same"},
                  {MESH_TP_SAME, AXIS_TP, " same"}};
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

// ---- traffic ------------------------------------------------------------------------------------
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

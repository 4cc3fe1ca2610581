// The mesh of ranks, and the groups of it that do things together. Pure.
//
// Ranks stand on a grid with an axis for each kind of parallelism, tp innermost (its ranks talk
// most, so
// they should be neighbours):  rank = ((pp * DP + dp) * CP + cp) * TP + tp.
#ifndef PLAN_MESH_H
#define PLAN_MESH_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

// The ranks of a job, and which of them a plan is for.
typedef struct plan_mesh {
    int32_t size[AXIS_COUNT]; // 0 is read as 1
    int32_t at[AXIS_COUNT];   // this rank's coordinate on the axis
    int32_t zero_group;       // ranks of dp, side by side, that ZeRO cuts over with cp's; 0: all
    int32_t cp_heads;         // ranks of cp, side by side, that deal heads out among them; 0: 1
    int32_t ep;               // ranks, side by side, that share a layer's experts among them; 0: 1
    bool whole_experts; // tp cuts no expert: its ranks share them too, before those of cp and dp
} plan_mesh;
static inline int32_t plan_mesh_size(const plan_mesh *m, mesh_axis axis)
{
    return m->size[axis] > 0 ? m->size[axis] : 1;
}
// The ranks of dp that share one copy of what ZeRO cuts; with those of cp, how many, and which of
// them this one is.
static inline int32_t plan_zero_dp(const plan_mesh *m)
{
    return m->zero_group > 0 ? m->zero_group : plan_mesh_size(m, AXIS_DP);
}
static inline int32_t plan_zero_ways(const plan_mesh *m)
{
    return plan_zero_dp(m) * plan_mesh_size(m, AXIS_CP);
}
static inline int32_t plan_zero_place(const plan_mesh *m)
{
    return m->at[AXIS_DP] % plan_zero_dp(m) * plan_mesh_size(m, AXIS_CP) + m->at[AXIS_CP];
}
// Of the ranks of dp and cp that hold the same rows, all of a weight or pieces of it: is this the
// first?
static inline bool plan_zero_is_first(const plan_mesh *m, bool is_cut)
{
    if (is_cut) return m->at[AXIS_DP] < plan_zero_dp(m);
    return m->at[AXIS_DP] == 0 && m->at[AXIS_CP] == 0;
}
static inline int32_t plan_mesh_heads(const plan_mesh *m)
{
    return m->cp_heads > 0 ? m->cp_heads : 1;
}
static inline int32_t plan_mesh_ep(const plan_mesh *m)
{
    return m->ep > 0 ? m->ep : 1;
}
// Ranks of tp that have other rows, and may have other experts: all of it where it cuts no expert.
static inline int32_t plan_expert_tp(const plan_mesh *m)
{
    return m->whole_experts ? plan_mesh_size(m, AXIS_TP) : 1;
}
// The ranks that share experts: along that, along cp where it has too few, and along dp where both
// have.
static inline int32_t plan_ep_tp(const plan_mesh *m)
{
    const int32_t tp = plan_expert_tp(m), ep = plan_mesh_ep(m);
    return ep < tp ? ep : tp;
}
static inline int32_t plan_ep_cp(const plan_mesh *m)
{
    const int32_t cp = plan_mesh_size(m, AXIS_CP), rest = plan_mesh_ep(m) / plan_ep_tp(m);
    return rest < cp ? rest : cp;
}
static inline int32_t plan_ep_dp(const plan_mesh *m)
{
    return plan_mesh_ep(m) / plan_ep_tp(m) / plan_ep_cp(m);
}
// Do they fall so, by whole rows of ranks? ep is a divisor of tp, or tp times one of cp, or both
// times one of dp.
static inline bool plan_ep_fits(const plan_mesh *m)
{
    const int32_t tp = plan_ep_tp(m), cp = plan_ep_cp(m), dp = plan_ep_dp(m);
    return tp * cp * dp == plan_mesh_ep(m) && plan_expert_tp(m) % tp == 0 &&
           plan_mesh_size(m, AXIS_CP) % cp == 0 && plan_mesh_size(m, AXIS_DP) % dp == 0;
}
// Are weights of experts held by other ranks than those of the rest of a layer?
static inline bool plan_experts_apart(const plan_mesh *m)
{
    return plan_mesh_ep(m) > 1 || plan_expert_tp(m) > 1;
}
// plan_zero_ways and plan_zero_place of such a weight: among the ranks that have the same experts.
static inline int32_t plan_expert_ways(const plan_mesh *m)
{
    return plan_mesh_size(m, AXIS_DP) * plan_mesh_size(m, AXIS_CP) * plan_expert_tp(m) /
           plan_mesh_ep(m);
}
static inline int32_t plan_expert_place(const plan_mesh *m)
{
    const int32_t cp = plan_mesh_size(m, AXIS_CP) / plan_ep_cp(m);
    const int32_t tp = plan_expert_tp(m) / plan_ep_tp(m);
    const int32_t of_data = m->at[AXIS_DP] / plan_ep_dp(m) * cp + m->at[AXIS_CP] / plan_ep_cp(m);
    return m->whole_experts ? of_data * tp + m->at[AXIS_TP] / plan_ep_tp(m) : of_data;
}
int64_t plan_mesh_ranks(const plan_mesh *m);
int64_t plan_mesh_rank(const plan_mesh *m); // of the job
// The same mesh seen from another rank.
plan_mesh plan_mesh_from(const plan_mesh *m, int64_t rank);

#define MESH_AXIS(axis) (UINT32_C(1) << (axis))
// Of ranks that have other rows, and so other terms of a gradient.
#define MESH_DATA (MESH_AXIS(AXIS_DP) | MESH_AXIS(AXIS_CP))
#define MESH_ALL  ((UINT32_C(1) << AXIS_COUNT) - 1)
// Of dp: those of one copy of what ZeRO cuts, and those that hold the same piece in every copy.
#define MESH_DP_INSIDE (UINT32_C(1) << AXIS_COUNT)
#define MESH_DP_ACROSS (UINT32_C(2) << AXIS_COUNT)
#define MESH_ZERO      (MESH_DP_INSIDE | MESH_AXIS(AXIS_CP)) // that copy's ranks of cp, too
// Of cp: the ranks that deal heads out, and those that have the same heads of other positions.
#define MESH_CP_HEADS (UINT32_C(4) << AXIS_COUNT)
#define MESH_CP_REST  (UINT32_C(8) << AXIS_COUNT)
// Of cp alone, all of it or a half.
static inline bool plan_axes_are_cp(uint32_t axes)
{
    const uint32_t cp = MESH_AXIS(AXIS_CP) | MESH_CP_HEADS | MESH_CP_REST;
    return axes != 0 && (axes & ~cp) == 0;
}
// Of tp: `copies` ranks side by side, and those of which each has its place among another such few.
#define MESH_TP_INSIDE (UINT32_C(16) << AXIS_COUNT)
#define MESH_TP_ACROSS (UINT32_C(32) << AXIS_COUNT)
// What a message is for, by the axes of its group.
typedef enum traffic {
    TRAFFIC_TP,
    TRAFFIC_CP,
    TRAFFIC_DP,
    TRAFFIC_PP,
    TRAFFIC_EP,
    TRAFFIC_COUNT
} traffic;
traffic traffic_of(uint32_t axes);
const char *traffic_name(traffic t);
// Of dp, cp and tp: the ranks that have the same experts. Those that share a layer's are
// MESH_AXIS(AXIS_EP) alone.
#define MESH_DP_ALIKE    (UINT32_C(64) << AXIS_COUNT)
#define MESH_CP_ALIKE    (UINT32_C(128) << AXIS_COUNT)
#define MESH_TP_ALIKE    (UINT32_C(256) << AXIS_COUNT)
#define MESH_EXPERT_DATA (MESH_DP_ALIKE | MESH_CP_ALIKE | MESH_TP_ALIKE)

// What a group's operations run on. Operations of one group are in one order, so what stands on the
// compute stream and what goes on beside it are groups apart, even of the same ranks.
typedef enum group_use {
    GROUP_ASIDE,
    GROUP_INLINE,
    GROUP_RING, // aside too: what a ring hands on while it works with what is here
    GROUP_LINK_FORWARD,
    GROUP_LINK_BACKWARD,
    GROUP_PAIR
} group_use;

// Ranks that do things together: those that differ from this one along `axes` only; or two stages
// of pp, `from` and `to`: a link, which carries activations (forward) or their gradients (backward)
// one way, or the pair that holds the same weights.
typedef struct plan_group {
    uint32_t
        axes; // bits of mesh_axis, or of a part of dp, cp or tp, of those that are longer than 1
    int32_t from, to; // coordinates on the pp axis; -1: not two stages
    group_use use;
    int32_t copies; // MESH_TP_INSIDE, MESH_TP_ACROSS
} plan_group;

// A group along these axes; those of size 1 are dropped.
plan_group plan_group_of(const plan_mesh *m, uint32_t axes, group_use use);
// Of tp: `inside` ranks side by side, or those that are `across` apart; both 0: all.
plan_group plan_group_tp(const plan_mesh *m, int32_t inside, int32_t across, group_use use);
plan_group plan_group_stages(int32_t from, int32_t to, group_use use);
// Those that hold the same weights: stages a and b, and all ranks along `axes` with them.
plan_group plan_group_pair(const plan_mesh *m, int32_t a, int32_t b, uint32_t axes);
bool plan_group_is_stages(const plan_group *g); // of two of them, or a pair
bool plan_group_equal(const plan_group *a, const plan_group *b);
// One order of groups for all ranks: in which they are made.
int plan_group_compare(const plan_group *a, const plan_group *b);
int64_t plan_group_size(const plan_mesh *m, const plan_group *g);
// Ranks of the job, ascending: plan_group_size of them. For a rank that is in it.
void plan_group_members(const plan_mesh *m, const plan_group *g, int32_t *members);
// One of them, without the others.
int64_t plan_group_member(const plan_mesh *m, const plan_group *g, int64_t place);
// The same as what they are made of: first + the sum of i[k] * stride[k], 0 <= i[k] < count[k],
// where all that one step of an axis holds comes before the next. So how many are below a rank is
// known without looking at them.
typedef struct plan_members {
    int64_t first, count[AXIS_COUNT], stride[AXIS_COUNT]; // from the outermost axis on
} plan_members;
plan_members plan_members_of(const plan_mesh *m, const plan_group *g);
int64_t plan_members_count(const plan_members *s);
int64_t plan_members_at(const plan_members *s, int64_t place);
int64_t plan_members_below(const plan_members *s, int64_t rank); // members with a lower number
// This rank's place among them.
int32_t plan_group_place(const plan_mesh *m, const plan_group *g);
enum { PLAN_GROUP_NAME_BYTES = 32 };
void plan_group_name(const plan_group *g,
                     char out[PLAN_GROUP_NAME_BYTES]); // "dp", "dp+tp", "pp 0>1"

// Strict order (design.md, "What a result may depend on"): shard s of S holds the sequences
// floor(G s / S) .. floor(G (s+1) / S) - 1 of the global batch.
static inline int64_t plan_shard_begin(int64_t sequences, int64_t shards, int64_t shard)
{
    return sequences * shard / shards;
}

#ifdef __cplusplus
}
#endif
#endif

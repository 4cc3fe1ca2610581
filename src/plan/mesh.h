// The mesh of ranks, and its groups for communication. Pure.
//
// The mesh is a grid with an axis for each kind of parallelism. tp is innermost, because its ranks
// communicate most and should be neighbours: rank = ((pp * DP + dp) * CP + cp) * TP + tp.
#ifndef PLAN_MESH_H
#define PLAN_MESH_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

// The ranks of a job, and the coordinates of the one that a plan is for.
typedef struct plan_mesh {
    int32_t size[AXIS_COUNT]; // 0 is read as 1
    int32_t at[AXIS_COUNT];   // this rank's coordinate on the axis
    int32_t zero_group; // consecutive ranks of dp over which ZeRO cuts, with those of cp; 0: all
    int32_t cp_heads;   // consecutive ranks of cp that distribute heads; 0: 1
    int32_t ep;         // consecutive ranks that distribute a layer's experts; 0: 1
    bool whole_experts; // tp cuts no expert: experts go to its ranks first, then to cp and dp
    // Parts of a step that each rank of dp takes: shares[share_count]. If that is not the number of
    // ranks of dp, or shares is NULL, all take as many.
    const int64_t *shares;
    int64_t share_count;
} plan_mesh;
static inline int32_t plan_mesh_size(const plan_mesh *m, mesh_axis axis)
{
    return m->size[axis] > 0 ? m->size[axis] : 1;
}
// The ranks of dp that hold one copy of tensors that ZeRO cuts; their number with those of cp, and
// the number of this rank among them.
static inline int32_t plan_zero_dp(const plan_mesh *m)
{
    return m->zero_group > 0 ? m->zero_group : plan_mesh_size(m, AXIS_DP);
}
static inline int32_t plan_zero_size(const plan_mesh *m)
{
    return plan_zero_dp(m) * plan_mesh_size(m, AXIS_CP);
}
static inline int32_t plan_zero_place(const plan_mesh *m)
{
    return m->at[AXIS_DP] % plan_zero_dp(m) * plan_mesh_size(m, AXIS_CP) + m->at[AXIS_CP];
}
// Whether this rank is the first of those along dp and cp that hold the same rows of a weight: all
// rows, or with is_cut a piece.
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
// Ranks of tp that have different rows, and may have different experts: all if tp cuts no expert.
static inline int32_t plan_expert_tp(const plan_mesh *m)
{
    return m->whole_experts ? plan_mesh_size(m, AXIS_TP) : 1;
}
// Ranks over which experts are distributed: along tp, then along cp if tp has too few, then along
// dp.
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
// This rank's number among those over which experts are distributed, which are in the order of
// ranks.
static inline int32_t plan_ep_place(const plan_mesh *m)
{
    const int32_t tp = plan_ep_tp(m), cp = plan_ep_cp(m), dp = plan_ep_dp(m);
    const int32_t at_tp = tp > 1 ? m->at[AXIS_TP] % tp : 0;
    return (m->at[AXIS_DP] % dp * cp + m->at[AXIS_CP] % cp) * tp + at_tp;
}
// Whether experts are distributed over whole rows of ranks: ep divides tp, or is tp times a divisor
// of cp, or tp x cp times a divisor of dp.
static inline bool plan_ep_fits(const plan_mesh *m)
{
    const int32_t tp = plan_ep_tp(m), cp = plan_ep_cp(m), dp = plan_ep_dp(m);
    return tp * cp * dp == plan_mesh_ep(m) && plan_expert_tp(m) % tp == 0 &&
           plan_mesh_size(m, AXIS_CP) % cp == 0 && plan_mesh_size(m, AXIS_DP) % dp == 0;
}
// Whether weights of experts and the other weights of a layer are on different ranks.
static inline bool plan_experts_apart(const plan_mesh *m)
{
    return plan_mesh_ep(m) > 1 || plan_expert_tp(m) > 1;
}
// plan_zero_size and plan_zero_place for a weight of experts: among the ranks with the same
// experts.
static inline int32_t plan_expert_size(const plan_mesh *m)
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
int64_t plan_mesh_rank(const plan_mesh *m); // number in the job
// Returns the same mesh seen from another rank.
plan_mesh plan_mesh_from(const plan_mesh *m, int64_t rank);

#define MESH_AXIS(axis) (UINT32_C(1) << (axis))
// Axes along which ranks have different rows, and so different terms of a gradient.
#define MESH_DATA (MESH_AXIS(AXIS_DP) | MESH_AXIS(AXIS_CP))
#define MESH_ALL  ((UINT32_C(1) << AXIS_COUNT) - 1)
// Parts of dp: ranks of one copy of the tensors that ZeRO cuts, and ranks with the same piece of
// every copy.
#define MESH_DP_INSIDE (UINT32_C(1) << AXIS_COUNT)
#define MESH_DP_ACROSS (UINT32_C(2) << AXIS_COUNT)
#define MESH_ZERO      (MESH_DP_INSIDE | MESH_AXIS(AXIS_CP)) // with that copy's ranks of cp
// Parts of cp: ranks that distribute heads, and ranks with the same heads of other positions.
#define MESH_CP_HEADS (UINT32_C(4) << AXIS_COUNT)
#define MESH_CP_REST  (UINT32_C(8) << AXIS_COUNT)
// Whether the axes are cp alone, all of it or a part.
static inline bool plan_axes_are_cp(uint32_t axes)
{
    const uint32_t cp = MESH_AXIS(AXIS_CP) | MESH_CP_HEADS | MESH_CP_REST;
    return axes != 0 && (axes & ~cp) == 0;
}
// Parts of tp: `copies` consecutive ranks, and ranks with the same place among such consecutive
// ones.
#define MESH_TP_INSIDE (UINT32_C(16) << AXIS_COUNT)
#define MESH_TP_ACROSS (UINT32_C(32) << AXIS_COUNT)
// The kind of parallelism that a transfer serves, by the axes of its group.
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
// Parts of dp, cp and tp: ranks with the same experts. Ranks over which the experts of a layer are
// distributed are MESH_AXIS(AXIS_EP) alone.
#define MESH_DP_SAME     (UINT32_C(64) << AXIS_COUNT)
#define MESH_CP_SAME     (UINT32_C(128) << AXIS_COUNT)
#define MESH_TP_SAME     (UINT32_C(256) << AXIS_COUNT)
#define MESH_EXPERT_DATA (MESH_DP_SAME | MESH_CP_SAME | MESH_TP_SAME)

// The stream of a group's operations. Operations of one group have one order, so operations on the
// compute stream and overlapped ones need two groups, even of the same ranks.
typedef enum group_use {
    GROUP_OVERLAPPED,
    GROUP_INLINE,
    GROUP_RING, // overlapped: a ring passes blocks on while it computes with those that are there
    GROUP_LINK_FORWARD,
    GROUP_LINK_BACKWARD,
    GROUP_PAIR
} group_use;

// A group of ranks that communicate: those that differ from this one along `axes` only; or two
// stages of pp, `from` and `to`: a link for activations (forward) or their gradients (backward) in
// one direction, or the pair that holds the same weights.
typedef struct plan_group {
    uint32_t
        axes; // bits of mesh_axis, or of a part of dp, cp or tp; only axes of more than one rank
    int32_t from, to; // coordinates on the pp axis; -1: not two stages
    group_use use;
    int32_t copies; // MESH_TP_INSIDE, MESH_TP_ACROSS
} plan_group;

// Returns the group along these axes, without those of size 1.
plan_group plan_group_of(const plan_mesh *m, uint32_t axes, group_use use);
// Returns `inside` consecutive ranks of tp, or ranks that are `across` apart; both 0: all.
plan_group plan_group_tp(const plan_mesh *m, int32_t inside, int32_t across, group_use use);
plan_group plan_group_stages(int32_t from, int32_t to, group_use use);
// Returns the holders of the same weights: stages a and b, with all ranks along `axes`.
plan_group plan_group_pair(const plan_mesh *m, int32_t a, int32_t b, uint32_t axes);
bool plan_group_is_stages(const plan_group *g); // a link of two stages, or a pair
bool plan_group_equal(const plan_group *a, const plan_group *b);
// Compares groups for the order in which all ranks make them.
int plan_group_compare(const plan_group *a, const plan_group *b);
int64_t plan_group_size(const plan_mesh *m, const plan_group *g);
// Lists the plan_group_size ranks of a group, ascending. The mesh must be that of a member.
void plan_group_members(const plan_mesh *m, const plan_group *g, int32_t *members);
// Returns one member.
int64_t plan_group_member(const plan_mesh *m, const plan_group *g, int64_t place);
// The members in closed form: first + the sum of i[k] * stride[k], 0 <= i[k] < count[k], in
// ascending order. The number of members below a rank follows without a loop over them.
typedef struct plan_members {
    int64_t first, count[AXIS_COUNT], stride[AXIS_COUNT]; // from the outermost axis on
} plan_members;
plan_members plan_members_of(const plan_mesh *m, const plan_group *g);
int64_t plan_members_count(const plan_members *s);
int64_t plan_members_at(const plan_members *s, int64_t place);
int64_t plan_members_below(const plan_members *s, int64_t rank); // members with a lower number
// Returns the index of this rank among the members.
int32_t plan_group_place(const plan_mesh *m, const plan_group *g);
enum { PLAN_GROUP_NAME_BYTES = 32 };
void plan_group_name(const plan_group *g,
                     char out[PLAN_GROUP_NAME_BYTES]); // "dp", "dp+tp", "pp 0>1"

// Strict order (docs/architecture/plan.md): shard s of S holds the sequences
// floor(G s / S) .. floor(G (s+1) / S) - 1 of the global batch.
static inline int64_t plan_shard_begin(int64_t sequences, int64_t shards, int64_t shard)
{
    return sequences * shard / shards;
}

// Returns the first of `parts` (shards in strict order, sequences otherwise) of rank `at` of dp.
static inline int64_t plan_share_begin(const plan_mesh *m, int64_t parts, int64_t at)
{
    const int64_t ranks = plan_mesh_size(m, AXIS_DP);
    int64_t before = 0, all = 0;
    if (m->shares == NULL || m->share_count != ranks) return plan_shard_begin(parts, ranks, at);
    for (int64_t i = 0; i < ranks; i++) {
        if (i < at) before += m->shares[i];
        all += m->shares[i];
    }
    return plan_shard_begin(parts, all, before);
}

#ifdef __cplusplus
}
#endif
#endif

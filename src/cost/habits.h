// Habits of other software: how its steps differ from the plan as it is.
//
// A plan, its prices and its simulation know the eight numbers of a cost_profile. Other differences
// of a published run (operations that are not fused, collectives that take another route,
// additional bytes) are data: one table of named habits, each with a value that changes nothing. A
// profile of the catalogue sets some of them. Three files know the habits: cost/habits.c for
// prices, sim/habits.c for a step's host and sums, predict/habits.c for bytes.
//
// To add a habit: a row here, and a line in one of these files.
#ifndef COST_HABITS_H
#define COST_HABITS_H

#include "cost/cost.h"

#ifdef __cplusplus
extern "C" {
#endif

// REAL(field, key of the catalogue, scale of its unit, least, most, value that changes nothing,
//      help)
// COUNT(field, most, help), which changes nothing at 0
// FLAG(field, value that changes nothing, help)
// clang-format off
#define COST_HABITS(REAL, COUNT, FLAG)                                                             \
    /* Operations. */                                                                              \
    REAL(attention_half, attention_half, 1, 0, 1e6, 0,                                             \
         "number of positions at which attention reaches half of its speed; 0: the value of "      \
         "the device's entry")                                                                     \
    REAL(pointwise, pointwise, 1, 0.01, 100, 1,                                                    \
         "bytes that element-wise operations move, relative to the plan; below 1: they are "       \
         "fused")                                                                                  \
    REAL(eager_pointwise, eager_pointwise, 1, 0, 100, 0,                                           \
         "bytes that RMSNorm, rotary positions and gated activations move, relative to the "       \
         "plan, if a framework runs them as chains of operations; 0: the value of pointwise")      \
    REAL(product_dw, product_dw, 1, 0.01, 100, 1,                                                  \
         "speed of GEMMs in fp8 that sum gradients of weights, relative to product")               \
    REAL(attention_kernels, attention_kernels, 1, 0.01, 100, 1,                                    \
         "number of kernels that an attention launches; 1: it is fused")                           \
    REAL(sum16_bytes, sum16_bytes, 1, 0, 100, 0,                                                   \
         "bytes per element of a weight's gradient that a separate kernel moves in each "          \
         "micro-batch to add it to a sum of two bytes; 0: the GEMM adds it")                       \
    REAL(sum32_bytes, sum32_bytes, 1, 0, 100, 0, "as sum16_bytes, for a sum of four bytes")        \
    FLAG(whole_again, false,                                                                       \
         "full recomputation repeats all operations of a layer, even those that no gradient "      \
         "needs")                                                                                  \
    FLAG(whole_logits, false,                                                                      \
         "each rank of tp gathers the logits of all columns and computes their loss")              \
    FLAG(whole_head, false,                                                                        \
         "each rank of tp computes the logits of all columns itself, but stores only its "         \
         "piece of the weight")                                                                    \
    /* The host issues operations; it runs ahead of the device if issuing takes less time. */      \
    REAL(step_s, step_s, 1, 0, 60, 0, "seconds of host work in each step that nothing hides")      \
    REAL(issue_s, issue_us, 1e-6, 0, 100000, 0,                                                    \
         "microseconds that the host takes to issue an operation of a layer; 0: the host is "      \
         "always ahead")                                                                           \
    REAL(expert_issue_s, expert_issue_us, 1e-6, 0, 100000, 0,                                      \
         "additional microseconds of the host for the experts of a layer in a forward pass; a "    \
         "backward pass takes twice as long")                                                      \
    REAL(expert_product_s, expert_product_us, 1e-6, 0, 100000, 0,                                  \
         "microseconds that the host takes to issue each expert's part of a GEMM")                 \
    FLAG(expert_wait, false,                                                                       \
         "the host waits until the router has determined the rows of each expert")                 \
    /* Collectives and transfers. */                                                               \
    FLAG(dp_beside, false,                                                                         \
         "without a pipeline, sums of gradients overlap with the backward pass, whatever "         \
         "dp_overlap says")                                                                        \
    FLAG(beside, true,                                                                             \
         "collectives of tensor and context parallelism overlap with GEMMs as the plan has "       \
         "them, and the simulated GEMMs hide them; no: tp_overlap and cp_overlap give the "        \
         "hidden share, and gathers of layout.sp stand between GEMMs")                             \
    FLAG(pp_pieces, false,                                                                         \
         "if all ranks of tp hold the same rows at a stage boundary, each sends a piece of "       \
         "them, and the next stage gathers the pieces")                                            \
    COUNT(ep_nodes, 1 << 20,                                                                       \
          "a token's row is sent to its experts once per node, to at most this many nodes; 0: "    \
          "once per expert")                                                                       \
    REAL(ep_bytes, ep_bytes, 1, 0, 1, 1,                                                           \
         "bytes of experts' rows that are sent, relative to the plan")                             \
    FLAG(ep_pairs, false,                                                                          \
         "messages of experts overlap only with GEMMs of another micro-batch, where the "          \
         "schedule runs a forward and a backward pass together; others are not hidden")            \
    REAL(imbalance, imbalance, 1, 0.01, 100, 1,                                                    \
         "rows of the rank with most rows of experts, relative to the mean")                       \
    REAL(ep_gb_s, ep_gb_s, 1, 0, 1e5, 0,                                                           \
         "largest rate at which a rank sends rows of experts in GB/s, whatever its links "         \
         "reach; 0: no limit")                                                                     \
    REAL(cp_gb_s, cp_gb_s, 1, 0, 1e5, 0,                                                           \
         "largest rate at which a rank sends in collectives of context parallelism in GB/s; "      \
         "0: no limit")                                                                            \
    FLAG(levels_at_once, false,                                                                    \
         "all-to-alls use the links inside nodes and those between nodes at the same time; no: "   \
         "if all nodes have equally many ranks, each piece goes first inside its node, then "      \
         "between nodes, together with those of the other ranks")                                  \
    FLAG(expert_sorts, false,                                                                      \
         "received rows are sorted by expert, and sorted back before they are returned")           \
    FLAG(rings, false,                                                                             \
         "gathers, scatters and sums use rings over all ranks, as NCCL does, so the links of "     \
         "a node also transfer pieces of its own ranks; no: they transfer only pieces of "         \
         "other nodes, once")                                                                      \
    COUNT(sum_bytes, 1e15,                                                                         \
          "bytes of gradients that one sum or scatter covers, when all of them are complete, "     \
          "if gradients are summed once in a step; 0: layer by layer")                             \
    REAL(hop_s, hop_us, 1e-6, 0, 100000, 0,                                                        \
         "microseconds of a hop within a node for gathers and scatters over a ring of all "        \
         "ranks; 0: the latencies of the links, and doubling where it is faster")                  \
    REAL(hop_outside_s, hop_outside_us, 1e-6, 0, 100000, 0,                                        \
         "microseconds of a hop between nodes; if hop_us is 0 too, the latencies of the links")    \
    REAL(piece_s, piece_us, 1e-6, 0, 100000, 0,                                                    \
         "microseconds for each rank's piece in a gather or scatter of ZeRO-3, which then "        \
         "goes tensor by tensor through a buffer; 0: layer by layer, in place")                    \
    COUNT(reuse_distance, 1e15,                                                                    \
          "with piece_us: a weight is gathered again between its recomputation and its "           \
          "gradient if at least this many elements of other weights are used in between; 0: "      \
          "always")                                                                                \
    COUNT(persistent, 1e15,                                                                        \
          "with piece_us: weights with fewer elements stay whole on every rank of ZeRO-3 and "     \
          "are gathered piece by piece after the update")                                          \
    REAL(crowding, crowding, 1, 0, 1, 0,                                                           \
         "share by which GEMMs slow down while collectives overlap with them over the "            \
         "innermost links; slower links take proportionally less")                                 \
    FLAG(fp8_gathers, false, "under fp8, rows are cast before layout.sp gathers them over tp")     \
    /* Bytes. */                                                                                   \
    REAL(activations, activations, 1, 0.01, 100, 1,                                                \
         "bytes kept for the backward pass, relative to the plan")                                 \
    REAL(score_bytes, score_bytes, 1, 0, 16, 0,                                                    \
         "bytes kept of each attention score if attention is not fused; 0: it is fused")           \
    REAL(mask_bytes, mask_bytes, 1, 0, 16, 0,                                                      \
         "bytes of dropout masks kept for each element of a layer's rows")                         \
    REAL(logit_bytes, logit_bytes, 1, 0, 64, 0,                                                    \
         "bytes per logit of a micro-batch that exist at the same time at the loss; 0: the "       \
         "loss is computed in chunks")                                                             \
    FLAG(fp8_inputs, false,                                                                        \
         "under fp8, inputs of GEMMs are kept for the gradients of weights in one byte")           \
    FLAG(fp8_weights, false, "under fp8, weights of GEMMs are kept only in one byte")              \
    COUNT(live_parameters, 1e15,                                                                   \
          "elements of gathered weights that ZeRO-3 holds at a time; 0: those of two layers, "     \
          "as in the plan")                                                                        \
    COUNT(reduce_bucket, 1e15,                                                                     \
          "elements of the bucket into which ZeRO-2 and ZeRO-3 copy gradients; 0: there is no "    \
          "bucket, and the gradients of a layer are held")                                         \
    COUNT(loose_grads, 8,                                                                          \
          "gradients of at most this many bytes per element are allocated and freed within a "     \
          "step too; wider ones have a permanent buffer")
// clang-format on

#define HABIT_REAL(field, key, scale, least, most, none, help) double field;
#define HABIT_COUNT(field, most, help)                         int64_t field;
#define HABIT_FLAG(field, none, help)                          bool field;
struct cost_habits {
    COST_HABITS(HABIT_REAL, HABIT_COUNT, HABIT_FLAG)
};
#undef HABIT_REAL
#undef HABIT_COUNT
#undef HABIT_FLAG

extern const cost_habits cost_habits_none; // every habit has the value that changes nothing
static inline const cost_habits *cost_habits_of(const cost_profile *p)
{
    return p->habits != NULL ? p->habits : &cost_habits_none;
}

// Time that the host takes to issue an operation, and whether it waits until the operation is done.
int64_t cost_issue_ns(const cost_model *m, const op_node *node);
bool cost_host_waits(const cost_model *m, op_code code);
bool cost_has_host(const cost_profile *p);       // can the host fall behind?
int64_t cost_step_ns(const cost_profile *p);     // additional time of each step
bool cost_has_all_logits(const cost_profile *p); // each rank of tp gathers or computes all logits

#ifdef __cplusplus
}
#endif
#endif
